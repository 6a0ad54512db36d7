// Package preference scores pictures and texts with reward models that were exported to ONNX: the
// CLIP family (PickScore, CLIPScore, HPSv2, SigLIP), the aesthetic predictor, text reward models,
// and any other graph whose output is a score. The graphs run behind internal/infer; this package
// does not depend on ONNX.
//
// The life of a score:
//
//  1. The option model of a scorer selects a folder with graphs, a tokenizer, and scorer.json,
//     which defines how a picture becomes a tensor and a text becomes tokens (sidecar.go). Creating
//     a scorer reads only this sidecar. Scorers with the same folder and device share a model
//     (models.go).
//  2. Warm loads the graphs and the tokenizer, once for all callers. Warm connects the inputs and
//     outputs that each graph declares with those of the sidecar (graph.go), and runs each graph
//     once (load.go), so that a wrong export fails with a clear error before the first sample. Then
//     the outputs for selftest.json are compared with the outputs of PyTorch (selftest.go). A
//     sample does all this if Warm was not called.
//  3. A picture is resized and cropped in its sample's goroutine, and is passed to the model as
//     bytes, one item for each picture. The frames of a video are passed at the same time
//     (visual.go). The pool batches items across samples and runs them.
//  4. The embedding of a prompt is computed once for all samples that need it, as long as one of
//     them waits, and is cached (internal/localmodel). A group of 16 pictures with one prompt runs
//     the text tower once.
//  5. The cosine of both embeddings, in float64, becomes the score by the scorer's formula
//     (pair.go, specs.go). The output of a graph that returns a score is transformed as the sidecar
//     defines (whole.go, embedding.go).
//
// Every failure has a class of package rewards and contains the names of the sample, the model and
// the file. An embedding of length 0 is a failure, not a score of 0.
package preference
