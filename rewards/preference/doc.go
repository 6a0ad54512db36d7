// Package preference scores pictures and texts with reward models that were exported to
// ONNX: the CLIP family (PickScore, CLIPScore, HPSv2, SigLIP), the aesthetic predictor,
// text reward models, and any other graph that answers with a score. What runs the graphs
// is behind internal/infer; nothing here knows ONNX.
//
// The life of a score:
//
//  1. A scorer's option model names a folder: graphs, a tokenizer, and scorer.json, which
//     says how a picture becomes a tensor and a text tokens (sidecar.go). Making a scorer
//     reads the sidecar alone; scorers with one folder and device share a model
//     (models.go).
//  2. Warm loads the graphs and the tokenizer, once however many ask, binds
//     what each graph declares to what the sidecar feeds (graph.go), and asks each graph
//     once (load.go), so that a wrong export fails by name before the first sample. Then
//     the answers to selftest.json are held against those that PyTorch gave
//     (selftest.go). A sample does all this when nobody did before.
//  3. A picture is resized and cropped in its sample's goroutine and goes to the model as
//     bytes, one item each; frames of a video go at the same time (visual.go). The pool
//     batches items across samples and runs.
//  4. A prompt's embedding is computed once for all samples that ask for it, goes on as
//     long as one of them waits, and is kept (internal/localmodel). A group of 16 pictures
//     with one prompt runs the text tower once.
//  5. The cosine of both, in float64, becomes the score by the scorer's formula
//     (pair.go, specs.go). Graphs that answer with a score have it transformed as the
//     sidecar says (whole.go, embedding.go).
//
// Every failure is of a class of package rewards and names the sample, the model and the
// file. An embedding of length 0 is a failure, not a score of 0.
package preference
