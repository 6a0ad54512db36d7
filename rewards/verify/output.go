package verify

import "errors"

// errTooMuch ends the copying of an output that is over its bound.
var errTooMuch = errors.New("too much output")

// bounded keeps an output up to MaxResult bytes. The first byte beyond closes over.
type bounded struct {
	kept []byte
	full bool
	over chan struct{}
}

// Write is called by one goroutine.
func (b *bounded) Write(p []byte) (int, error) {
	if b.full || len(b.kept)+len(p) > maxResult {
		if !b.full {
			b.full = true
			close(b.over)
		}
		return 0, errTooMuch
	}
	b.kept = append(b.kept, p...)
	return len(p), nil
}
