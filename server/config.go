package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/wsconn"
)

// Config bounds a Server. The zero value of a field takes its default. What Keys and SampleKeys
// list is set by the configuration file, and they say what it means; the rest is the program's.
type Config struct {
	// TokenFile is read by New, and by requests again, every two seconds at most, when it has
	// changed; it may hold 64 lines.
	TokenFile string
	// Listen is the address, as host:port, of HTTP and of websockets.
	Listen string
	// TLSCert and TLSKey are PEM files of the server's certificate; both or neither. ClientCA is
	// the PEM file of those who sign the clients'; empty: clients need none.
	TLSCert, TLSKey string
	ClientCA        string
	// JSONBytes bounds a JSON body, in bytes.
	JSONBytes int64
	// SampleTimeout is the time of a sample whose request names none, ComputeTimeout that of the
	// samples of POST /compute.
	SampleTimeout  time.Duration
	ComputeTimeout time.Duration

	// PickleBytes bounds a pickled body. Defaults to JSONBytes, at most 64 MiB: what the decoder
	// makes of it is bounded by the same figure.
	PickleBytes int64
	// BodiesBytes bounds the memory of all bodies that are being read or wait to be
	// submitted; a JSON body counts twice, for its decoded pictures. A request
	// beyond it is answered 503. Defaults to twice JSONBytes, at least 1 GiB.
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

// Keys implements keys.Described: the section server.
func (c *Config) Keys(k *keys.Set) {
	k.Text(&c.Listen, "listen", "127.0.0.1:8080", "Address and port on which the server listens. An address that other machines can reach needs token_file.")
	k.Text(&c.TokenFile, "token_file", "", "File with the token that clients send as Authorization: Bearer, or with several tokens in lines of name:token. The file is read again when it changes.")
	k.Text(&c.TLSCert, "tls_cert", "", "Certificate file (PEM) of the server. Requires tls_key. If set, the server accepts only TLS 1.2 and 1.3.")
	k.Text(&c.TLSKey, "tls_key", "", "Private key file (PEM) of tls_cert. Requires tls_cert.")
	k.Text(&c.ClientCA, "client_ca", "", "CA file (PEM). Clients must present a certificate that this CA has signed. Requires tls_cert.")
	k.Size(&c.JSONBytes, "body_bytes", 128<<20, "Maximum size of an HTTP request body. A larger body is refused. The maximum for a pickled body is 64 MiB.").Min(1 << 10)
	k.Check(func(r keys.Report) {
		if (c.TLSCert == "") != (c.TLSKey == "") {
			given, missing := "tls_cert", "tls_key"
			if c.TLSCert == "" {
				given, missing = missing, given
			}
			r.Fault(given, "needs %s too", r.Path(missing))
		}
		if c.ClientCA != "" && c.TLSCert == "" {
			r.Fault("client_ca", "needs %s and %s: client certificates are checked over TLS only", r.Path("tls_cert"), r.Path("tls_key"))
		}
		public, err := keys.Public(c.Listen)
		switch {
		case err != nil:
			r.Fault("listen", "%w", err)
		case public && c.TokenFile == "":
			r.Fault("listen", "%w", publicWithoutToken(c.Listen, r.Path("token_file")))
		case public && c.TLSCert == "":
			r.Note("listen", "without %s the token crosses the network unencrypted", r.Path("tls_cert"))
		}
	})
}

// SampleKeys adds the keys of the section loop that HTTP requests have for themselves.
func (c *Config) SampleKeys(k *keys.Set) {
	k.Duration(&c.SampleTimeout, "http_sample_timeout", 110*time.Second, "Time limit from the arrival of an HTTP scoring request to its answer, unless the request sets deadline_ms. Clients of flow_grpo stop waiting after 120 s.").Min(time.Second)
	k.Duration(&c.ComputeTimeout, "compute_timeout", 55*time.Second, "Time limit from the arrival of a POST /compute request to its answer. The client of Flow-Factory stops waiting after 60 s.").Min(time.Second)
	k.AtMost("http_sample_timeout", "max_sample_timeout")
	k.AtMost("compute_timeout", "max_sample_timeout")
}

// mostPickle bounds PickleBytes by default.
const mostPickle = 64 << 20

// limits are what the program alone sets.
func (c *Config) limits(k *keys.Set) {
	k.Size(&c.PickleBytes, "pickle_bytes", min(c.JSONBytes, mostPickle), "").Min(1)
	k.Size(&c.BodiesBytes, "bodies_bytes", max(1<<30, 2*c.JSONBytes), "").Min(1)
	k.Size(&c.DiscardBytes, "discard_bytes", 256<<20, "").Min(1)
	k.Size(&c.RememberBytes, "remember_bytes", 16<<20, "").Min(1)
	k.Size(&c.RouterBytes, "router_bytes", 16<<20, "").Min(1)
	k.Int(&c.BatchSamples, "batch_samples", 1024, "").Min(1)
	k.Int(&c.RememberAnswers, "remember_answers", 1024, "").Min(1)
	k.Int(&c.MaxConns, "max_conns", 4096, "").Min(1)
	k.Int(&c.MaxStreams, "max_streams", 1024, "").Min(1)
	k.Duration(&c.DiscardTimeout, "discard_timeout", 10*time.Second, "").Min(1)
	k.Duration(&c.HeaderTimeout, "header_timeout", 10*time.Second, "").Min(1)
	k.Duration(&c.BodyTimeout, "body_timeout", 60*time.Second, "").Min(1)
	k.Duration(&c.WriteTimeout, "write_timeout", 30*time.Second, "").Min(1)
	k.Duration(&c.IdleTimeout, "idle_timeout", 120*time.Second, "").Min(1)
	k.Duration(&c.MaxSampleTimeout, "max_sample_timeout", 900*time.Second, "").Min(1)
	k.Duration(&c.RouterTimeout, "router_timeout", 300*time.Second, "").Min(1)
	k.Duration(&c.RememberFor, "remember_for", 60*time.Second, "").Min(1)
	k.Duration(&c.SelfTestEvery, "self_test_every", 10*time.Second, "").Min(1)
	k.Duration(&c.SelfTestTimeout, "self_test_timeout", 30*time.Second, "").Min(1)
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	keys.Fill(&c, keys.Func(c.SampleKeys))
	keys.Fill(keys.Func(c.limits))
	c.Stream = c.Stream.WithDefaults()
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	errs := []error{keys.Validate("", &c, keys.Func(c.SampleKeys), keys.Func(c.limits))}
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.BodiesBytes < max(c.PickleBytes, 2*c.JSONBytes) {
		fault("bodies_bytes of %d cannot hold one body: want at least pickle_bytes and twice body_bytes, %d", c.BodiesBytes, max(c.PickleBytes, 2*c.JSONBytes))
	}
	if err := c.Stream.Validate(); err != nil {
		fault("stream: %w", err)
	}
	return errors.Join(errs...)
}

// errPublic means that other machines could reach a server without a token.
var errPublic = errors.New("can be reached from other machines")

func publicWithoutToken(addr, key string) error {
	return fmt.Errorf("%s %w: write %s, or listen on 127.0.0.1", addr, errPublic, key)
}
