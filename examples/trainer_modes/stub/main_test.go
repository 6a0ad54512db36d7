package stub_test

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary its own child process: a stub that ends when its input
// does, so that its processor time can be told from the client's.
func TestMain(m *testing.M) {
	if kind := os.Getenv(childKind); kind != "" {
		if err := child(kind, os.Stdin, os.Stdout); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
