package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxTokens bounds the tokens of a file: each request is compared with all of them, and
	// each name is the label of a metric.
	maxTokens = 64
	// tokenFileBytes bounds the file.
	tokenFileBytes = 64 << 10
	// shortToken is the length below which a token can be guessed: 16 hex digits are 64 bits.
	shortToken = 16
	// lookEvery is how often requests look whether the file has changed.
	lookEvery = 2 * time.Second
	// defaultClient is the name of a token that stands alone in its file.
	defaultClient = "default"
	// clientKey is where a request's context has the name of its token.
	clientKey = "client"
)

// tokenName is what a token may be called. It is a label of metrics.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// token is one that clients may show. Only its digest is kept, which also makes the
// comparison independent of its length.
type token struct {
	name   string
	digest [sha256.Size]byte
	// line is the digest of name:token, which clients send that are given the server's file.
	line [sha256.Size]byte
}

// parseTokens reads a token file: one token alone, or lines of name:token. Empty lines and
// those that begin with # are left out. Warnings say which tokens can be guessed.
func parseTokens(text []byte) (list []token, warnings []string, err error) {
	var errs []error
	fault := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...)))
	}
	names, digests := map[string]int{}, map[[sha256.Size]byte]int{}
	bare, n := 0, 0
	for line := range bytes.Lines(text) {
		n++
		word := string(bytes.TrimSpace(line))
		if word == "" || word[0] == '#' {
			continue
		}
		name, secret, named := strings.Cut(word, ":")
		if !named {
			name, secret, bare = defaultClient, word, n
		}
		digest := sha256.Sum256([]byte(secret))
		switch {
		case !tokenName.MatchString(name):
			fault(n, "want name:token, the name in up to 32 letters, digits, dots, dashes and underscores")
		case strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }):
			fault(n, "a token is one word of printable ASCII")
		case secret == "":
			fault(n, "%s has no token after the colon", name)
		case names[name] > 0:
			fault(n, "the name %s is on line %d already", name, names[name])
		case digests[digest] > 0:
			fault(n, "the token is on line %d already", digests[digest])
		}
		if len(secret) < shortToken {
			warnings = append(warnings, fmt.Sprintf("line %d: the token of %s has %d characters and can be guessed; use 16 or more, such as those of openssl rand -hex 16", n, name, len(secret)))
		}
		names[name], digests[digest] = n, n
		list = append(list, token{name, digest, sha256.Sum256([]byte(word))})
	}
	switch {
	case len(list) == 0 && len(errs) == 0:
		errs = append(errs, errors.New("the file has no token"))
	case len(list) > maxTokens:
		errs = append(errs, fmt.Errorf("%d tokens, want at most %d", len(list), maxTokens))
	case bare > 0 && len(list) > 1:
		fault(bare, "a token without a name must be the only token in its file; write name:token")
	}
	return list, warnings, errors.Join(errs...)
}

// tokens are what clients must show; nil: nothing. A file that changes is read again.
type tokens struct {
	file    string
	log     *slog.Logger
	current atomic.Pointer[[]token]

	// mu is held by the one request that looks at the file.
	mu     sync.Mutex
	looked time.Time
	seen   os.FileInfo // as it was last read; nil: it was not there
}

// readTokens reads the token file at path; "" is none.
func readTokens(path string, log *slog.Logger) (*tokens, error) {
	if path == "" {
		return nil, nil
	}
	t := &tokens{file: path, log: log, looked: time.Now()}
	list, err := t.read()
	if err != nil {
		return nil, err
	}
	t.current.Store(&list)
	return t, nil
}

// CheckTokenFile returns the names of the tokens of a token file, and warnings about tokens that
// can be guessed. The error is that of New for this file.
func CheckTokenFile(path string) (names, warnings []string, err error) {
	t := &tokens{file: path}
	text, err := t.content()
	if err != nil {
		return nil, nil, err
	}
	list, warnings, err := parseTokens(text)
	if err != nil {
		return nil, nil, fmt.Errorf("token_file %s: %w", path, err)
	}
	for _, one := range list {
		names = append(names, one.name)
	}
	return names, warnings, nil
}

func (t *tokens) read() ([]token, error) {
	text, err := t.content()
	if err != nil {
		return nil, err
	}
	list, warnings, err := parseTokens(text)
	for _, w := range warnings {
		t.log.Warn("a token of the token file is accepted, but can be guessed; use 16 characters or more", "file", t.file, "problem", w)
	}
	if err != nil {
		return nil, fmt.Errorf("token_file %s: %w", t.file, err)
	}
	return list, nil
}

// content reads the file, and notes its state before.
func (t *tokens) content() ([]byte, error) {
	f, err := os.Open(t.file)
	if err != nil {
		t.seen = nil
		return nil, fmt.Errorf("token_file: %w", err)
	}
	defer f.Close()
	if t.seen, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("token_file: %w", err)
	}
	if !t.seen.Mode().IsRegular() {
		return nil, fmt.Errorf("token_file %s is not a regular file", t.file)
	}
	text, err := io.ReadAll(io.LimitReader(f, tokenFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("token_file: %w", err)
	}
	if len(text) > tokenFileBytes {
		return nil, fmt.Errorf("token_file %s has more than %d bytes", t.file, tokenFileBytes)
	}
	return text, nil
}

// look reads the file again if it has changed. What cannot be used is said once, and the
// tokens stay as they were.
func (t *tokens) look(now time.Time) {
	if !t.mu.TryLock() {
		return // another request does it
	}
	defer t.mu.Unlock()
	if now.Sub(t.looked) < lookEvery {
		return
	}
	t.looked = now
	info, err := os.Stat(t.file)
	switch {
	case err != nil && t.seen == nil:
		return // it was said
	case err == nil && t.seen != nil && info.ModTime().Equal(t.seen.ModTime()) && info.Size() == t.seen.Size() && os.SameFile(info, t.seen):
		return
	}
	list, err := t.read()
	if err != nil {
		t.log.Error("the token file changed and cannot be used; the server still accepts the previous tokens", "error", err)
		return
	}
	t.current.Store(&list)
	t.log.Info("the token file was reloaded", "file", t.file, "tokens", len(list))
}

// presented reports whether a request may come in, and the name of the token that it shows:
// as a bearer token, or, where basic allows it, as the password of HTTP's basic login.
func (t *tokens) presented(r *http.Request, basic bool) (name string, ok bool) {
	if t == nil {
		return "", true
	}
	secret, ok := shownSecret(r, basic)
	if !ok {
		return "", false
	}
	t.look(time.Now())
	return match(*t.current.Load(), secret)
}

// match compares with every token, in a time that says nothing of which one it is.
func match(list []token, secret string) (name string, ok bool) {
	digest := sha256.Sum256([]byte(secret))
	at := -1
	for i := range list {
		same := subtle.ConstantTimeCompare(digest[:], list[i].digest[:]) | subtle.ConstantTimeCompare(digest[:], list[i].line[:])
		at = subtle.ConstantTimeSelect(same, i, at)
	}
	if at < 0 {
		return "", false
	}
	return list[at].name, true
}

// shownSecret is what a request shows as its token.
func shownSecret(r *http.Request, basic bool) (secret string, ok bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, rest, ok := strings.Cut(values[0], " ")
	if ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest), true
	}
	if _, password, ok := r.BasicAuth(); ok && basic {
		return password, true
	}
	return "", false
}
