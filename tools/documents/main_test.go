// Package documents_test does what the README and the pages of docs/ say, command by command, and
// compares what they show with what the program answers.
package documents_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes and removes the folder in which the tests build. All tests of the package
// work in the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "rewardloop-walk")
	if err != nil {
		panic(err)
	}
	workshop = dir
	_ = os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")) // The keys for NATS in it are the user's.
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
