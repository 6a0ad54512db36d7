package outbound

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rewardloop/rewardloop/internal/redact"
)

// keyBytes bounds a key file; the largest keys are JSON web tokens of some 2 KB.
const keyBytes = 8 << 10

// keysKept is how many rotated keys are still cut out of texts.
const keysKept = 8

// secrets holds an upstream's key and knows everything that must not be said.
type secrets struct {
	file  string // "": no key.
	words redact.Words

	mu   sync.Mutex
	keys []string // The key, first, and some of those before it.
}

func newSecrets(file string, urls ...*url.URL) (*secrets, error) {
	s := &secrets{file: file}
	for _, u := range urls {
		if u != nil {
			s.words.HideURL(u.String())
		}
	}
	if file == "" {
		return s, nil
	}
	key, err := readKey(file)
	if err != nil {
		return nil, err
	}
	s.put(key)
	return s, nil
}

// put makes key the one that is sent. Answers that are under way may quote the last
// ones.
func (s *secrets) put(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 || s.keys[0] != key {
		s.keys = slices.Insert(s.keys, 0, key)
		s.keys = s.keys[:min(len(s.keys), keysKept)]
	}
}

// redact cuts every secret out of a text, a call's own besides.
func (s *secrets) redact(text string, own ...string) string {
	s.mu.Lock()
	own = slices.Concat(s.keys, own)
	s.mu.Unlock()
	return s.words.Text(text, own...)
}

// shortestValue is how long the value of a header must be to be taken for a secret where its
// name does not tell.
const shortestValue = 6

// secrets are the values of the call's headers, but for those of harmless ones.
func (c *Call) secrets() (all []string) {
	for name, values := range c.Header {
		for _, v := range values {
			if redact.Named(name) || len(v) >= shortestValue && !redact.Header(name) {
				all = append(all, v)
			}
		}
	}
	return all
}

// bearer returns the key, "" where there is none.
func (s *secrets) bearer() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return ""
	}
	return s.keys[0]
}

// renew is asked after an endpoint refused the key used. It reads the file again and
// reports whether there is another key now, which another call may have read before.
func (s *secrets) renew(used string) (bool, error) {
	if s.file == "" {
		return false, nil
	}
	if s.bearer() != used {
		return true, nil
	}
	key, err := readKey(s.file)
	if err != nil {
		return false, err
	}
	s.put(key)
	return key != used, nil
}

func readKey(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("key file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, keyBytes+1))
	if err != nil {
		return "", fmt.Errorf("key file: %w", err)
	}
	key := strings.TrimSpace(string(data))
	switch {
	case len(data) > keyBytes:
		return "", fmt.Errorf("key file %s is longer than %d bytes", file, keyBytes)
	case key == "":
		return "", fmt.Errorf("key file %s is empty", file)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("key file %s contains more than one word of printable ASCII", file)
	}
	return key, nil
}
