// Package onnx provides ONNX Runtime for tests of packages that run models.
//
// A package whose tests run models calls [Main] in its TestMain, so that the test binary can be its
// own child process, and calls [CPU] for a pool of devices. Without ONNX Runtime these tests are
// skipped, or fail if REQUIRE_ORT is 1.
package onnx
