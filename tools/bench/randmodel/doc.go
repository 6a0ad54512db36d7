// Package randmodel writes ONNX models of real sizes with random weights: the towers of a CLIP
// of ViT-B/32's size, and the three graphs of a SmolVLM-256M. What they say does not matter, what
// they cost is what the real ones cost. 2 GB of weights need not travel to a machine: they
// follow from a seed, so that the same model is made everywhere.
package randmodel
