// Package architecture_test holds the code to docs/architecture.md and to the rules that every
// package keeps: who may import whom, who waits for a goroutine, how errors are told apart, which
// metrics there are, and which tests hold each promise of docs/invariants.md.
package architecture_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/node"
)

// TestMain lets this test binary be the child processes of the nodes that tests start. All
// tests of the package work in the root of the repository.
func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "rewardloop-architecture")
	if err != nil {
		panic(err)
	}
	_ = os.Setenv("XDG_CONFIG_HOME", dir) // The keys for NATS in it are the user's.
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
