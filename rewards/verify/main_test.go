package verify_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "parent" {
		parent()
		return
	}
	goleak.VerifyTestMain(m)
}
