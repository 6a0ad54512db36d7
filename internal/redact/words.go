package redact

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// maxWords bounds what one Words knows; a configuration of 1 MiB has fewer secrets.
const maxWords = 4096

// Words contains known secrets, which are removed from texts in every form in which they may be
// quoted. A nil Words contains none. Words is safe for concurrent use.
type Words struct {
	mu     sync.Mutex
	hidden []string
	cut    []string // Forms of hidden, the longest first; never written again. Nil: to be made.
}

// Hide adds secrets. Empty secrets are ignored.
func (w *Words) Hide(secrets ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range secrets {
		if s != "" && !slices.Contains(w.hidden, s) && len(w.hidden) < maxWords {
			w.hidden = append(w.hidden, s)
		}
	}
	w.cut = nil
}

// HideURL adds the secrets of a URL: the password, or the user if there is no password (because a
// token is often written as the user), the values of a query whose name or form indicates a secret,
// and the segments of the path that URL removes.
func (w *Words) HideURL(s string) {
	u, err := url.Parse(s)
	if err != nil {
		if _, rest, ok := strings.Cut(s, "://"); ok {
			if i := strings.LastIndexByte(rest, '@'); i > 0 {
				user, password, _ := strings.Cut(rest[:i], ":")
				w.Hide(rest[:i], password, user)
			}
		}
		return
	}
	if u.User != nil {
		user := u.User.Username()
		password, has := u.User.Password()
		if !has {
			w.Hide(user)
		}
		w.Hide(password, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	for name, values := range u.Query() {
		for _, v := range values {
			if Named(name) || randomLooking(v) {
				w.Hide(v)
			}
		}
	}
	shown := strings.Split(cleanPath(u.Host, u.EscapedPath()), "/")
	for i, segment := range strings.Split(u.EscapedPath(), "/") {
		if shown[i] != segment && len(segment) >= runLength {
			w.Hide(segment)
		}
	}
}

// forms are the ways in which secrets may be quoted, the longest first.
func forms(secrets []string) (words []string) {
	seen := map[string]bool{"": true}
	for _, w := range secrets {
		quoted := strings.Trim(fmt.Sprintf("%q", w), `"`)
		for _, form := range []string{w, url.QueryEscape(w), url.PathEscape(w), quoted} {
			if !seen[form] {
				seen[form] = true
				words = append(words, form)
			}
		}
	}
	slices.SortStableFunc(words, func(a, b string) int { return len(b) - len(a) })
	return words
}

// Text replaces all secrets, including own, in a text by Hidden, and cleans the rest like the
// function Text.
func (w *Words) Text(text string, own ...string) string {
	for _, s := range w.forms(own) {
		text = strings.ReplaceAll(text, s, Hidden)
	}
	return Text(text)
}

// forms are what Text cuts.
func (w *Words) forms(own []string) []string {
	if w == nil {
		return forms(own)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(own) > 0 {
		return forms(slices.Concat(w.hidden, own))
	}
	if w.cut == nil {
		w.cut = forms(w.hidden)
	}
	return w.cut
}

// Attr returns an attribute of a log record without secrets, for slog.HandlerOptions.
func (w *Words) Attr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if Named(a.Key) {
			return slog.String(a.Key, Hidden)
		}
		a.Value = slog.StringValue(w.Text(a.Value.String()))
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(w.Text(fmt.Sprint(v))) // which outlives an error that panics
		case []string:
			clean := make([]string, len(v))
			for i, s := range v {
				clean[i] = w.Text(s)
			}
			a.Value = slog.AnyValue(clean)
		case slog.Source, *slog.Source, slog.Level, nil:
		default:
			if text := fmt.Sprintf("%+v", v); w.Text(text) != text {
				a.Value = slog.StringValue(w.Text(text))
			}
		}
	}
	return a
}
