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

// Config configures a worker. A field with the zero value gets its default.
type Config struct {
	// ID is the name of the worker. It must be unique among all live workers.
	ID string
	// Index is the number of the worker, from 0, among the Of workers of its process, which share
	// the capacity of the process. Of defaults to 1.
	Index, Of int
	// MaxAbandoned is the maximum number of scorers of a profile that have exceeded their deadline
	// and still run. With more, the worker takes no samples of that profile. The default is half of
	// the worker's capacity for the profile, at least 1.
	MaxAbandoned int
	// MaxBytes is documented in Keys. A process divides its memory among its workers; the default
	// for a single worker is 256 MiB.
	MaxBytes int64
	// Heartbeat is the age at which a lease is extended, and the interval of further extensions,
	// rounded up to a whole second. It must be well below the lease time of the queue. The default
	// is 5 s.
	Heartbeat time.Duration
	// Version, Host, Devices and Models are announced to the gateways: the version of the program,
	// the machine, and the devices and models with which the worker scores.
	Version, Host   string
	Devices, Models []string
}

// Keys implements keys.Described for the keys of Config in the section loop.workers.
func (c *Config) Keys(k *keys.Set) {
	k.Size(&c.MaxBytes, "max_bytes", 0, "Maximum bytes of samples in a worker. A larger sample is scored alone. While others wait, a reward gets at most half. 0: a quarter of the memory limit / num_workers, at least loop.message_bytes.")
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	c.Of = cmp.Or(c.Of, 1)
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.Heartbeat = cmp.Or(c.Heartbeat, 5*time.Second)
	return c
}

// Validate returns an error that lists all invalid fields.
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

// Source hands out tickets to free places. Package queue contains the implementation.
type Source interface {
	// Take requests n tickets from a queue, one for each free place. Take returns as soon as it has
	// at least one, or none when ctx ends or after a short time; the caller then calls Take again.
	// For each queue only one goroutine at a time calls Take. The caller returns leases that it
	// cannot start with Lease.Return.
	Take(ctx context.Context, queue string, n int) ([]Lease, error)
	// Move replaces the queue from by the queue to. After Move, Take is called with the new name;
	// leases of the old queue stay valid. An error means that nothing has changed.
	Move(from, to string) error
	// Announce sends the state of the worker to the gateways. Announce must not block.
	Announce(info wire.WorkerInfo)
	// Close stops requesting tickets, and hands back tickets that were requested and not taken.
	// Leases that were taken stay valid.
	Close()
}

// Lease is a worker's right to score one sample. It is valid as long as the worker extends it.
type Lease interface {
	Ticket() wire.Ticket
	// Context returns a context that ends when the lease is revoked or the source has ended.
	Context() context.Context
	// Extend renews the lease. An error means that the lease could not be renewed: another worker
	// may get the ticket as well, and the first result wins.
	Extend(ctx context.Context) error
	// Done ends the lease: the gateway has the result, or needs none.
	Done()
	// Return hands the ticket back, so that another place can take it after the pause.
	Return(after time.Duration)
}

// Gateway provides the payloads and accepts the results. *loop.Manager implements Gateway for
// workers in the same process.
type Gateway interface {
	// Claim returns the frame of a ticket, which the worker must release, and tells the gateway
	// that the worker has started the sample. kept holds the results of components that finished
	// before a worker returned the sample (wire.Result.Waits). An error means that there is nothing
	// to score.
	Claim(ctx context.Context, t wire.Ticket, worker string) (f *wire.Frame, kept []rewards.ComponentResult, err error)
	// ClaimGroup returns the frames of all members of the ticket of a prompt group, which the
	// worker must release. Otherwise ClaimGroup behaves like Claim.
	ClaimGroup(ctx context.Context, t wire.Ticket, worker string) (*wire.Group, error)
	// Finish hands over the result of a claimed ticket. The worker keeps its lease until Finish
	// returns nil, or wire.ErrGone if the gateway no longer exists.
	Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error
}

// Metrics are the metrics of the workers of a process, which share them.
type Metrics struct {
	samples   *prometheus.CounterVec
	component *prometheus.HistogramVec
	abandoned prometheus.Counter
}

// NewMetrics returns the metrics and registers them with reg. If reg is nil, the metrics are
// counted but not exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	set := metric.For(reg, "worker")
	return &Metrics{
		samples: set.Counters("attempts_total", "Attempts to score a sample that ended in this process, by outcome.", metric.By("outcome")),
		component: set.Histograms("component_seconds", "Time in seconds that a component of a reward took, retries included, by reward, component and status.",
			prometheus.ExponentialBuckets(0.001, 2, 18), metric.By("reward"), metric.By("component"), metric.By("status")),
		abandoned: set.Counter("abandoned_total", "Calls to scorers that exceeded their deadline and continued to run."),
	}
}
