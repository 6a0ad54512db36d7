package workers

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Config bounds a worker. The zero value of a field takes its default.
type Config struct {
	// ID names the worker; it must be unique among all that live.
	ID string
	// Index is which of the Of workers of its process it is, from 0: what the process can
	// execute at a time is divided among them. Of defaults to 1.
	Index, Of int
	// MaxAbandoned is how many scorers of a profile may overrun their deadline and still run
	// before the worker takes no more samples of that profile. Defaults to half its capacity
	// for the profile, at least 1.
	MaxAbandoned int
	// MaxBytes is explained in Keys; a process divides its memory among its workers, and that
	// of a worker by itself defaults to 256 MiB.
	MaxBytes int64
	// Heartbeat is how old a lease is when it is extended, and how often from then on, to the
	// next whole second. Defaults to 5 s; it must be well below the queue's lease.
	Heartbeat time.Duration
	// Version is announced; so are the machine, and what the worker scores with there.
	Version, Host   string
	Devices, Models []string
}

// Keys implements keys.Described: keys of the section loop.workers.
func (c *Config) Keys(k *keys.Set) {
	k.Size(&c.MaxBytes, "max_bytes", 0, "Maximum bytes of samples in a worker. A larger sample is scored alone. While others wait, a reward gets at most half. 0: a quarter of the memory limit / num_workers, at least loop.message_bytes.")
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Of = cmp.Or(c.Of, 1)
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.Heartbeat = cmp.Or(c.Heartbeat, 5*time.Second)
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs rewards.Faults
	errs.Add(c.ID == "", "workers: the id of a worker is empty")
	check := func(ok bool, format string, args ...any) {
		errs.Add(!ok, "workers: "+format, args...)
	}
	check(c.Index >= 0 && c.Index < c.Of, "worker %d of %d: the first one is 0", c.Index, c.Of)
	check(c.MaxAbandoned >= 0, "max_abandoned must not be negative, not %d", c.MaxAbandoned)
	check(c.Heartbeat > 0, "heartbeat must be positive, not %v", c.Heartbeat)
	return errors.Join(append(errs, keys.Validate("workers", &c))...)
}

// Source hands out tickets to free places. Package queue has the one that ships.
type Source interface {
	// Take asks a queue for exactly n tickets, one for each free place, and returns as
	// soon as it has at least one, or none when ctx ends or after a short random time:
	// the caller asks again. For each queue it is called by one goroutine at a time.
	// What n a caller asks for is what it can start; leases that come beyond it are
	// handed back with Return.
	Take(ctx context.Context, queue string, n int) ([]Lease, error)
	// Move has the worker take from the queue to what it took from the queue from. Take is
	// called with the new name from then on; leases of the old queue live on. An error means
	// that nothing has changed.
	Move(from, to string) error
	// Announce tells the gateways what this worker is doing. It must not block.
	Announce(info wire.WorkerInfo)
	// Close asks for nothing more and hands back what was asked for and not taken.
	// Leases that were taken live on.
	Close()
}

// Lease is one worker's right to score one sample, for as long as it extends it.
type Lease interface {
	Ticket() wire.Ticket
	// Context ends when the lease is revoked or the source is gone.
	Context() context.Context
	// Extend renews the lease. An error says that it could not be renewed; another
	// worker may get the ticket, and the first result wins.
	Extend(ctx context.Context) error
	// Done ends the lease for good: the gateway has the result, or wants none.
	Done()
	// Return gives the ticket back to be taken for another place after the pause.
	Return(after time.Duration)
}

// Gateway holds the payloads and takes the results. *loop.Manager is the one in
// the same process.
type Gateway interface {
	// Claim returns the frame of a ticket, for the worker to release; it is also
	// the worker's start notice. An error means that there is nothing to score. Kept is what
	// components have said before, of a sample that a worker has returned (wire.Result.Waits).
	Claim(ctx context.Context, t wire.Ticket, worker string) (f *wire.Frame, kept []rewards.ComponentResult, err error)
	// ClaimGroup does the same for the ticket of a prompt group: the frames of all its
	// members are the worker's to release.
	ClaimGroup(ctx context.Context, t wire.Ticket, worker string) (*wire.Group, error)
	// Finish hands over the result of a ticket that was claimed. Until it returns nil, or
	// wire.ErrGone from a gateway that is there no longer, the worker keeps its lease.
	Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error
}

// Metrics are shared by the workers of a process.
type Metrics struct {
	samples   *prometheus.CounterVec
	component *prometheus.HistogramVec
	abandoned prometheus.Counter
}

// NewMetrics makes the metrics and registers them; nil: counted, not exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	set := metric.For(reg, "worker")
	return &Metrics{
		samples: set.Counters("attempts_total", "Attempts to score a sample that ended in this process, by outcome.", metric.By("outcome")),
		component: set.Histograms("component_seconds", "Time in seconds that a component of a reward took, retries included, by reward, component and status.",
			prometheus.ExponentialBuckets(0.001, 2, 18), metric.By("reward"), metric.By("component"), metric.By("status")),
		abandoned: set.Counter("abandoned_total", "Calls to scorers that exceeded their deadline and continued to run."),
	}
}
