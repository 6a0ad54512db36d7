package ort_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rewardloop/rewardloop/internal/testkit/onnx"
)

func TestMain(m *testing.M) { onnx.Main(m) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fixture is the path of a model in testdata.
func fixture(name string) string { return filepath.Join("testdata", name+".onnx") }
