package queue

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

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/wire"
)

// Config says where NATS is and bounds it. The zero value of a field takes its
// default. What Keys lists is set by the configuration file, and Keys says what it means; the
// rest is the program's.
type Config struct {
	// Name has up to 200 bytes; of a gateway it is the one that its tickets name, which must be
	// another in every life. Defaults to "rewardloop".
	Name string
	// URLs are asked until one answers. Dir is temporary where it is "".
	URLs []string
	// Listen is the address of a server of this process's own, as host:port; empty: it joins
	// those of URLs, or has one that nobody else reaches.
	Listen string
	Dir    string
	// Lease is how long a worker has a ticket without extending it.
	Lease time.Duration
	// Replicas is on how many servers of a cluster each stream lies.
	Replicas int
	// Durable keeps tickets on disk.
	Durable bool

	// Access admits them; nil: everybody. TLS has the certificate for it.
	Access func(*server.Options)
	// TLS is of this process: towards URLs, and of Listen.
	TLS *tls.Config
	// Credentials show the servers who this is.
	Credentials []nats.Option
	// OwnKey is shown to servers that ask for a key, where Credentials has none; those that
	// ask for none are joined without it. It is asked at each attempt to connect, and nil is none,
	// or none yet. Nil: there is none.
	OwnKey func() (nats.Option, error)
	// Patience is how long a start waits for the servers. Defaults to 30 s.
	Patience time.Duration
	// Silence is how long a server may say nothing before another one is looked for; it is
	// asked three times. Defaults to 5 s.
	Silence time.Duration

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

// Networked reports whether workers of other processes may join.
func (c Config) Networked() bool { return len(c.URLs) > 0 || c.Listen != "" }

// Keys implements keys.Described: the section of NATS.
func (c *Config) Keys(k *keys.Set) {
	k.Texts(&c.URLs, "nats", "Addresses of the NATS servers that all processes share, such as [nats://a:4222, nats://b:4222]; tls:// for TLS. Empty: no shared NATS servers.")
	k.Text(&c.Listen, "nats_listen", "", "Address of this gateway's own NATS for workers and other gateways, in place of nats. A public address needs acl_file; on loopback without acl_file, processes of the same user may connect.")
	k.Text(&c.Dir, "nats_dir", "", "Folder for the files of this gateway's own NATS. Empty: a temporary folder.")
	k.Text(&c.Name, "name", "", "Unique name of this process. Empty: host name and process ID.")
	k.Duration(&c.Lease, "lease", 15*time.Second, "Time without a heartbeat after which a worker's samples go to other workers.").Min(time.Second)
	k.Int(&c.Replicas, "replicas", 1, "Number of servers of a NATS cluster that each store a copy of the tickets (a ticket represents a waiting sample).").Between(1, 5)
	k.Bool(&c.Durable, "durable", "Keeps acknowledged samples and tickets on disk, so that samples are scored even if the gateway process dies. false: samples are in memory only, and clients send samples again.")
	k.Check(func(r keys.Report) {
		if len(c.URLs) > 0 && c.Listen != "" {
			r.Fault("nats_listen", "%s names a NATS that runs by itself, and this starts one: leave one of them out", r.Path("nats"))
		}
		if c.Listen != "" {
			if _, err := keys.Public(c.Listen); err != nil {
				r.Fault("nats_listen", "%w", err)
			}
		}
	})
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Name = cmp.Or(c.Name, "rewardloop")
	keys.Fill(&c)
	c.Patience = cmp.Or(c.Patience, 30*time.Second)
	c.Silence = cmp.Or(c.Silence, 5*time.Second)
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
	errs := []error{keys.Validate("queue", &c)}
	if len(c.Name) > longestName {
		errs = append(errs, fmt.Errorf("queue: a name of %d bytes, want at most %d", len(c.Name), longestName))
	}
	if c.Lease < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("queue: a lease of %v is too short; want 100 ms or more", c.Lease))
	}
	if c.PullMin <= 0 || c.PullMax <= c.PullMin {
		errs = append(errs, fmt.Errorf("queue: pull requests need 0 < pull_min < pull_max, not %v and %v", c.PullMin, c.PullMax))
	}
	if c.MaxTickets < 1 {
		errs = append(errs, errors.New("queue: max_tickets must be positive"))
	}
	if c.Replicas > 1 && len(c.URLs) == 0 {
		errs = append(errs, fmt.Errorf("queue: %d replicas: want 1, or up to 5 of a NATS server that is a cluster", c.Replicas))
	}
	if public, _ := keys.Public(c.Listen); public && c.Access == nil {
		errs = append(errs, fmt.Errorf("queue: nats_listen %s can be reached from other machines: set acl_file to the file that `rewardloop queue acl` writes", c.Listen))
	}
	return errors.Join(errs...)
}

// hostPort takes an address to listen at apart, which Validate has looked at: the server would
// take port -1 for any free one.
func hostPort(address string) (host string, port int) {
	host, text, _ := net.SplitHostPort(address)
	port, _ = strconv.Atoi(text)
	return host, port
}
