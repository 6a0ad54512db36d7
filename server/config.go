package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/wsconn"
)

// Config is the configuration of a Server. The zero value of a field takes its default. The
// configuration file sets the fields that Keys and SampleKeys list and describe; the program sets
// all other fields.
type Config struct {
	// TokenFile is the file with the tokens, at most 64 lines. New reads the file. When the file
	// has changed, a request reads the file again, at most every two seconds.
	TokenFile string
	// Listen is the address, as host:port, for HTTP and websockets.
	Listen string
	// TLSCert and TLSKey are PEM files of the server's certificate; both or neither must be set.
	// ClientCA is the PEM file of the CAs that sign client certificates. Empty: clients need no
	// certificate.
	TLSCert, TLSKey string
	ClientCA        string
	// JSONBytes limits a JSON body, in bytes.
	JSONBytes int64
	// SampleTimeout limits a sample whose request sets no time limit. ComputeTimeout limits the
	// samples of POST /compute.
	SampleTimeout  time.Duration
	ComputeTimeout time.Duration

	// PickleBytes limits a pickled body and the decoded data of such a body. The default is
	// JSONBytes, and at most 64 MiB.
	PickleBytes int64
	// BodiesBytes limits the memory of all bodies that are being read or wait to be submitted; a
	// JSON body counts twice, because of its decoded pictures. A request beyond this limit is
	// answered with 503. The default is twice JSONBytes, and at least 1 GiB.
	BodiesBytes int64
	// BatchSamples limits the samples of one request. The default is 1,024.
	BatchSamples int
	// DiscardBytes and DiscardTimeout limit how much of a refused body is read and dropped to keep
	// its connection usable. The defaults are 256 MiB and 10 s.
	DiscardBytes   int64
	DiscardTimeout time.Duration

	// HeaderTimeout limits the reading of a request's header, BodyTimeout the reading of its body,
	// WriteTimeout the writing of an answer, IdleTimeout the pause between requests. The defaults
	// are 10 s, 60 s, 30 s and 120 s.
	HeaderTimeout, BodyTimeout, WriteTimeout, IdleTimeout time.Duration
	// MaxSampleTimeout limits deadline_ms of a JSON request. The default is 900 s.
	MaxSampleTimeout time.Duration

	// RouterTimeout limits a request that is forwarded to an engine, with all its attempts.
	// RouterBytes limits the answer of the engine. The defaults are 300 s and 16 MiB.
	RouterTimeout time.Duration
	RouterBytes   int64

	// RememberFor is how long the answer to a body is kept for an identical body. At most
	// RememberAnswers answers and RememberBytes bytes are kept. The defaults are 60 s, 1,024 and 16
	// MiB. Answers that a retry may change are not kept.
	RememberFor     time.Duration
	RememberAnswers int
	RememberBytes   int64

	// MaxConns limits the HTTP connections, MaxStreams the websockets. A connection beyond the
	// limit is closed, a websocket is answered with 503. The defaults are 4,096 and 1,024.
	MaxConns, MaxStreams int
	// Stream is the configuration of each websocket.
	Stream wsconn.Config

	// SelfTestEvery is how long a result of the self-test is valid, SelfTestTimeout the time limit
	// of the self-test. The defaults are 10 s and 30 s.
	SelfTestEvery, SelfTestTimeout time.Duration
}

// Keys implements keys.Described with the keys of the section server.
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

// SampleKeys adds the keys of the section loop that apply only to HTTP requests.
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

// WithDefaults returns a copy of c in which fields that are zero have their defaults.
func (c Config) WithDefaults() Config {
	keys.Fill(&c, keys.Func(c.SampleKeys))
	keys.Fill(keys.Func(c.limits))
	c.Stream = c.Stream.WithDefaults()
	return c
}

// Validate returns an error that joins everything that is wrong with c.
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
