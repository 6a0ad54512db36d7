package main

import "testing"

// Binary is the built program, for tests that may use internal/testkit: those of the
// external test package.
func Binary(t *testing.T) string {
	t.Helper()
	return binary(t)
}
