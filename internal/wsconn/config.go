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

// Config contains the limits of a connection. A zero field gets its default.
type Config struct {
	// ReadTimeout is the time without data from the peer after which the connection ends; default
	// 45 s.
	ReadTimeout time.Duration
	// PingInterval is the interval of pings; default a third of ReadTimeout.
	PingInterval time.Duration
	// WriteTimeout is the time limit for one write of at most fragmentBytes; default 15 s.
	WriteTimeout time.Duration
	// MessageTimeout is the time limit for receiving one message, so that a peer that sends a byte
	// now and then does not occupy its buffer forever; default 5 min.
	MessageTimeout time.Duration
	// CloseTimeout is the time limit for the close handshake; default 3 s.
	CloseTimeout time.Duration

	// MessageBytes is the maximum size of a received binary message; default 256 MiB.
	MessageBytes int64
	// TextBytes is the maximum size of a received text message; default 64 KiB.
	TextBytes int64
	// OutboxBytes is the maximum total size of the texts that are queued for the peer; default
	// 8 MiB.
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

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	keys.Fill(keys.Func(c.limits))
	c.PingInterval = cmp.Or(c.PingInterval, c.ReadTimeout/3)
	return c
}

// Validate returns an error that lists all invalid fields.
func (c Config) Validate() error {
	err := keys.Validate("", keys.Func(c.limits))
	if c.PingInterval <= 0 || c.PingInterval >= c.ReadTimeout {
		err = errors.Join(err, fmt.Errorf("ping_interval of %s, want more than 0 and less than read_timeout of %s", c.PingInterval, c.ReadTimeout))
	}
	return err
}

// DialConfig configures Dial.
type DialConfig struct {
	Config

	// Subprotocol is the subprotocol that the server must accept.
	Subprotocol string
	// Version is the release of this side. It is sent to servers, and appears in the error of a
	// mismatch.
	Version string
	// Header contains additional headers of the request, such as Authorization and traceparent.
	Header http.Header
	// TLS is the TLS configuration for wss URLs; nil: the system's root certificates.
	TLS *tls.Config
	// HandshakeTimeout is the time limit for connecting and the handshake; default 10 s.
	HandshakeTimeout time.Duration
}

// UpgradeConfig configures Upgrade.
type UpgradeConfig struct {
	Config

	// Subprotocols are the subprotocols of the server. The first one that the client offers is
	// used; a client that offers none of them is refused.
	Subprotocols []string
	// Version is the release of this side, which appears in such a refusal.
	Version string
}
