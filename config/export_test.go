package config

// For the tests of the package alone.
const ONNXScorer = onnxScorer

var Reference = reference

// Grouped says that a component is called with whole prompt groups.
func Grouped(t ComponentConfig) bool { return t.grouped() }
