//go:build !linux

package verify_test

// parent has nothing to start where commands do not run.
func parent() {}
