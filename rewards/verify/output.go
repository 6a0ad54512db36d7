package verify

import (
	"errors"
	"strings"
	"sync"
)

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
	if b.full || len(b.kept)+len(p) > MaxResult {
		if !b.full {
			b.full = true
			close(b.over)
		}
		return 0, errTooMuch
	}
	b.kept = append(b.kept, p...)
	return len(p), nil
}

// endBytes is what is kept of each end of what a program says on stderr.
const endBytes = 2 << 10

// ends keeps the first and the last bytes written to it, and takes any number.
type ends struct {
	mu   sync.Mutex
	head []byte
	last []byte
}

// Write never fails.
func (e *ends) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(p)
	k := min(endBytes-len(e.head), len(p))
	e.head, p = append(e.head, p[:k]...), p[k:]
	p = p[max(0, len(p)-endBytes):]
	e.last = append(e.last, p...)
	if over := len(e.last) - endBytes; over > 0 {
		e.last = append(e.last[:0], e.last[over:]...)
	}
	return n, nil
}

// String returns what is kept.
func (e *ends) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := string(e.head)
	if len(e.last) > 0 {
		s += " … " + string(e.last)
	}
	return strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
}
