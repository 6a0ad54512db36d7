// Package ort runs ONNX models with ONNX Runtime.
package ort
