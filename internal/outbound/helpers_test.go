package outbound_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

// tripFunc stands for the network in a synctest bubble.
type tripFunc func(*http.Request) (*http.Response, error)

func (f tripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reply is an answer with headers given as "Name: value".
func reply(status int, body string, headers ...string) *http.Response {
	h := http.Header{}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		h.Set(name, value)
	}
	return &http.Response{
		StatusCode: status, Header: h, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

// fake is an upstream whose network is trip.
func fake(t *testing.T, cfg outbound.UpstreamConfig, trip tripFunc) *outbound.Upstream {
	t.Helper()
	if cfg.URLs == nil {
		cfg.URLs = []string{"http://a"}
	}
	g, err := outbound.NewTestTransport(trip).Upstream(cfg)
	require.NoError(t, err)
	return g
}

// served is an upstream of one real server, with pauses too short to be noticed.
func served(t *testing.T, cfg outbound.UpstreamConfig, h http.HandlerFunc) *outbound.Upstream {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	cfg.URLs = append(cfg.URLs, srv.URL)
	return open(t, outbound.Policy{}, cfg)
}

func open(t *testing.T, p outbound.Policy, cfg outbound.UpstreamConfig) *outbound.Upstream {
	t.Helper()
	tr, err := outbound.NewTransport(p)
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	if cfg.BackoffMin == 0 {
		cfg.BackoffMin, cfg.BackoffMax = time.Millisecond, time.Millisecond
	}
	g, err := tr.Upstream(cfg)
	require.NoError(t, err)
	return g
}

func ask(t *testing.T, g *outbound.Upstream) (*outbound.Answer, error) {
	t.Helper()
	return g.Do(t.Context(), &outbound.Call{Body: []byte("question")})
}

// in is a context of the test that ends after d.
func in(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// counter counts, from any goroutine.
type counter struct {
	mu sync.Mutex
	n  int
}

// next counts one more and returns the number.
func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// names is a resolver that answers every question for an address with those that it
// is given, a further one for each question of type A; the last one stays.
func names(t *testing.T, ips ...string) *net.Resolver {
	t.Helper()
	var asked counter
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			answerNames(server, func() net.IP { return net.ParseIP(ips[min(asked.next(), len(ips))-1]) })
		}()
		return client, nil
	}}
}

// answerNames speaks DNS (RFC 1035) over a stream: of a question it repeats all but
// the additional section, and adds one answer where the type fits the address.
func answerNames(c net.Conn, next func() net.IP) {
	for {
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		q := make([]byte, int(length[0])<<8|int(length[1]))
		if _, err := io.ReadFull(c, q); err != nil {
			return
		}
		end := 12
		for q[end] != 0 {
			end += 1 + int(q[end])
		}
		end += 5 // The root label, type and class.
		msg := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
		if q[end-3] == 1 { // A.
			if ip := next().To4(); ip != nil {
				msg[7] = 1
				msg = append(msg, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				msg = append(msg, ip...)
			}
		}
		if _, err := c.Write(append([]byte{byte(len(msg) >> 8), byte(len(msg))}, msg...)); err != nil {
			return
		}
	}
}

// quiet is the log of a server that meets what a test does to it.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
