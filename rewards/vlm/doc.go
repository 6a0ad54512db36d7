// Package vlm scores samples with a vision language model that runs in this process as ONNX,
// without an engine behind HTTP.
//
// The life of a judge: a folder in the layout of transformers.js is opened (its
// config.json says which family it is of). Before the first question it is loaded: the
// tokenizer, the two networks on their device, and the chat template, which is held
// against the one written here for the family. What does not fit together (a tokenizer
// of another vocabulary, an input that nobody feeds) ends the loading, by name.
//
// A question then takes this way:
//
//	frame ── family.Look ── vision encoder ── features ──┐
//	                  │                                  ├── language model ── logits, tokens
//	text ── render ── family.Expand ── tokens, positions ┘
//
// The networks batch questions of equal size with one another, whoever asks them, and
// a prompt that was asked before is not tokenised again.
//
// A [Judge] is used in three ways. The scorer "vlm" (Specs) reads probabilities off the
// prompt's last position, which takes no decoding at all, or has the model say its
// score. As a Chatter it stands where an engine would, under the scorers of
// rewards/judge. As an ocr.TextReader it reads what is written in a picture.
package vlm
