package engines_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/testkit/stubengine"
)

func TestMain(m *testing.M) {
	stubengine.Main(os.Args[1:])
	if code, child := subprocess.Main(os.Args[1:]); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
