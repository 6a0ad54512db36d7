// Package chat sends text and pictures to engines with OpenAI's chat completions API (vLLM, SGLang,
// hosted services).
//
// The life of a question: Chat checks the Request and computes a digest of the model, the
// parameters, the text and the bytes of the pictures. If the cache has a reply for that digest,
// Chat returns the reply. If the same question is in flight, Chat waits for its reply. Otherwise
// Chat builds the body, after which the caller's pictures are no longer read, and sends the call
// through an outbound.Doer, which has the limits, retries and addresses. The form of the answer is
// checked before any caller gets it. Only a reply that the caller's Accept accepts is cached.
//
// A question that is sampled at random (a temperature that is not 0, and no seed) is neither cached
// nor shared: every caller gets its own sample.
//
// Scorers get a Chatter from Clients for an Endpoint. They share the options (Asking, Sampling,
// Pictures) and the functions for questions: Question makes a request, Pictures.Encode its
// pictures, and Ask repeats the question until a reply can be parsed.
//
// Each shared question has one goroutine of the Client. The goroutine lives as long as a caller
// waits for the reply: a caller that cancels does not cancel the question for the others, and the
// last one ends it. Close ends all these goroutines and waits for them.
package chat
