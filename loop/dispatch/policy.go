package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// policy decides which sample of a profile is next, and for whom. A profile has its own.
type policy interface {
	// Choose picks the sample whose ticket is next; false: there is none that may go. It is
	// called where samples wait and the queue of tickets has room.
	Choose(v view) (Decision, bool)
	// Reconsider looks again at what was chosen, now that time has passed, and returns the
	// samples whose tickets are to be taken back.
	Reconsider(v view) []Sample
}

// all are the policies, the default first: their names, what a configuration is told of them,
// and what makes one. A new policy is a row here and a file of its own.
func all() []entry {
	return []entry{
		{Random, "any free place in a worker", func() policy { return random{} }},
		{SpeedWeighted, "like random, but clearly slower workers do not get the last samples of a step", func() policy { return &speedWeighted{newRating()} }},
	}
}

// entry is a policy in the list.
type entry struct {
	name, doc string
	make      func() policy
}

// policies are the values of Config.Policy, the default first.
func policies() (names []string) {
	for _, e := range all() {
		names = append(names, e.name)
	}
	return names
}

// newPolicy returns the policy of a name, which is one of policies; the default for any other.
func newPolicy(name string) policy {
	list := all()
	return list[max(0, slices.IndexFunc(list, func(e entry) bool { return e.name == name }))].make()
}

// policyDoc says for people what each policy does.
func policyDoc() string {
	var b strings.Builder
	b.WriteString("Rule that chooses the worker for a sample. ")
	for _, e := range all() {
		fmt.Fprintf(&b, "%s: %s. ", e.name, e.doc)
	}
	return strings.TrimSuffix(b.String(), " ")
}

// view is what a policy sees: a profile, now.
type view struct {
	now     time.Time
	profile *Profile
}

// Decision is the next sample to publish.
type Decision struct {
	Sample Sample
	// Aside lists workers that must leave the sample to faster workers.
	Aside []string
	// Backup reports whether the ticket is the second ticket of a sample that runs long.
	Backup bool
}

// aimed are published samples that some workers are to leave to faster ones, with these
// workers, in the order of arrival.
func (v view) aimed() []Decision {
	all := make([]Decision, 0, len(v.profile.aimed))
	for s, aside := range v.profile.aimed {
		all = append(all, Decision{Sample: s, Aside: aside})
	}
	slices.SortFunc(all, func(a, b Decision) int { return cmp.Compare(a.Sample.Item().order, b.Sample.Item().order) })
	return all
}

// Sample is an accepted sample, as package dispatch uses it.
type Sample interface {
	// Item returns the state that dispatch keeps for the sample.
	Item() *Item
	// Avoids reports whether the worker has failed the sample.
	Avoids(worker string) bool
	// HeldBy reports whether the worker has claimed the sample and not answered it.
	HeldBy(worker string) bool
	// Tried returns the number of workers that have failed the sample or hold it.
	Tried() int
	// Published returns when the sample's ticket was last published. Claimed returns when the
	// latest of the workers that hold the sample claimed it.
	Published() time.Time
	Claimed() time.Time
}
