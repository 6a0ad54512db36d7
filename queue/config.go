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

// Config configures the connection to NATS. A field with the zero value gets its default. The
// fields that Keys lists are set by the configuration file, and Keys documents them; the other
// fields are set by the program.
type Config struct {
	// Name is the name of the process, at most 200 bytes. The name of a gateway is the one in its
	// tickets, and must be different after each start. The default is "rewardloop".
	Name string
	// URLs are the addresses of NATS servers, which are tried until one answers. If Dir is "", the
	// folder of the process's own server is temporary.
	URLs []string
	// Listen is the host:port of this process's own server. If Listen is empty, the process
	// connects to URLs, or has its own server that no other process can reach.
	Listen string
	Dir    string
	// Lease is the time after which a ticket lapses that a worker has not extended.
	Lease time.Duration
	// Replicas is the number of servers of a cluster that store each stream.
	Replicas int
	// Durable stores tickets on disk.
	Durable bool

	// Access authorises the clients of this process's own server; nil: every client may connect.
	// TLS has the server's certificate.
	Access func(*server.Options)
	// TLS is the TLS configuration for connections to URLs, and for Listen.
	TLS *tls.Config
	// Credentials authenticate this process to the servers.
	Credentials []nats.Option
	// OwnKey returns the key to present to a server that requires a key, if Credentials is empty.
	// OwnKey is called at each attempt to connect; a nil Option means that there is no key, or none
	// yet. A nil OwnKey means that there is no key. Servers that require no key are used without
	// one.
	OwnKey func() (nats.Option, error)
	// Patience is the time for which a start waits for the servers. The default is 30 s.
	Patience time.Duration
	// Silence is the interval at which the server is pinged. After three intervals without an
	// answer the connection counts as lost, and the process reconnects. The default is 5 s.
	Silence time.Duration

	// PullMin and PullMax limit the random lifetime of a pull request to a queue that has tickets,
	// if up to 16 processes take from the queue. With more processes, the lifetime is longer in
	// proportion, so that the total rate of requests stays the same. The defaults are 10 ms and 100
	// ms.
	PullMin, PullMax time.Duration
	// Gone is the time without an announcement after which a worker or a gateway no longer counts
	// as live. Workers and gateways announce themselves every second. The default is 5 s.
	Gone time.Duration
	// MaxTickets is the maximum number of tickets in the stream. The default is 1,000,000 (about
	// 300 MB).
	MaxTickets int64

	// Sign returns the token that a ticket carries for workers of other processes; nil: there are
	// no such workers.
	Sign func(wire.AttemptKey) string

	// Log gets problems in the background; nil: no log. Metrics registers the metrics; nil: the
	// metrics are not exported.
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// longestName bounds Name: encoded, it is part of a key of the fleet's bucket.
const longestName = 200

// Networked reports whether workers of other processes may join.
func (c Config) Networked() bool { return len(c.URLs) > 0 || c.Listen != "" }

// Keys implements keys.Described for the section of NATS.
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

// WithDefaults returns a copy of c in which the defaults are set.
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

// Validate returns an error that lists all invalid fields.
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
