//go:build race

// Package race says whether a test runs under the race detector, which makes every step some
// ten times dearer.
package race

// Enabled says that the race detector is on.
const Enabled = true
