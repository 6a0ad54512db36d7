package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/stream"
)

// run is one training run: its queue, its share, and what it remembers. All of it
// is guarded by the manager's mutex.
type run struct {
	name  string
	epoch uint64
	share *dispatch.Run // of the workers' time

	inflight int // accepted, not final
	sessions map[stream.ID]*stream.Session
	done     *memory
	steps    map[stepKey]*step
	stepLog  []*step // in order of first arrival; bounded
	groups   map[groupKey]*group
	groupLog []*group // in order of first arrival; bounded

	counts  map[string]uint64 // final results by outcome
	lastUse time.Time
	news    chan struct{} // closed when a step has got further; nil: nobody waits
}

// progress tells whoever waits for rewards that there may be more.
func (r *run) progress() {
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}
