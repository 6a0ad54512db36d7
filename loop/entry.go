package loop

import (
	"container/list"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// state is where an accepted sample is on its way. It only moves downwards, but
// for a failed or lost attempt, which takes it back to queued.
type state string

const (
	queued    state = "queued"    // in its run's queue, in the gateway
	published state = "published" // its ticket is in the engine, unclaimed
	running   state = "running"   // a worker has claimed it
	gathered  state = "gathered"  // scored alone, waiting for its group to be scored as a whole
	held      state = "held"      // scored or failed, waiting for its prompt group
	final     state = "final"     // answered; no longer in the table
)

// sampleKey names a sample among all that a gateway holds.
type sampleKey struct {
	run   string
	epoch uint64
	id    string
}

// entry is one accepted sample. All of it is guarded by the manager's mutex.
type entry struct {
	// Immutable after admission.
	key      sampleKey
	frame    *wire.Frame // one reference, released when the entry is final
	sum      wire.Checksum
	run      *run
	step     *step.Step
	group    *group // nil without one
	order    uint64 // of arrival, over all runs
	index    *int64
	profile  string
	policy   rewards.SamplePolicy
	arrived  time.Time
	deadline time.Time
	bytes    int64

	state     state
	owner     owner // takes the result; another connection may take it over
	attempt   int   // of the ticket that is out or queued, from 1
	issued    int   // the highest attempt there was
	claims    int   // how often a worker was given the payload, not counting the backup's
	answers   int   // how many of these claims were answered
	bounces   int   // how many of them tried a worker whose breaker was open, and found it no better
	holders   []holder
	spare     spare    // the backup request
	avoid     []string // workers that failed it
	errors    []rewards.TermError
	published time.Time // when the ticket was last given to the engine
	claimed   time.Time // of the first claim
	charged   time.Duration
	place     int           // in its step's queue, from 1; 0: it is not there
	alarm     alarm         // the deadline, or an earlier look
	watched   *list.Element // in its step's list of those that may get a backup; nil: in none
	pool      string        // of a published one: the workers that its ticket is for
	slow      []string      // of a published one: workers that are to leave it to faster ones
	refused   time.Time     // when a free worker was first thought too slow for it

	result *wire.Result // while held

	// While gathered: what the sample's own terms said, since when, and whose credit
	// its frame does not count against.
	partial  *wire.Result
	gathered time.Time
	parked   owner

	unit *group // of a group's own entry; nil for a sample

	row *step.Row // nil where nobody reads the step's rewards as a whole

	examined *rewards.Sample // what it was, for people; nil: it is not one of the first
}

// holder is a worker that has claimed the entry and not answered.
type holder struct {
	worker  string
	attempt int
	since   time.Time
	lapsed  bool // another worker has claimed the same ticket since
	backup  bool // it was asked because another one takes long
}

// spare is the second request for a sample that runs long. A sample has one.
type spare struct {
	attempt   int  // of its ticket; 0: there is none that counts
	sent      bool // it has had its one
	out       bool // nobody has claimed it
	claims    int
	failed    bool // its worker blamed itself
	pool      string
	published time.Time
	charged   time.Duration
}

// owner takes the final result of a sample.
type owner interface {
	// remembers says whether the result is kept until the owner confirms it.
	remembers() bool
	// deliver is called once per final result, without the manager's mutex.
	deliver(r *stored)
	// expects counts the samples the owner waits for. The caller holds the manager's mutex.
	expects(by int64)
	// parks says that a frame stays although its slot is free, or no longer does. The
	// caller holds the manager's mutex.
	parks(more bool, what wire.CreditTotals)
}

// stored is a final result as it is remembered.
type stored struct {
	key  sampleKey
	sum  wire.Checksum
	res  *wire.Result
	size int64
	at   time.Time

	forgotten atomic.Bool             // confirmed or too old: no longer remembered
	numbered  atomic.Pointer[Session] // the session that has given it a number
}

// answer is a final result on its way to an owner.
type answer struct {
	stored *stored
	to     owner
}
