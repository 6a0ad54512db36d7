// Package export exports PyTorch checkpoints to ONNX model folders with embedded Python programs.
//
// A call of [Exporter.Export] has these steps:
//
//  1. If the name exists in the store, the model is left as it is.
//  2. The hub is queried for the commit, the sizes and the licence of the weights. Weights that are
//     not available end the export here, before anything is downloaded.
//  3. The environment of requirements.txt is found or created (internal/pyenv). Options.Agree gets
//     the packages and the weights before they are downloaded.
//  4. The program runs in its own process group, which ends with the context, and writes into a
//     hidden folder of the store. While the program runs, it holds the lock of the name.
//  5. The program writes parity.json with the largest difference between ONNX and PyTorch. A
//     difference above the limit is an error.
//  6. The folder gets the model's name in one step, and its checksums are written to the store's
//     manifest.
//
// If a step fails, nothing new exists under the model's name.
package export
