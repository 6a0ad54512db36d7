package rewardloop_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/internal/slot"
)

// TestMain lets this test binary be the child processes of the nodes that tests start, and
// makes and removes the folder in which the tests build.
func TestMain(m *testing.M) {
	if code, child := slot.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	dir, err := os.MkdirTemp("", "rewardloop-walk")
	if err != nil {
		panic(err)
	}
	workshop = dir
	_ = os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")) // of keys for NATS, which are the user's
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
