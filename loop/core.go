package loop

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/wire"
)

// core is the state machine of the gateway: which sample is next, who holds it,
// when it is lost, when it is final. It has no goroutine, no clock and no I/O:
// time comes in as an argument and what has to be done outside comes back as
// effects. The manager's mutex guards all of it.
type core struct {
	cfg      Config
	runs     map[string]*run
	entries  map[sampleKey]*entry
	alarms   alarms
	arrivals uint64
	units    int // entries that stand for whole groups
	metrics  *metrics
	recorded bool // somebody keeps what becomes of samples
	// columns remembers, by profile, the extra columns of its first result, so that
	// a sample that never reached a worker has them too.
	columns map[string]map[string]any
	// Of steps (steps.go): deadlines are the alarms of those that have one.
	book      *step.Book
	stats     *stats.Stats
	reports   *trace.Reports
	deadlines map[*step.Step]*alarm
	board     *dispatch.Board
	backupDue time.Time       // when the next sample has run so long that it gets a backup; zero: not known
	known     map[string]bool // workers of the last look, in any state
	breakers  breakers
	idle      map[*dispatch.Profile]*idle // profiles of which no worker takes samples, or did not
	unavailed time.Time                   // when samples were last failed that have waited for too long
	draining  bool
	doomed    []*entry // queued for a profile that no worker can ever score
	watches   map[*dispatch.Profile]*watch
	hungry    func(profile string) int // connections that wait for credit
	began     time.Time                // when progress was looked at first
	observed  time.Time                // and last
	stuck     string                   // why the spool takes no samples, or took none a moment ago; "": it does
	stuckAt   time.Time                // when it took none last
	failures  *failures.Book
	journal   *journal
	tracer    *tracing.Tracer // nil: nothing is traced
	faults    []string        // the first of them, of which so many have been told
	told      int
	strangers map[stranger]bool // that were told of
}

// stranger is a worker that serves a profile of a name in another configuration.
type stranger struct{ worker, profile string }

// effects are what the caller does after it has left the mutex.
type effects struct {
	results   []answer
	revoked   []wire.AttemptKey
	released  []*wire.Frame
	wake      bool // the dispatcher has something to look at
	whole     bool // the last sample of a step has arrived
	examined  []Examined
	seen      []seen        // for the recorder
	final     []FinalResult // likewise
	waiting   bool          // a sample has begun to wait for its group, and its credit is free
	over      []*step.Step  // steps that have just ended
	faults    []string      // what must not be
	strangers []stranger    // workers of another configuration, seen for the first time
	breakers  []breakerChange
	failures  []failures.Line // for the log
	progress  []Progress      // of profiles that fare otherwise than before
}

func newCore(cfg Config, m *metrics, kept Spool) *core {
	c := &core{
		cfg: cfg, metrics: m, journal: &journal{kept}, runs: map[string]*run{}, entries: map[sampleKey]*entry{}, columns: map[string]map[string]any{},
		breakers: newBreakers(cfg.Breaker),
		book: step.NewBook(step.Limits{
			Timeout: cfg.StepTimeout, OnDeadline: cfg.OnStepDeadline, Bytes: cfg.StepBytes, Age: cfg.StepAge, Examine: cfg.NumExamine,
		}),
		reports: trace.NewReports(), failures: failures.NewBook(), watches: map[*dispatch.Profile]*watch{}, deadlines: map[*step.Step]*alarm{},
		known: map[string]bool{}, strangers: map[stranger]bool{}, idle: map[*dispatch.Profile]*idle{},
	}
	c.stats = stats.New(c.progress)
	c.board = dispatch.NewBoard(cfg.Gateway, cfg.Dispatch, cfg.queues(), &c.breakers)
	return c
}

// runOf returns the run of that name, making it on first sight.
func (c *core) runOf(name string, now time.Time) *run {
	r := c.runs[name]
	if r == nil {
		weight := c.cfg.Weights[name]
		if weight == 0 {
			weight = 1
		}
		r = &run{
			name: name, weight: weight, done: newMemory(c.journal), sessions: map[stream.ID]*stream.Session{},
			groups: map[groupKey]*group{}, counts: map[string]uint64{},
		}
		r.alarm.run = r
		c.runs[name] = r
	}
	r.lastUse = now
	return r
}

// forget drops a run of which nothing is in flight.
func (c *core) forget(r *run) {
	c.heed(c.book.Drop(r.name), &effects{}) // nothing of it is in flight
	c.alarms.clear(&r.alarm)
	c.journal.gone(r)
	c.board.Forget(r.name)
	delete(c.runs, r.name)
}

// forgetOldest drops the run that was used longest ago, of those that have neither a
// connection nor a sample in flight; false: there is none.
func (c *core) forgetOldest() bool {
	runs := c.byUse()
	slices.Reverse(runs)
	i := slices.IndexFunc(runs, func(r *run) bool { return r.inflight == 0 && !r.live() })
	if i < 0 {
		return false
	}
	for _, g := range runs[i].groups {
		c.alarms.clear(&g.alarm)
	}
	c.forget(runs[i])
	return true
}

// all are the entries in the order of their arrival, in which whatever is done for several
// of them is done: the same history has the same results in the same order.
func (c *core) all() []*entry { return inOrder(maps.Values(c.entries)) }

// inOrder puts entries into the order of their arrival, a group's own after its first member.
func inOrder(some iter.Seq[*entry]) []*entry {
	return slices.SortedFunc(some, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(b.key.id, a.key.id))
	})
}

func (c *core) keyOf(e *entry, attempt int) wire.AttemptKey {
	return wire.AttemptKey{Gateway: c.cfg.Gateway, Run: e.key.run, Epoch: e.key.epoch, ID: e.key.id, Attempt: attempt}
}

// byUse are the runs, the most recently used first.
func (c *core) byUse() []*run {
	return slices.SortedFunc(maps.Values(c.runs), func(a, b *run) int {
		return cmp.Or(b.lastUse.Compare(a.lastUse), cmp.Compare(a.name, b.name))
	})
}
