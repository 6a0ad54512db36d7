package dispatch

import (
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Policy decides which sample is next, and for whom.
type Policy interface {
	// Choose picks the sample whose ticket is next; false: there is none that may go.
	Choose(v View) (Decision, bool)
	// Reconsider looks again at what was chosen, now that time has passed, and returns the
	// samples whose tickets are to be taken back.
	Reconsider(v View) []Sample
}

// Decision is a sample whose ticket is next.
type Decision struct {
	Sample Sample
	// Aside names workers that are to leave the sample to faster ones.
	Aside []string
}

// View is what a policy sees.
type View struct {
	Now     time.Time
	Queue   *Queue
	Bench   *Bench
	Workers []wire.WorkerInfo // that live
	// Aimed are published samples that some workers are to leave to faster ones, with these
	// workers, in the order of arrival.
	Aimed func() []Decision
	// Room reports whether a ticket for a sample of the profile may be published.
	Room func(profile string) bool
	// Unclaimed is the number of tickets that no worker has claimed.
	Unclaimed int
}

// seats are the live workers as of now.
func (v *View) seats() []seat {
	v.Bench.See(v.Workers)
	return v.Bench.seats
}

// New returns the policy of a name, which is one of Policies.
func New(name string) Policy {
	if name == SpeedWeighted {
		return &speedWeighted{rating{of: map[*Run]*field{}}}
	}
	return random{}
}

// Sample is what dispatch needs of a sample that was accepted.
type Sample interface {
	// Item is what dispatch keeps of the sample.
	Item() *Item
	// Avoids reports whether the worker has failed the sample.
	Avoids(worker string) bool
	// HeldBy reports whether the worker has claimed the sample and not answered.
	HeldBy(worker string) bool
	// Tried is how many workers have failed the sample or hold it.
	Tried() int
	// Published is when its ticket was last published, Claimed when the latest of its
	// holders claimed it.
	Published() time.Time
	Claimed() time.Time
}
