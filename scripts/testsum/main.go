// Command testsum reads what `go test -json` writes and prints what a person
// wants of it: a line per package as it ends, everything a failed test said,
// every skipped test with its reason, and one closing line of counts. A skip
// that nobody sees would look like a pass, and go test without -v shows none.
//
// It exits 1 when anything failed, and when no test ran at all.
package main

import (
	"fmt"
	"os"
)

func main() {
	s := newSummary(os.Stdout)
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if !s.close() {
		os.Exit(1)
	}
}
