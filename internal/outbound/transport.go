package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// headerBytes bounds the headers of an answer; net/http's own bound is 10 MB.
const headerBytes = 64 << 10

// Transport creates upstreams that share a policy, and keeps a list of them. Its methods may be
// called from any goroutine.
type Transport struct {
	dial    *dialer
	proxy   *url.URL // Nil: none.
	newTrip func(cfg UpstreamConfig) http.RoundTripper

	mu        sync.Mutex
	upstreams map[string]*Upstream // By identity.
	fleet     Fleet                // Nil: the process is alone.
	guest     bool                 // Of Join.
	keys      map[string]int       // How many upstreams have a key in the fleet.
	closed    bool
}

// NewTransport returns a Transport, or an error that lists everything that is wrong with the
// policy. It opens no connections.
func NewTransport(p Policy) (*Transport, error) {
	allowed, errAllow := newAddresses(p.Allow)
	proxy, errProxy := p.proxy()
	trust, errTLS := p.tls()
	if err := errors.Join(errAllow, errProxy, errTLS); err != nil {
		return nil, err
	}
	t := &Transport{dial: newDialer(allowed), proxy: proxy, upstreams: map[string]*Upstream{}, keys: map[string]int{}}
	t.newTrip = func(cfg UpstreamConfig) http.RoundTripper {
		var only1 http.Protocols
		only1.SetHTTP1(true)
		return &http.Transport{
			Proxy:                  t.proxyFor,
			DialContext:            t.dial.DialContext,
			TLSClientConfig:        trust.Clone(),
			TLSHandshakeTimeout:    dialTimeout,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    cfg.Concurrency, // net/http's default of 2 would dial for nearly every call.
			IdleConnTimeout:        cfg.IdleTimeout,
			MaxResponseHeaderBytes: headerBytes,
			Protocols:              &only1,
		}
	}
	return t, nil
}

// proxyFor sends everything to the proxy but what is loopback by its name, which
// would be the proxy's own machine there.
func (t *Transport) proxyFor(req *http.Request) (*url.URL, error) {
	if t.proxy == nil || namesLoopback(req.URL.Hostname()) {
		return nil, nil // no proxy, as net/http wants it said
	}
	return t.proxy, nil
}

// Upstream returns the upstream for the URLs and the key file of cfg. Upstream creates it, or
// returns the existing one if the rest of cfg is the same; a different cfg is an error. It reads
// the key file and opens no connections.
func (t *Transport) Upstream(cfg UpstreamConfig) (*Upstream, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := t.checkLiterals(cfg); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.New("outbound: the transport is closed")
	}
	id := cfg.identity()
	if g := t.upstreams[id]; g != nil {
		if err := g.cfg.differs(cfg); err != nil {
			return nil, err
		}
		g.users++
		return g, nil
	}
	g, err := newUpstream(cfg, t)
	if err != nil {
		return nil, err
	}
	g.users = 1
	t.upstreams[id] = g
	t.enlist(g)
	return g, nil
}

// checkLiterals refuses at configuration what every connection would.
func (t *Transport) checkLiterals(cfg UpstreamConfig) error {
	var errs []error
	for _, raw := range cfg.URLs {
		u, err := parseURL(raw)
		if err != nil {
			continue // Validate has said so.
		}
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
			if err := t.dial.allowed.check(u.Hostname(), ip); err != nil {
				errs = append(errs, fmt.Errorf("outbound: upstream %s: %w", cfg.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Upstreams returns all upstreams, sorted by name, for metrics.
func (t *Transport) Upstreams() []*Upstream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sorted()
}

// sorted is Upstreams. The caller holds mu.
func (t *Transport) sorted() []*Upstream {
	return slices.SortedFunc(maps.Values(t.upstreams), func(a, b *Upstream) int {
		return cmp.Or(strings.Compare(a.cfg.Name, b.cfg.Name), strings.Compare(a.id, b.id))
	})
}

// Close refuses new calls and closes idle connections. Calls in flight end normally, and their
// connections with them. Close may be called twice.
func (t *Transport) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, g := range t.upstreams {
		g.close()
	}
}

// parseURL parses a URL of an endpoint or proxy. Its errors never quote the URL,
// which may hold a password.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("not a URL; want http://host:port/path or https://…")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the URL must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("the URL names no host")
	case u.Fragment != "":
		return nil, errors.New("the URL has a fragment (#…), which is never sent")
	}
	if port := u.Port(); port != "" {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return nil, fmt.Errorf("port %s of the URL is not in 0 to 65535", port)
		}
	}
	return u, nil
}

// ownHeader reports whether a header belongs to the connection and not to the request
// (RFC 9110 §7.6.1), or is this package's own.
func ownHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate",
		"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect":
		return true
	}
	return false
}

// CheckHeader returns an error if net/http would refuse to send the header, by the grammar of RFC
// 9110 §5. The error does not contain the value.
func CheckHeader(name, value string) error {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if name == "" || strings.Trim(name, token) != "" {
		return fmt.Errorf("%.40q is not the name of a header", name)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return fmt.Errorf("the value of %s contains a control character", http.CanonicalHeaderKey(name))
	}
	return nil
}

// checkHeaders refuses the headers of a call. At the endpoint's door a refusal would look
// like a failure of the endpoint, which never saw it.
func checkHeaders(h http.Header) error {
	for name, values := range h {
		for _, v := range values {
			if err := CheckHeader(name, v); err != nil {
				return fmt.Errorf("headers of the call: %w", err)
			}
		}
	}
	return nil
}
