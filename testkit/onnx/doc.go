// Package onnx opens ONNX Runtime for the tests of what runs models here.
//
// A package whose tests run models gives its TestMain to [Main], so that the test binary
// can be its own child process, and asks [CPU] for something to run them on. A machine
// without ONNX Runtime skips these tests; where REQUIRE_ORT=1 says that it must be there,
// they fail.
package onnx
