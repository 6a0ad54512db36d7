package outbound

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Finding is the result of checking an endpoint of an upstream.
type Finding struct {
	Upstream string
	// Endpoint is the URL of the endpoint, without secrets.
	Endpoint string
	// Err is the reason why calls to the endpoint would fail; nil: the endpoint answers.
	Err error
	// Held means that no request was sent, because the endpoint is held (Upstream.Hold).
	Held bool
	// Unreached means that no connection was possible.
	Unreached bool
}

// Look checks the endpoints of all upstreams, or with downOnly those of the upstreams that are
// down, and returns the findings sorted by upstream. Look takes at most 2 s.
func (t *Transport) Look(ctx context.Context, downOnly bool) []Finding {
	var mu sync.Mutex
	var all []Finding
	var looks sync.WaitGroup
	for _, g := range t.Upstreams() {
		if downOnly && !g.Dependency().Down {
			continue
		}
		looks.Go(func() { // ends within healthTime
			found := g.Look(ctx)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
		})
	}
	looks.Wait()
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.Upstream, b.Upstream) })
	return all
}

// Look checks every endpoint: with a request to UpstreamConfig.HealthPath or, if there is none,
// only by connecting. An endpoint that refuses connections is then out of service, and one that
// accepts them again is in service, as after a call. All other problems are only reported and left
// to calls: an engine that is still loading its model is not down.
func (g *Upstream) Look(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	found := make([]Finding, len(g.endpoints))
	var looks sync.WaitGroup
	for i, e := range g.endpoints {
		looks.Go(func() { found[i] = g.lookAt(ctx, e) }) // ends with ctx
	}
	looks.Wait()
	return found
}

func (g *Upstream) lookAt(ctx context.Context, e *endpoint) Finding {
	found := Finding{Upstream: g.cfg.Name, Endpoint: e.name}
	if found.Held = g.held(e); found.Held {
		return found
	}
	if g.cfg.HealthPath == "" {
		if err := g.connect(ctx, e.url); err != nil {
			found.Err, found.Unreached = fmt.Errorf("%s: %w", e.name, err), true
			g.unreached(e, found.Err.Error())
			return found
		}
		g.reached(e)
		return found
	}
	question := try{g: g, call: &Call{Method: http.MethodGet, Path: g.cfg.HealthPath, MaxBytes: healthBytes}}
	answer, f := question.send(ctx, e)
	switch {
	case f == nil && !isObject(answer.Body):
		found.Err = fmt.Errorf("%s%s did not answer with a JSON object: %.80q; check that it is the address of an engine with OpenAI's protocol",
			e.name, g.cfg.HealthPath, g.secrets.redact(string(answer.Body)))
	case f == nil, f.status != 0 && f.status < 500: // it answers, if not that
		g.reached(e)
	case ctx.Err() != nil:
		found.Err = fmt.Errorf("%s%s did not answer within %v", e.name, g.cfg.HealthPath, healthTime)
	default:
		text := g.secrets.redact(f.text)
		found.Err = shownError{text, f.cause}
		if found.Unreached = f.status == 0 && f.class == rewards.Unavailable; found.Unreached {
			g.unreached(e, text)
		}
	}
	return found
}

// reach connects to where a URL's requests go, and closes the connection. What a proxy reaches
// is not known.
func (t *Transport) reach(ctx context.Context, to *url.URL) error {
	if via, _ := t.proxyFor(&http.Request{URL: to}); via != nil {
		to = via
	}
	port := cmp.Or(to.Port(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	c, err := t.dial.DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return err
	}
	return c.Close()
}

// shownError is an error whose text has no secrets.
type shownError struct {
	text  string
	cause error
}

// Error implements error.
func (e shownError) Error() string { return e.text }

// Unwrap returns what lies behind it.
func (e shownError) Unwrap() error { return e.cause }

// isObject reports whether a body is a JSON object.
func isObject(body []byte) bool {
	body = bytes.TrimSpace(body)
	return bytes.HasPrefix(body, []byte("{")) && json.Valid(body)
}

// reached puts an endpoint back into service that nobody could connect to.
func (g *Upstream) reached(e *endpoint) {
	g.mu.Lock()
	back := e.unreached && e.breaker.state == Open
	g.mu.Unlock()
	if back {
		g.recovered(e)
	}
}

// unreached takes an endpoint out of service to which nobody can connect.
func (g *Upstream) unreached(e *endpoint, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.last = strings.Clone(why)
	e.failures[rewards.Unavailable]++
	if e.breaker.state != Closed {
		return
	}
	e.unreached = true
	e.breaker.open(time.Now())
	g.announce()
	g.urge()
}
