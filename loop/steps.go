package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// stepKey names a step within a run.
type stepKey struct {
	split rewards.Split
	step  int64
}

// step counts what has become of one step's samples. Guarded by the manager's mutex.
type step struct {
	key      stepKey
	closes   time.Time // orders the queue
	first    time.Time
	last     time.Time // arrival of the latest sample
	finished time.Time // latest final result
	expected int       // declared; 0: unknown
	declared map[sessionID]int
	ended    bool // a client said that it sends no more
	arrived  int
	inflight int
	examined int // samples that people look at
	counts   map[rewards.Outcome]int
	stats    stepStats
}

// whole reports whether all that is to come of the step has arrived.
func (st *step) whole() bool { return st.ended || st.expected > 0 && st.arrived >= st.expected }

// keptSteps and keptGroups bound what a run remembers for the status page.
const (
	keptSteps  = 64
	keptGroups = 4096
)

// stepOf returns the run's record of a step, making it on the first sample, and
// forgets the oldest steps that nothing is in flight for.
func (r *run) stepOf(key stepKey, now time.Time, timeout time.Duration) *step {
	if st := r.steps[key]; st != nil {
		return st
	}
	st := &step{key: key, first: now, closes: now.Add(timeout), counts: map[rewards.Outcome]int{}}
	r.steps[key] = st
	r.stepLog = append(r.stepLog, st)
	if len(r.stepLog) > keptSteps {
		for i, old := range r.stepLog {
			if old.inflight == 0 && old != st {
				delete(r.steps, old.key)
				r.stepLog = append(r.stepLog[:i], r.stepLog[i+1:]...)
				break
			}
		}
	}
	return st
}

// groupOf returns the run's record of a prompt group, making it on the first
// member, and forgets the oldest closed groups.
func (r *run) groupOf(key groupKey, size int, now time.Time) (g *group, fresh bool) {
	if g := r.groups[key]; g != nil {
		g.size = max(g.size, size)
		return g, false
	}
	g = newGroup(key, size, now)
	r.groups[key] = g
	r.groupLog = append(r.groupLog, g)
	for len(r.groupLog) > keptGroups && r.groupLog[0].closed {
		delete(r.groups, r.groupLog[0].key)
		r.groupLog = r.groupLog[1:]
	}
	return g, true
}
