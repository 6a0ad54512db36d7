// Package export makes ONNX model folders of PyTorch checkpoints with embedded Python programs.
//
// One call of [Exporter.Export]:
//
//  1. The name is looked for in the store; a model that is there is left as it is.
//  2. The hub is asked what the weights are: commit, sizes, licence. Weights that cannot be
//     had end it here, before anything is downloaded.
//  3. The environment of requirements.txt is found or made (internal/pyenv). Options.Agree sees
//     its packages and the weights before either is downloaded.
//  4. The program runs in a process group of its own, which ends with the context, and writes
//     into a hidden folder of the store. It holds the lock of the name as long as it lives.
//  5. parity.json, which the program leaves, says by how much ONNX was off from PyTorch at
//     most. A difference above its limit is an error.
//  6. The folder gets the model's name in one step, and its sums go into the store's manifest.
//
// Whatever fails, nothing stays under the model's name.
package export
