package python

import (
	"strings"
	"sync"
)

// tailBytes is what is kept of the end of a host's output.
const tailBytes = 2 << 10

// tail keeps the last bytes written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	last []byte
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if len(p) > tailBytes {
		p = p[len(p)-tailBytes:]
	}
	t.last = append(t.last, p...)
	if over := len(t.last) - tailBytes; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return n, nil
}

// words are what is kept, behind a colon; "" for silence.
func (t *tail) words() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.ToValidUTF8(strings.TrimSpace(string(t.last)), "\uFFFD")
	if s == "" {
		return ""
	}
	return "; its last words: " + s
}
