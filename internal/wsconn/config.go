package wsconn

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Config holds the bounds of a connection. Zero fields mean the defaults.
type Config struct {
	// ReadTimeout is how long the peer may be silent; default 45 s.
	ReadTimeout time.Duration
	// PingInterval is how often the peer is pinged; default a third of ReadTimeout.
	PingInterval time.Duration
	// WriteTimeout is how long the peer may take for one write of at most
	// fragmentBytes; default 15 s.
	WriteTimeout time.Duration
	// MessageTimeout is how long one message may be on its way, so that a peer that
	// sends a byte now and then does not hold its buffer for ever; default 5 min.
	MessageTimeout time.Duration
	// CloseTimeout bounds the close handshake; default 3 s.
	CloseTimeout time.Duration

	// MessageBytes bounds a binary message that is received; default 256 MiB.
	MessageBytes int64
	// TextBytes bounds a text message that is received; default 64 KiB.
	TextBytes int64
	// OutboxBytes bounds the texts that are queued for the peer; default 8 MiB.
	OutboxBytes int64
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 45*time.Second)
	c.PingInterval = cmp.Or(c.PingInterval, c.ReadTimeout/3)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 15*time.Second)
	c.MessageTimeout = cmp.Or(c.MessageTimeout, 5*time.Minute)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 3*time.Second)
	c.MessageBytes = cmp.Or(c.MessageBytes, 256<<20)
	c.TextBytes = cmp.Or(c.TextBytes, 64<<10)
	c.OutboxBytes = cmp.Or(c.OutboxBytes, 8<<20)
	return c
}

// Validate returns every fault.
func (c Config) Validate() error {
	var errs []error
	for _, d := range [...]struct {
		name string
		v    time.Duration
	}{
		{"read_timeout", c.ReadTimeout},
		{"ping_interval", c.PingInterval},
		{"write_timeout", c.WriteTimeout},
		{"message_timeout", c.MessageTimeout},
		{"close_timeout", c.CloseTimeout},
	} {
		if d.v <= 0 {
			errs = append(errs, fmt.Errorf("%s is %s, want more than 0", d.name, d.v))
		}
	}
	if c.PingInterval >= c.ReadTimeout {
		errs = append(errs, fmt.Errorf("ping_interval of %s is not below read_timeout of %s", c.PingInterval, c.ReadTimeout))
	}
	if c.MessageBytes < 1 || c.TextBytes < 1 || c.OutboxBytes < 1 {
		errs = append(errs, fmt.Errorf("message_bytes %d, text_bytes %d and outbox_bytes %d must be 1 or more", c.MessageBytes, c.TextBytes, c.OutboxBytes))
	}
	return errors.Join(errs...)
}

// DialConfig is what Dial needs.
type DialConfig struct {
	Config

	// Subprotocol must be the one the server speaks.
	Subprotocol string
	// Header is sent with the request: Authorization, traceparent.
	Header http.Header
	// TLS is for wss URLs; nil: the system's roots.
	TLS *tls.Config
	// HandshakeTimeout bounds connecting and the handshake; default 10 s.
	HandshakeTimeout time.Duration
}

// UpgradeConfig is what Upgrade needs.
type UpgradeConfig struct {
	Config

	// Subprotocols are those the server speaks; the first that the client offers
	// is taken, and a client that offers none of them is refused.
	Subprotocols []string
	// Origins are hosts beside the request's own whose pages may connect.
	Origins []string
}
