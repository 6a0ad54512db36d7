package fabric

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/wire"
)

// Config says where the engine is and bounds it. The zero value of a field takes its
// default.
type Config struct {
	// Name is this process among all that share the engine, in up to 200 bytes: of a gateway
	// the one that its tickets name, which must be another in every life. Defaults to
	// "rewardloop".
	Name string
	// URLs are the servers of an engine that runs by itself, as nats://host:port or
	// tls://host:port; one that answers is enough. None: the engine is in this process.
	URLs []string
	// Listen is where the engine in this process takes workers and other gateways, as
	// host:port; port 0 is a free one. "": it opens no port.
	Listen string
	// Access admits them; nil: everybody. TLS has the certificate for it.
	Access func(*server.Options)
	// TLS is of this process: towards URLs, and of Listen.
	TLS *tls.Config
	// Credentials show the servers who this is.
	Credentials []nats.Option
	// OwnKey is shown to servers that ask for a key, where Credentials has none; those that
	// ask for none are joined without it. Nil: there is none.
	OwnKey nats.Option
	// Dir is where the engine in this process keeps its files; "": a temporary folder.
	Dir string
	// Durable keeps tickets on disk, Replicas is on how many servers of a cluster.
	// Default to memory and 1.
	Durable  bool
	Replicas int
	// Patience is how long a start waits for the servers. Defaults to 30 s.
	Patience time.Duration
	// Silence is how long a server may say nothing before another one is looked for; it is
	// asked three times. Defaults to 5 s.
	Silence time.Duration

	// Lease is how long a worker may be silent before its tickets go to others.
	// Defaults to 15 s.
	Lease time.Duration
	// PullMin and PullMax bound the random life of a pull request at a queue that has
	// tickets, where up to 16 processes take from it; where there are more, requests live
	// longer in proportion, so that all together ask no more often. Default to 10 ms and
	// 100 ms.
	PullMin, PullMax time.Duration
	// Gone is how long a worker or a gateway may be silent before it no longer counts as
	// live. Defaults to 5 s; they announce themselves every second.
	Gone time.Duration
	// MaxTickets bounds the stream. Defaults to 1,000,000 (about 300 MB).
	MaxTickets int64

	// Sign makes the token that a ticket carries for workers of other processes; nil: there
	// are none.
	Sign func(wire.AttemptKey) string

	// Log takes what goes wrong in the background; nil: discarded. Metrics takes the metrics;
	// nil: nobody does.
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// longestName bounds Name: encoded, it is part of a key of the fleet's bucket.
const longestName = 200

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Name = cmp.Or(c.Name, "rewardloop")
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.Patience = cmp.Or(c.Patience, 30*time.Second)
	c.Silence = cmp.Or(c.Silence, 5*time.Second)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.PullMin = cmp.Or(c.PullMin, 10*time.Millisecond)
	c.PullMax = cmp.Or(c.PullMax, 100*time.Millisecond)
	c.Gone = cmp.Or(c.Gone, 5*time.Second)
	c.MaxTickets = cmp.Or(c.MaxTickets, 1_000_000)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if len(c.Name) > longestName {
		errs = append(errs, fmt.Errorf("fabric: a name of %d bytes, want %d at most", len(c.Name), longestName))
	}
	if c.Lease < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("fabric: a lease of %v is too short; want 100 ms or more", c.Lease))
	}
	if c.PullMin <= 0 || c.PullMax <= c.PullMin {
		errs = append(errs, fmt.Errorf("fabric: pull requests need 0 < pull_min < pull_max, not %v and %v", c.PullMin, c.PullMax))
	}
	if c.MaxTickets < 1 {
		errs = append(errs, errors.New("fabric: max_tickets must be positive"))
	}
	if c.Replicas < 1 || c.Replicas > 5 || c.Replicas > 1 && len(c.URLs) == 0 {
		errs = append(errs, fmt.Errorf("fabric: %d replicas: want 1, or up to 5 of an engine that is a cluster", c.Replicas))
	}
	if len(c.URLs) > 0 && c.Listen != "" {
		errs = append(errs, errors.New("fabric: nats names an engine that runs by itself, and nats_listen starts one: leave one of them out"))
	}
	if c.Listen != "" {
		host, _, err := hostPort(c.Listen)
		if err != nil {
			errs = append(errs, fmt.Errorf("fabric: nats_listen: %w", err))
		} else if ip := net.ParseIP(host); c.Access == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			errs = append(errs, fmt.Errorf("fabric: nats_listen %s can be reached by others: it needs acl_file, which `rewardloop fabric acl` writes", c.Listen))
		}
	}
	return errors.Join(errs...)
}

// hostPort takes an address to listen at apart.
func hostPort(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16) // the server would take -1 for any free one
	if err != nil {
		return "", 0, fmt.Errorf("port %q: want 0 to 65535", text)
	}
	return host, int(n), nil
}
