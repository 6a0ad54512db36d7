// Package vlm scores samples with a vision language model that runs in this process as ONNX,
// without an engine behind HTTP.
//
// The life of a judge: a folder in the layout of transformers.js is opened; its config.json
// contains the model's family. Before the first question the judge loads the tokenizer, the two
// networks on their device, and the chat template, which is compared with this package's template
// for the family. If parts do not fit together (a tokenizer with another vocabulary, an input
// without a value), loading fails with an error that contains the name of the part.
//
// A question is then processed as follows:
//
//	frame ── family.Look ── vision encoder ── features ──┐
//	                  │                                  ├── language model ── logits, tokens
//	text ── render ── family.Expand ── tokens, positions ┘
//
// The networks batch questions of equal size from all callers. A repeated prompt is not tokenised
// again.
//
// A [Judge] is used in three ways. The scorer "vlm" (Specs) reads probabilities at the last
// position of the prompt, which needs no decoding, or lets the model generate a score. As a
// Chatter, a Judge replaces an engine for the scorers of rewards/judge. As an ocr.TextReader, it
// reads the text in a picture.
package vlm
