package slot

import (
	"bytes"
	"strings"
	"sync"
)

// tailBytes is what is kept of each end of a child's output. The beginning of a
// Go or C crash names the signal, its end is registers; the last words of a
// library that aborts are at the end.
const tailBytes = 2 << 10

// tail keeps the first and the last bytes written to it. It is safe for
// concurrent use.
type tail struct {
	mu   sync.Mutex
	head []byte
	last []byte
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if room := tailBytes - len(t.head); room > 0 {
		k := min(room, len(p))
		t.head = append(t.head, p[:k]...)
		p = p[k:]
	}
	if len(p) > tailBytes {
		p = p[len(p)-tailBytes:]
	}
	t.last = append(t.last, p...)
	if over := len(t.last) - tailBytes; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return n, nil
}

// String returns what is kept, as valid UTF-8 without surrounding space.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := bytes.Clone(t.head)
	if len(t.last) > 0 {
		s = append(append(s, " … "...), t.last...)
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(s)), "\uFFFD")
}
