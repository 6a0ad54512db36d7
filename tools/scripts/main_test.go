// Package scripts_test holds the Makefile and the scripts below scripts/ to what they promise on
// machines that lack something: a compiler, a card, a network, root.
package scripts_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMain has all tests of the package work in the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
