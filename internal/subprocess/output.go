package subprocess

import (
	"strings"
	"sync"
)

// endBytes is what is kept of each end of a process's output. The beginning of a Go or
// C crash names the signal, its end is registers; the last words of a library that
// aborts, and the cause in a Python traceback, are at the end.
const endBytes = 2 << 10

// Output is an io.Writer that keeps the first and the last 2 KiB of the output of a process. The
// zero value is ready to use. Output is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	head []byte // the first bytes; guarded by mu
	last []byte // the last of those after head; guarded by mu
}

// Write never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	k := min(endBytes-len(o.head), len(p))
	o.head, p = append(o.head, p[:k]...), p[k:]
	p = p[max(0, len(p)-endBytes):]
	o.last = append(o.last, p...)
	if over := len(o.last) - endBytes; over > 0 {
		o.last = append(o.last[:0], o.last[over:]...)
	}
	return n, nil
}

// String returns both ends as valid UTF-8 without surrounding space.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := string(o.head)
	if len(o.last) > 0 {
		s += " … " + string(o.last)
	}
	return readable(s)
}

// LastWords returns the last 2 KiB as valid UTF-8 without surrounding space.
func (o *Output) LastWords() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := string(o.head) + string(o.last)
	return readable(s[max(0, len(s)-endBytes):])
}

func readable(s string) string { return strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD")) }
