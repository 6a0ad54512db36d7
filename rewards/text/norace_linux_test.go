//go:build !race

package text_test

// megabyte is what the degenerate responses are long.
const megabyte = 1 << 20
