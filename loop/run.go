package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/loop/stream"
)

// run is one training run: its queue, its share, and what it remembers. All of it
// is guarded by the manager's mutex.
type run struct {
	name   string
	weight float64
	epoch  uint64

	inflight int // accepted, not final
	sessions map[stream.ID]*stream.Session
	done     *memory
	groups   map[groupKey]*group
	groupLog []*group // in order of first arrival; bounded

	counts  map[string]uint64 // final results by outcome
	lastUse time.Time
	alarm   alarm // set while no client is connected: when its samples are cancelled
}
