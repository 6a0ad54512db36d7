//go:build race

package text_test

// megabyte is what the degenerate responses are long. Under the race detector it
// is a sixteenth of one: each step takes ten times as long.
const megabyte = 1 << 16
