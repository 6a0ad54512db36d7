package step

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Key names a step. A run that begins anew has none of its steps any more, so that keys need
// no epoch.
type Key struct {
	Run   string
	Split rewards.Split
	Step  int64
}

// KeyOf is the key of a step; one without a split is one of the training.
func KeyOf(run string, split rewards.Split, n int64) Key {
	if split == "" {
		split = rewards.Train
	}
	return Key{run, split, n}
}

// Client names a connection that declares a part of a step.
type Client struct {
	Name string
	Lane int
}

// Step is what has become of one step's samples. Others read it by its methods; only its
// Book changes it.
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

// Key is the step's name.
func (st *Step) Key() Key { return st.key }

// Closes is when the step ends if it has not before; which step's samples go first depends
// on it, also where nobody has declared the step and nothing ends it.
func (st *Step) Closes() time.Time { return st.closes }

// Closed reports whether the deadline has ended the step.
func (st *Step) Closed() bool { return st.closed }

// First is when the step's first word or sample came.
func (st *Step) First() time.Time { return st.first }

// Last is when its latest sample arrived; zero: none has.
func (st *Step) Last() time.Time { return st.last }

// Expected is how many samples were declared; 0: nobody has said.
func (st *Step) Expected() int { return st.expected }

// Arrived is how many samples have come.
func (st *Step) Arrived() int { return st.arrived }

// InFlight is how many of these have no result.
func (st *Step) InFlight() int { return st.inflight }

// Places is the most live places that there were when one of its samples got its result.
func (st *Step) Places() int { return st.places }

// Forgotten is why the step's rows are gone; "": they are not.
func (st *Step) Forgotten() string { return st.forgotten }

// Whole reports whether all that is to come of the step has arrived.
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
