package outbound

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// NewTestTransport sends through trip instead of the network.
func NewTestTransport(trip http.RoundTripper) *Transport {
	t, err := NewTransport(Policy{})
	if err != nil {
		panic(err)
	}
	t.newTrip = func(UpstreamConfig) http.RoundTripper { return trip }
	return t
}

// SetResolver makes names resolve by r.
func SetResolver(t *Transport, r *net.Resolver) { t.dial.resolver = r }

// SetDial makes connections by dial.
func SetDial(t *Transport, dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	t.dial.connect = dial
}

// CheckAddress says whether host, resolved to ip, may be connected to.
func CheckAddress(allow []string, host, ip string) error {
	a, err := newAddresses(allow)
	if err != nil {
		return err
	}
	return a.check(host, netip.MustParseAddr(ip))
}

// ParseRetryAfter is parseRetryAfter.
func ParseRetryAfter(h http.Header, now time.Time, most time.Duration) (wait time.Duration, asked bool) {
	r := parseRetryAfter(h, now, most)
	return r.wait, r.asked
}

// Backoff is backoff.
func Backoff(n int, base, longest time.Duration) time.Duration { return backoff(n, base, longest) }
