package node_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/node"
)

// TestMain lets this test binary be the child processes that run Tesseract and models.
func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	dir, err := os.MkdirTemp("", "rewardloop-test-*") // of keys for NATS, which are the user's
	if err != nil {
		panic(err)
	}
	_ = os.Setenv("XDG_CONFIG_HOME", dir)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
