// Package chat sends text and pictures to engines with OpenAI's chat completions API (vLLM, SGLang,
// hosted services).
//
// The life of a question: Chat checks the Request and digests it: model,
// parameters, text and the bytes of the pictures. An answer that is remembered
// under that digest is taken; a question that is on its way already is joined;
// else the body is built, from then on the caller's pictures are not looked at any
// more, and the call goes through an outbound.Doer, which owns limits, attempts and
// addresses. What comes back is held to its form before anybody sees it. The caller
// has the last word: only an answer that its Accept is content with is remembered.
//
// A question that is drawn at random (a temperature that is not 0, and no seed) is
// neither remembered nor shared: every asker gets a draw of its own.
//
// Scorers that chat meet a client as a Chatter, which Clients gives them for an Endpoint,
// and have their options (Asking, Sampling, Pictures) and the asking in common: Question
// makes a request, Encode its pictures, and Ask goes on until an answer can be read.
//
// Each shared question has one goroutine, which belongs to the Client. It lives as
// long as somebody waits for it: an asker who leaves does not take the others'
// answer along, and the last one to leave ends it. Close ends and awaits all.
package chat
