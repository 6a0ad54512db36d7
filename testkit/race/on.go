//go:build race

// Package race reports whether a test runs under the race detector, which slows down every step by
// a factor of about ten.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
