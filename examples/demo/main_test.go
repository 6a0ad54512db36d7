package demo_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/node"
)

// TestMain makes the test binary its own child process, as the program is.
func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
