package wsconn

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
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

// limits have the defaults and bounds.
func (c *Config) limits(k *keys.Set) {
	k.Duration(&c.ReadTimeout, "read_timeout", 45*time.Second, "").Min(1)
	k.Duration(&c.WriteTimeout, "write_timeout", 15*time.Second, "").Min(1)
	k.Duration(&c.MessageTimeout, "message_timeout", 5*time.Minute, "").Min(1)
	k.Duration(&c.CloseTimeout, "close_timeout", 3*time.Second, "").Min(1)
	k.Size(&c.MessageBytes, "message_bytes", 256<<20, "").Min(1)
	k.Size(&c.TextBytes, "text_bytes", 64<<10, "").Min(1)
	k.Size(&c.OutboxBytes, "outbox_bytes", 8<<20, "").Min(1)
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	keys.Fill(keys.Func(c.limits))
	c.PingInterval = cmp.Or(c.PingInterval, c.ReadTimeout/3)
	return c
}

// Validate returns every fault.
func (c Config) Validate() error {
	err := keys.Validate("", keys.Func(c.limits))
	if c.PingInterval <= 0 || c.PingInterval >= c.ReadTimeout {
		err = errors.Join(err, fmt.Errorf("ping_interval of %s, want more than 0 and less than read_timeout of %s", c.PingInterval, c.ReadTimeout))
	}
	return err
}

// DialConfig is what Dial needs.
type DialConfig struct {
	Config

	// Subprotocol must be the one the server speaks.
	Subprotocol string
	// Version is the release of this side: servers are told, and a mismatch names it.
	Version string
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
	// Version is the release of this side, which such a refusal names.
	Version string
}
