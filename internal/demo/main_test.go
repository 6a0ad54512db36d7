package demo_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/slot"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// TestMain makes the test binary its own child process, as the program is.
func TestMain(m *testing.M) {
	if code, child := slot.Main(os.Args[1:], tesseract.Kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
