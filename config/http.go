package config

import (
	"encoding/json"
	"net/url"
	"strings"
)

// HTTPScorer is the scorer in the registry that asks another server.
const HTTPScorer = "http"

// isHTTP reports whether a path is the address of another server.
func isHTTP(p string) bool {
	scheme, _, ok := strings.Cut(p, "://")
	return ok && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// httpPath reads the address of another server. How it is asked, its options say.
func (r *reader) httpPath(t *ComponentConfig, pathValue, nameValue value) {
	t.Scorer = HTTPScorer
	u, err := url.Parse(t.Path)
	switch {
	case err != nil || u.Host == "":
		r.fault(pathValue, "want an address such as http://127.0.0.1:18082, got %q", shorten(t.Path))
		return
	case u.Fragment != "":
		r.fault(pathValue, "an address has no part after #")
	}
	t.shownPath = shownOptions{r: r}.text("path", pathValue.node, t.Path)
	if !nameValue.null() {
		r.fault(nameValue, "%s holds no function; leave name out", t.shownPath)
	}
}

// httpOptions are the options of a component that asks another server, its address among them.
func (t ComponentConfig) httpOptions() json.RawMessage {
	return t.withOption("url", t.Path)
}
