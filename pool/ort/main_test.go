//go:build cgo

package ort_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// TestMain makes the test binary its own child process, which may have a fake card.
func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], ort.FakeKinds()...); child {
		os.Exit(code)
	}
	onnx.Main(m)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fixture is the path of a model in testdata.
func fixture(name string) string { return filepath.Join("testdata", name+".onnx") }
