package ort_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/slot"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// TestMain makes the test binary its own child process.
func TestMain(m *testing.M) {
	if code, child := slot.Main(os.Args[1:], ort.Kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// library finds ONNX Runtime. Without it the test is skipped, or fails where
// REQUIRE_ORT=1 says that it has to be there.
func library(tb testing.TB) ort.Library {
	tb.Helper()
	configured := ""
	if os.Getenv(ort.LibraryEnv) == "" {
		// The clone's own copy; go test runs in the package's folder.
		if dir := filepath.Join("..", "..", ".cache", "ort", "1.29.0"); exists(dir) {
			configured = dir
		}
	}
	lib, err := ort.Find(configured)
	if err != nil && os.Getenv("REQUIRE_ORT") == "1" {
		tb.Fatalf("REQUIRE_ORT=1: %v", err)
	}
	if err != nil {
		tb.Skipf("SKIPPED: %v", err)
	}
	return lib
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fixture is the path of a model in testdata.
func fixture(name string) string { return filepath.Join("testdata", name+".onnx") }
