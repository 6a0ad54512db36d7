package node_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/internal/slot"
)

// TestMain lets this test binary be the child processes that run Tesseract and models.
func TestMain(m *testing.M) {
	if code, child := slot.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
