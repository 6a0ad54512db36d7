package main

import (
	"os"
	"testing"
)

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

// StartAt starts the program in a folder, with an environment, and returns when it serves. It ends with the test.
func StartAt(t *testing.T, dir string, env []string, args ...string) *os.Process {
	t.Helper()
	p := startIn(t, dir, env, nil, nil, args...)
	p.stderr.await(t, "msg=serving")
	return p.Process
}

// Call runs a command in this process and returns its exit code and what it says.
func Call(t *testing.T, args ...string) (code int, stdout string) {
	t.Helper()
	got := call(t, "", args...)
	return got.code, got.stdout
}

// FreePort is an address that nobody listens on.
func FreePort(t *testing.T) string {
	t.Helper()
	return freePort(t)
}
