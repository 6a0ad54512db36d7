package loop

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
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
	header   *wire.Header
	sum      wire.Checksum
	run      *run
	step     *step.Step
	group    *group // nil without one
	order    uint64 // of arrival, over all runs
	item     dispatch.Item
	index    *int64
	profile  string
	policy   rewards.SamplePolicy
	arrived  time.Time
	deadline time.Time
	bytes    int64

	state    state
	owner    owner      // takes the result; another connection may take it over
	also     []owner    // other connections of the run that have sent the same sample
	attempt  int        // of the ticket that is out or queued, from 1
	issued   int        // the highest attempt there was
	claims   int        // how often a worker was given the payload, not counting the backup's
	answers  int        // how many of these claims were answered
	bounces  int        // how many of them tried a worker whose breaker was open, and found it no better
	offer    *attempt   // the attempt that nobody has claimed: its first, or its backup beside others; nil: none
	attempts []*attempt // attempts that workers have claimed and not answered
	backup   backup     // the backup request
	avoid    []string   // workers that failed it
	errors   []rewards.ComponentError
	claimed  time.Time // of the first claim
	charged  time.Duration
	alarm    alarm // the deadline, or an earlier look

	result *wire.Result // while it waits for the mean of its group

	// While it waits for its group: what the sample's own components said, since when, and whose credit
	// its frame does not count against.
	partial    *wire.Result
	waitsSince time.Time
	waiting    owner

	// How long the sample has waited unserved (waits.go), and what is known of it since a worker
	// returned it; nil: none has.
	waited time.Duration
	mark   time.Duration
	back   *giveBack

	unit *group // of a group's own entry; nil for a sample

	row *step.Row // nil where nobody reads the step's rewards as a whole

	trace *traced // nil: it is not traced

	examined *rewards.Sample // what it was, for people; nil: it is not one of the first
}

// giveBack is what is known of a sample that a worker has returned because a dependency is
// down.
type giveBack struct {
	kept     []rewards.ComponentResult // what components have said
	waits    string                    // the dependency; "": a worker has it again
	whole    bool                      // all of the profile wait for it there
	returned []string                  // workers that returned it since it rested last
	outage   rewards.ComponentError    // the failure that it would be
}

// gave is what is known since a worker returned the sample, if one has.
func (e *entry) gave() giveBack {
	if e.back == nil {
		return giveBack{}
	}
	return *e.back
}

// attempt is one at the entry: a ticket, and the worker that has claimed it.
type attempt struct {
	number int // from 1, as its ticket says
	state  attemptState
	backup bool // it was asked because another one takes long

	published time.Time // when the ticket was given to the queue
	slow      []string  // workers that are to leave it to faster ones

	worker string
	since  time.Time // when the worker claimed it
}

// backup is the second request for a sample that runs long. A sample has one.
type backup struct {
	attempt int  // of its ticket; 0: there is none that counts
	sent    bool // it has had its one
	claims  int
	failed  bool // its worker blamed itself
	charged time.Duration
}

// owner takes the final result of a sample.
type owner interface {
	// remembers says whether the result is kept until the owner confirms it.
	remembers() bool
	// deliver is called once per final result, without the manager's mutex. It returns the message that it has sent; nil: none.
	deliver(r *stored) []byte
	// expects counts the samples the owner waits for. The caller holds the manager's mutex.
	expects(by int64)
	// parks says that a frame stays although its place is free, or no longer does. The
	// caller holds the manager's mutex.
	waits(more bool, what wire.CreditTotals)
}

// answer is a final result on its way to an owner.
type answer struct {
	stored *stored
	to     owner
	final  int // its place in effects.final, from 1; 0: it has none
}

// Examined is a sample with its result, for people to inspect. The media of Sample have their
// description but no bytes.
type Examined struct {
	Sample *rewards.Sample
	Result *wire.Result
}

// examine keeps what a sample was, before its frame goes, if it is one of the first of
// its step.
func (c *core) examine(e *entry, res *wire.Result) {
	if e.frame == nil || res.Outcome == rewards.OutcomeCancelled || !c.book.Examine(e.step) {
		return
	}
	s := e.frame.Sample()
	s.Run = e.key.run
	s.GroundTruth, s.ExtraInfo = slices.Clone(s.GroundTruth), slices.Clone(s.ExtraInfo)
	for i, m := range s.Media {
		own := rewards.Media{Kind: m.Kind, Layout: m.Layout, Encoding: m.Encoding, DType: m.DType, Shape: slices.Clone(m.Shape), FPS: m.FPS, SampleRate: m.SampleRate}
		own.Frames = make([][]byte, len(m.Frames)) // their number
		s.Media[i] = &own
	}
	e.examined = s
}
