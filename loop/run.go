package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/loop/step"
)

// run is one training run: its queue, its share, and what it remembers. All of it
// is guarded by the manager's mutex.
type run struct {
	name   string
	weight float64
	epoch  uint64

	queued int // samples that wait for a ticket
	// vtime is the slot time the run has had divided by its weight: the run with
	// the smallest is served next. A ticket is charged the run's mean service time
	// when it is published and corrected when its result comes.
	vtime float64
	// mean is the running mean service time of one attempt.
	mean time.Duration
	pace *paces
	// lanes are the steps with samples on their way: the queue (queue.go).
	lanes map[*step.Step]*lane

	inflight int // accepted, not final
	sessions map[sessionID]*Session
	done     *memory
	groups   map[groupKey]*group
	groupLog []*group // in order of first arrival; bounded

	counts  map[string]uint64 // final results by outcome
	lastUse time.Time
}

// precedes reports whether r is served before o.
func (r *run) precedes(o *run) bool {
	return r.vtime < o.vtime || r.vtime == o.vtime && r.name < o.name
}

// defaultService is what a run's first tickets are charged before it has a mean.
const defaultService = 100 * time.Millisecond

func (r *run) expected() time.Duration {
	if r.mean == 0 {
		return defaultService
	}
	return r.mean
}

// observe folds one service time into the mean: the plain mean of the first 16,
// then an exponential one that forgets over about 16 samples.
func (r *run) observe(d time.Duration, n uint64) {
	k := time.Duration(min(n+1, 16))
	r.mean += (d - r.mean) / k
}
