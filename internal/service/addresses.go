package service

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of addresses that have no natural one.
const (
	maxAttempts = 20
	maxURLs     = 256
)

// Upstreams provides the endpoints of URLs. Upstream must not open connections. Scorers with the
// same URLs and key should get the same Doer, so that its limits apply to all of them together.
type Upstreams interface {
	Upstream(urls []string, o UpstreamOptions) (outbound.Doer, error)
}

// UpstreamOptions are the settings of a scorer for its endpoints. A zero field means the default of
// the upstream.
type UpstreamOptions struct {
	// KeyFile is the file with the bearer token; empty: no token is sent.
	KeyFile string
	// Concurrency is the maximum number of requests in flight, RPM the maximum number of requests
	// per minute.
	Concurrency int
	RPM         float64
	// Timeout is the timeout of one request, Attempts the maximum number of requests for one call.
	Timeout  time.Duration
	Attempts int
	// IdleTimeout is the time after which an unused connection is closed.
	IdleTimeout time.Duration
}

// Addresses contains the URLs of a scorer's endpoints, and the settings for requests to them.
type Addresses struct {
	URL            string            `json:"url"`
	URLs           []string          `json:"urls"`
	KeyFile        string            `json:"key_file"`
	Headers        map[string]string `json:"headers"`
	Attempts       int               `json:"attempts"`
	AttemptTimeout Duration          `json:"attempt_timeout"`
	Concurrency    int               `json:"concurrency"`
	RPM            float64           `json:"rpm"`
	IdleTimeout    Duration          `json:"idle_timeout"`
}

// AddressOptions describes the options of Addresses.
func AddressOptions() []rewards.Option {
	return []rewards.Option{
		{Name: "url", Type: "string", Default: "required", Doc: "URL of the service"},
		{Name: "urls", Type: "list", Default: "none", Doc: "URLs of further replicas of the service; each request goes to one replica"},
		{Name: "key_file", Type: "string", Default: "none", Doc: "file with the token that is sent as Authorization: Bearer"},
		{Name: "headers", Type: "map", Default: "none", Doc: "further headers of every request; put secrets into key_file instead"},
		{Name: "attempts", Type: "int", Default: "the upstream's", Doc: "maximum number of requests for one call, retries included"},
		{Name: "attempt_timeout", Type: "duration", Default: "the upstream's", Doc: "timeout of one request"},
		{Name: "concurrency", Type: "int", Default: "the upstream's", Doc: "maximum number of requests in flight to these URLs, over all rewards that use them"},
		{Name: "idle_timeout", Type: "duration", Default: "4s", Doc: "time until an unused connection is closed; must be shorter than the service's own limit"},
		{Name: "rpm", Type: "number", Default: "no limit", Doc: "maximum number of requests per minute to these URLs, over all rewards that use them"},
	}
}

// All returns all URLs, url and urls together.
func (a *Addresses) All() []string {
	if a.URL == "" {
		return a.URLs
	}
	return append([]string{a.URL}, a.URLs...)
}

// Validate adds everything that is wrong with the addresses to f.
func (a *Addresses) Validate(f *Faults) {
	f.Add(a.URL == "" && len(a.URLs) == 0, "url", "is missing")
	f.Add(len(a.URLs) > maxURLs, "urls", "are %d, at most %d", len(a.URLs), maxURLs)
	seen := map[string]bool{}
	for i, u := range a.All() {
		name := fmt.Sprintf("urls[%d]", i-min(len(a.URL), 1))
		if a.URL != "" && i == 0 {
			name = "url"
		}
		f.Check(name, checkURL(u))
		parsed, err := url.Parse(u)
		f.Add(err == nil && parsed.User != nil && a.KeyFile != "", name, "has a user in addition to key_file; keep one of them")
		f.Add(seen[u], name, "is a duplicate")
		seen[u] = true
	}
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		f.Check("headers", CheckHeader(name, a.Headers[name]))
	}
	f.Add(a.Attempts < 0 || a.Attempts > maxAttempts, "attempts", "is %d, want 1 to %d", a.Attempts, maxAttempts)
	f.Add(a.AttemptTimeout < 0 || time.Duration(a.AttemptTimeout) > rewards.MaxComponentTimeout, "attempt_timeout", "is %v, want up to %v", time.Duration(a.AttemptTimeout), rewards.MaxComponentTimeout)
	f.Add(a.IdleTimeout < 0 || time.Duration(a.IdleTimeout) > time.Hour, "idle_timeout", "is %v, want up to 1h", time.Duration(a.IdleTimeout))
	f.Add(a.Concurrency < 0 || a.Concurrency > 1<<16, "concurrency", "is %d, want 1 to %d", a.Concurrency, 1<<16)
	f.Add(!Finite(a.RPM) || a.RPM < 0, "rpm", "is %v, want a positive number", a.RPM)
}

// checkURL says what is wrong with an address. It does not repeat it: it may hold
// a secret.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("names no host")
	case u.Fragment != "":
		return errors.New("has a part after #, which is never sent; leave the part out")
	}
	return nil
}

// CheckHeader returns an error, without the value, if a header is invalid or is set by the request
// itself.
func CheckHeader(name, value string) error {
	switch canonical := http.CanonicalHeaderKey(name); {
	case canonical == "Authorization":
		return errors.New("Authorization is made from key_file") //nolint:staticcheck // the header's own name
	case slices.Contains([]string{"Content-Type", "Content-Length", "Content-Encoding", "Host", "Connection", "Transfer-Encoding"}, canonical):
		return fmt.Errorf("%s is set by the request itself", canonical)
	}
	return outbound.CheckHeader(name, value)
}

var errNoUpstreams = errors.New("no HTTP client: the program was built without upstreams")

// Upstream returns the Doer for the endpoints. path is the path at which the service listens; the
// URLs may contain it or not. If path is empty, the URLs are used unchanged.
func (a *Addresses) Upstream(upstreams Upstreams, path string) (outbound.Doer, error) {
	if upstreams == nil {
		return nil, errNoUpstreams
	}
	urls := make([]string, len(a.All()))
	for i, u := range a.All() {
		urls[i] = withoutPath(u, path)
	}
	doer, err := upstreams.Upstream(urls, UpstreamOptions{
		KeyFile: a.KeyFile, Concurrency: a.Concurrency, RPM: a.RPM,
		Timeout: time.Duration(a.AttemptTimeout), Attempts: a.Attempts, IdleTimeout: time.Duration(a.IdleTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	return doer, nil
}

// withoutPath takes the path at which the service listens off an address: it may be
// written with it or without.
func withoutPath(address, path string) string {
	u, err := url.Parse(address)
	if err != nil || path == "" {
		return address
	}
	u.RawPath = ""
	u.Path = strings.TrimRight(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), path), "/")
	return u.String()
}

// RequestHeader returns the header of every request. An empty contentType omits the Content-Type.
func (a *Addresses) RequestHeader(contentType string) http.Header {
	h := http.Header{}
	for name, value := range a.Headers {
		h.Set(name, value)
	}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return h
}
