//go:build race

package wire_test

// raceEnabled: under the race detector sync.Pool drops buffers at random.
const raceEnabled = true
