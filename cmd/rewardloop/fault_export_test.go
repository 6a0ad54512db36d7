package main

import "testing"

// Binary is the built program, for tests that may use testkit: those of the
// external test package.
func Binary(t *testing.T) string {
	t.Helper()
	return binary(t)
}

// Serving starts the program as a server with a configuration; it ends with the test.
func Serving(t *testing.T, yaml string) (pid int, addr string) {
	t.Helper()
	p, addr := serving(t, "-c", put(t, t.TempDir(), "cfg.yaml", []byte(yaml)))
	return p.Process.Pid, addr
}

// Drawing is a tiny picture, and its reward by jpeg_incompressibility.
func Drawing(t *testing.T, n int) (file []byte, reward float64) {
	t.Helper()
	return drawing(t, n)
}
