package outbound

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// keyBytes bounds a key file; the largest keys are JSON web tokens of some 2 KB.
const keyBytes = 8 << 10

// keysKept is how many rotated keys are still cut out of texts.
const keysKept = 8

// hidden stands where a secret stood.
const hidden = "[secret]"

// secrets holds a group's key and knows everything that must not be said.
type secrets struct {
	file string // "": no key.

	mu    sync.Mutex
	fixed []string // What the configuration holds.
	keys  []string // The key, first, and some of those before it.
	words []string // What is cut out of texts, the longest first.
}

func newSecrets(file string, urls ...*url.URL) (*secrets, error) {
	s := &secrets{file: file}
	for _, u := range urls {
		s.hideURL(u)
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

// hideURL hides a password, a user without one (a token is often written so) and the
// values of a query whose names tell.
func (s *secrets) hideURL(u *url.URL) {
	if u == nil {
		return
	}
	if u.User != nil {
		user := u.User.Username()
		password, has := u.User.Password()
		if !has {
			s.hide(user)
		}
		s.hide(password, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	for name, values := range u.Query() {
		if sensitive(name) {
			s.hide(values...)
		}
	}
}

func (s *secrets) hide(words ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fixed = append(s.fixed, words...)
	s.list()
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
	s.list()
}

// list makes words anew. The caller holds mu.
func (s *secrets) list() { s.words = forms(slices.Concat(s.fixed, s.keys)) }

// forms are the ways in which secrets may be quoted, the longest first.
func forms(secrets []string) (words []string) {
	for _, w := range secrets {
		for _, form := range []string{w, url.QueryEscape(w), url.PathEscape(w)} {
			if form != "" && !slices.Contains(words, form) {
				words = append(words, form)
			}
		}
	}
	slices.SortStableFunc(words, func(a, b string) int { return len(b) - len(a) })
	return words
}

// redact cuts every secret out of a text, a call's own besides.
func (s *secrets) redact(text string, own ...string) string {
	s.mu.Lock()
	words := s.words // never written again
	if len(own) > 0 {
		words = forms(slices.Concat(s.fixed, s.keys, own))
	}
	s.mu.Unlock()
	for _, w := range words {
		text = strings.ReplaceAll(text, w, hidden)
	}
	return text
}

// secrets are the values of the call's headers whose names tell.
func (c *Call) secrets() (all []string) {
	for name, values := range c.Header {
		if sensitive(name) {
			all = append(all, values...)
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
		return "", fmt.Errorf("key file %s holds more than one word of printable ASCII", file)
	}
	return key, nil
}

// telling are the names of headers and of parts of a query whose values are secrets.
var telling = regexp.MustCompile(`(?i)auth|key|token|secret|pass|cred|cookie|signature|^sig$`)

func sensitive(name string) bool { return telling.MatchString(name) }
