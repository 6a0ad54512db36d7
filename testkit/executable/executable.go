// Package executable writes the small scripts that tests start in place of real programs.
package executable

import (
	"os"
	"syscall"
	"testing"
)

// Write writes an executable file. No other goroutine can fork meanwhile, because a child that
// inherits the file open for writing would make every start of the file fail with "text file busy"
// until the child calls exec.
func Write(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o700) //nolint:gosec // a program must be executable
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatalf("write the program %s: %v", path, err)
	}
}
