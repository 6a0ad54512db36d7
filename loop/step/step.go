package step

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Key identifies a step. It needs no epoch, because a run that starts again loses all its steps.
type Key struct {
	Run   string
	Split rewards.Split
	Step  int64
}

// KeyOf returns the key of a step. An empty split means rewards.Train.
func KeyOf(run string, split rewards.Split, n int64) Key {
	if split == "" {
		split = rewards.Train
	}
	return Key{run, split, n}
}

// Client identifies a connection that declares a part of a step.
type Client struct {
	Name string
	Lane int
}

// Step is the state of the samples of a step. Only its Book changes a Step; other packages read it
// with its methods.
type Step struct {
	key      Key
	closes   time.Time // orders the queue; the deadline, once somebody has declared the step
	first    time.Time
	last     time.Time // arrival of the latest sample
	finished time.Time // latest final result
	expected int       // declared; 0: unknown
	declared map[Client]int
	ended    bool // a client said that it sends no more
	asked    bool // somebody has said something of the step, or has fetched
	arrived  int
	inflight int
	examined int // samples that people look at
	counts   map[rewards.Outcome]int

	// Of the rewards as a whole (rows.go).
	assembly  *assembly      // nil until the first sample of a websocket, and once forgotten
	forgotten string         // why the rows are gone; empty: they are not
	names     map[string]int // declared ids, and their place
	policy    string         // at the deadline
	closed    bool           // the deadline has ended it
	absent    []*Row         // rows of samples that had not come by then
	told      bool           // its end was reported
	places    int            // the most live ones while its samples were scored
}

// Key returns the key of the step.
func (st *Step) Key() Key { return st.key }

// Closes returns the deadline of the step. The deadline orders the queue even if no client has
// declared the step and nothing ends it then.
func (st *Step) Closes() time.Time { return st.closes }

// Closed reports whether the deadline has ended the step.
func (st *Step) Closed() bool { return st.closed }

// First returns the time of the step's first message or sample.
func (st *Step) First() time.Time { return st.first }

// Last returns the time at which the latest sample arrived, or zero if none has arrived.
func (st *Step) Last() time.Time { return st.last }

// Expected returns the declared number of samples, or 0 if it was not declared.
func (st *Step) Expected() int { return st.expected }

// Arrived returns the number of samples that have arrived.
func (st *Step) Arrived() int { return st.arrived }

// InFlight returns the number of arrived samples without a result.
func (st *Step) InFlight() int { return st.inflight }

// Places returns the maximum number of live places at the times at which the step's samples got
// their results.
func (st *Step) Places() int { return st.places }

// Forgotten returns the reason why the step's rows were deleted, or "" if they were not.
func (st *Step) Forgotten() string { return st.forgotten }

// Whole reports whether all expected samples of the step have arrived.
func (st *Step) Whole() bool {
	return st.closed || st.ended || st.expected > 0 && st.arrived >= st.expected
}

// concluded reports whether nothing of the step is open any more.
func (st *Step) concluded() bool { return st.Whole() && st.inflight == 0 }

// short reports whether the deadline left samples without a result of their own.
func (st *Step) short() bool {
	if !st.closed {
		return false
	}
	return len(st.absent) > 0 || st.expected > st.arrived || st.assembly != nil && slices.ContainsFunc(st.assembly.rows, func(r *Row) bool { return r.atDeadline })
}
