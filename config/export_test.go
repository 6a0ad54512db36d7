package config

// For the tests of the package alone.
const ONNXScorer = onnxScorer

var Reference = reference
