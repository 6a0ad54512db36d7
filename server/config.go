package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
)

// Config bounds a Server. The zero value of a field takes its default.
type Config struct {
	// Listen is the address for Start, as host:port. One that other machines can
	// reach needs TokenFile. Defaults to 127.0.0.1:8080.
	Listen string
	// TokenFile holds the token that clients send as "Authorization: Bearer", or up to 64 in
	// lines of name:token. New reads it, and requests do again, every two seconds at most,
	// when it has changed. Empty: no token.
	TokenFile string
	// TLSCert and TLSKey are PEM files; with them the server speaks TLS 1.2 and 1.3
	// only. Empty: plain HTTP.
	TLSCert, TLSKey string
	// ClientCA is a PEM file; with it only clients whose certificate one of its CAs
	// has signed are let in.
	ClientCA string
	// Origins are hosts beside the request's own whose web pages may open a stream.
	Origins []string

	// PickleBytes and JSONBytes bound one request body. Default to 64 MiB and 256 MiB.
	PickleBytes, JSONBytes int64
	// BodiesBytes bounds the memory of all bodies that are being read or wait to be
	// submitted; a JSON body counts twice, for its decoded pictures. A request
	// beyond it is answered 503. Defaults to 1 GiB.
	BodiesBytes int64
	// BatchSamples bounds the samples of one request. Defaults to 1,024.
	BatchSamples int
	// DiscardBytes and DiscardTimeout bound how much of a refused body is read and
	// dropped so that its connection stays usable. Default to 256 MiB and 10 s.
	DiscardBytes   int64
	DiscardTimeout time.Duration

	// HeaderTimeout bounds the reading of a request's header, BodyTimeout that of
	// its body, WriteTimeout the writing of an answer, IdleTimeout the pause between
	// requests. Default to 10 s, 60 s, 30 s and 120 s.
	HeaderTimeout, BodyTimeout, WriteTimeout, IdleTimeout time.Duration
	// SampleTimeout is the time from a request's arrival to the answer for its
	// samples. Defaults to 110 s, because the pickle clients give up at 120 s.
	SampleTimeout time.Duration
	// ComputeTimeout is the same for /compute, whose clients give up at 60 s. Defaults
	// to 55 s.
	ComputeTimeout time.Duration
	// MaxSampleTimeout bounds what a JSON request may ask for with deadline_ms.
	// Defaults to 900 s.
	MaxSampleTimeout time.Duration

	// RouterTimeout bounds a request that is forwarded to an engine, with all its
	// attempts, and RouterBytes the engine's answer. Default to 300 s and 16 MiB.
	RouterTimeout time.Duration
	RouterBytes   int64

	// RememberFor is how long the answer to a body is kept for an identical one; at
	// most RememberAnswers of them and RememberBytes in all. Default to 60 s, 1,024
	// and 16 MiB. Answers that another try may change are not kept.
	RememberFor     time.Duration
	RememberAnswers int
	RememberBytes   int64

	// MaxConns bounds the connections that speak HTTP, MaxStreams the websockets. A
	// connection beyond is closed, a stream is answered 503. Default to 4,096 and 1,024.
	MaxConns, MaxStreams int
	// Stream bounds each websocket.
	Stream wsconn.Config

	// SelfTestEvery is how long a result of the self-test counts, SelfTestTimeout
	// how long one may take. Default to 10 s and 30 s.
	SelfTestEvery, SelfTestTimeout time.Duration
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:8080"
	}
	for _, d := range []struct {
		field *int64
		value int64
	}{
		{&c.PickleBytes, 64 << 20},
		{&c.JSONBytes, 256 << 20},
		{&c.BodiesBytes, 1 << 30},
		{&c.DiscardBytes, 256 << 20},
		{&c.RememberBytes, 16 << 20},
		{&c.RouterBytes, 16 << 20},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *int
		value int
	}{
		{&c.BatchSamples, 1024}, {&c.RememberAnswers, 1024}, {&c.MaxConns, 4096}, {&c.MaxStreams, 1024},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.DiscardTimeout, 10 * time.Second},
		{&c.HeaderTimeout, 10 * time.Second},
		{&c.BodyTimeout, 60 * time.Second},
		{&c.WriteTimeout, 30 * time.Second},
		{&c.IdleTimeout, 120 * time.Second},
		{&c.SampleTimeout, 110 * time.Second},
		{&c.ComputeTimeout, 55 * time.Second},
		{&c.MaxSampleTimeout, 900 * time.Second},
		{&c.RouterTimeout, 300 * time.Second},
		{&c.RememberFor, 60 * time.Second},
		{&c.SelfTestEvery, 10 * time.Second},
		{&c.SelfTestTimeout, 30 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	c.Stream = c.Stream.WithDefaults()
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if public, err := isPublic(c.Listen); err != nil {
		fault("listen: %w", err)
	} else if public && c.TokenFile == "" {
		errs = append(errs, publicWithoutToken(c.Listen))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		fault("tls_cert and tls_key go together: have %q and %q", c.TLSCert, c.TLSKey)
	}
	if c.ClientCA != "" && c.TLSCert == "" {
		fault("client_ca needs tls_cert and tls_key: without TLS nobody shows a certificate")
	}
	for name, n := range map[string]int64{
		"pickle_bytes": c.PickleBytes, "json_bytes": c.JSONBytes, "bodies_bytes": c.BodiesBytes,
		"discard_bytes": c.DiscardBytes, "remember_bytes": c.RememberBytes, "router_bytes": c.RouterBytes,
		"batch_samples": int64(c.BatchSamples), "remember_answers": int64(c.RememberAnswers),
		"max_conns": int64(c.MaxConns), "max_streams": int64(c.MaxStreams),
	} {
		if n < 1 {
			fault("%s is %d, want 1 or more", name, n)
		}
	}
	if c.BodiesBytes < max(c.PickleBytes, 2*c.JSONBytes) {
		fault("bodies_bytes of %d cannot hold one body: want at least pickle_bytes and twice json_bytes, %d", c.BodiesBytes, max(c.PickleBytes, 2*c.JSONBytes))
	}
	for name, d := range map[string]time.Duration{
		"discard_timeout": c.DiscardTimeout, "header_timeout": c.HeaderTimeout, "body_timeout": c.BodyTimeout,
		"write_timeout": c.WriteTimeout, "idle_timeout": c.IdleTimeout, "sample_timeout": c.SampleTimeout,
		"compute_timeout": c.ComputeTimeout, "router_timeout": c.RouterTimeout,
		"remember_for": c.RememberFor, "self_test_every": c.SelfTestEvery, "self_test_timeout": c.SelfTestTimeout,
	} {
		if d <= 0 {
			fault("%s is %s, want more than 0", name, d)
		}
	}
	if c.MaxSampleTimeout < c.SampleTimeout {
		fault("max_sample_timeout of %s is below sample_timeout of %s", c.MaxSampleTimeout, c.SampleTimeout)
	}
	if err := c.Stream.Validate(); err != nil {
		fault("stream: %w", err)
	}
	return errors.Join(errs...)
}

// ErrPublic means that other machines could reach a server without a token.
var ErrPublic = errors.New("a public address needs a token")

func publicWithoutToken(addr string) error {
	return fmt.Errorf("%w: other machines can reach %s: set token_file, or listen on 127.0.0.1", ErrPublic, addr)
}

// isPublic reports whether other machines can reach a listen address. A host name
// other than localhost counts as public: what it resolves to may change.
func isPublic(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, fmt.Errorf("want host:port, such as 127.0.0.1:8080: %w", err)
	}
	if host == "localhost" {
		return false, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.Unmap().IsLoopback(), nil
	}
	return true, nil
}
