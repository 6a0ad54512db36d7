package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Stats is what a pool is doing and has done. Counters only grow while the pool
// lives.
type Stats struct {
	Devices []DeviceStats // by name
}

// DeviceStats is one device.
type DeviceStats struct {
	Device string
	// Slots is how many batches it can run at once, Running how many it does. Both
	// are 0 until the device is open.
	Slots, Running int
	// Queued items and their bytes wait for a slot; Waiting items wait for room in
	// the queue.
	Queued, QueuedBytes, Waiting int
	// Inside callers of Model.Enter make something ready, AtIngress callers wait for leave.
	Inside, AtIngress int
	// Budget bounds the bytes of models on the card, 0: nothing does, and Taken is what those of the
	// device take that are loaded or being loaded.
	Budget, Taken int64
	// Evictions counts models that were unloaded to make room, Restarts how often the device's
	// processes were started anew for want of memory.
	Evictions, Restarts uint64
	// Opens counts the tries to open the device, OpenFailures those that failed.
	Opens, OpenFailures uint64
	Models              []ModelStats // by name
}

// ModelStats is one model.
type ModelStats struct {
	// Model has the device's name.
	Model  infer.Model
	Loaded bool
	// Bytes is what it takes of the device's memory: estimated, or as the runner says; 0: it
	// was not loaded yet.
	Bytes int64
	// Loads counts the tries to load the model, LoadFailures those that failed.
	Loads, LoadFailures uint64
	// Total is the sum over the model's batch queues, those that were forgotten among them.
	Total       Counts
	BatchQueues []BatchQueueStats // by key
}

// BatchQueueStats is one batch queue: a model's items of equal shapes.
type BatchQueueStats struct {
	Key string
	// Queued items, and Running batches.
	Queued, Running int
	// Size is how many items its next batch should have, Limit how many it may:
	// lowered when the device ran out of memory.
	Size, Limit int
	// A and C are the measured cost of a batch of b items, S(b) = A + C·b; A is 0
	// until two sizes were measured.
	A, C   time.Duration
	Counts Counts
}

// Counts are totals. Every item that was submitted is counted once in Items,
// Failed, Expired, Left or Moved when it is over on a device.
type Counts struct {
	// Items were answered with outputs, Failed with an error of the model. Expired
	// were dropped because their deadline had passed when their turn came, Left are
	// those whose callers gave up first. An item that the pool's end refused counts
	// as Failed.
	Items, Failed, Expired, Left uint64
	// Moved items went to another device of their model, where they are counted.
	Moved uint64
	// Batches went well; Sizes[b] of them had b items.
	Batches uint64
	Sizes   []uint64
	// Faults are runs that failed and rows that held NaN or an infinity; Splits are
	// the runs among them that had no memory. Retries counts items that were run
	// again because of either.
	Faults, Splits, Retries uint64
	// Waits counts the times that a free slot was kept for a fuller batch.
	Waits uint64
	// Queue and Busy are the time that items spent in the batch queue, and that slots spent
	// on its batches, failed ones too.
	Queue, Busy time.Duration
}

// batch counts a batch of b items that went well.
func (c *Counts) batch(b int) {
	c.Batches++
	for len(c.Sizes) <= b {
		c.Sizes = append(c.Sizes, 0)
	}
	c.Sizes[b]++
}

// add sums up.
func (c *Counts) add(o Counts) {
	c.Items += o.Items
	c.Failed += o.Failed
	c.Expired += o.Expired
	c.Left += o.Left
	c.Moved += o.Moved
	c.Batches += o.Batches
	for len(c.Sizes) < len(o.Sizes) {
		c.Sizes = append(c.Sizes, 0)
	}
	for b, n := range o.Sizes {
		c.Sizes[b] += n
	}
	c.Faults += o.Faults
	c.Splits += o.Splits
	c.Retries += o.Retries
	c.Waits += o.Waits
	c.Queue += o.Queue
	c.Busy += o.Busy
}

// stats is a snapshot of a device and its models.
func (d *device) stats(models []*replica) DeviceStats {
	s := DeviceStats{Device: d.name}
	_, s.Opens, s.OpenFailures = d.open.snapshot()
	slices.SortFunc(models, func(a, b *replica) int {
		return cmp.Or(cmp.Compare(a.model.Name, b.model.Name), cmp.Compare(a.model.Path, b.model.Path))
	})
	of := make(map[*account]*ModelStats, len(models))
	s.Models = make([]ModelStats, len(models))
	for i, m := range models {
		s.Models[i].Model = m.model
		s.Models[i].Loaded, s.Models[i].Loads, s.Models[i].LoadFailures = m.load.snapshot()
		of[m.account] = &s.Models[i]
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runner != nil {
		s.Slots, s.Running = d.runner.slots, d.runner.slots-d.idle
	}
	s.Queued, s.QueuedBytes, s.Waiting = d.policy.items, d.policy.bytes, d.policy.full
	s.Inside, s.AtIngress = d.policy.inside, d.policy.atIngress
	s.Restarts = d.relief.restarts
	d.memory.mu.Lock()
	s.Budget = d.memory.budget
	for _, m := range models {
		of[m.account].Bytes = m.account.bytes
		s.Evictions += m.account.evictions
		if m.account.place != absent && m.account.place != leaving {
			s.Taken += m.account.bytes
		}
	}
	d.memory.mu.Unlock()
	for _, m := range models {
		of[m.account].Total.add(m.account.past)
	}
	for _, l := range d.policy.batchQueues {
		if m := of[l.account]; m != nil { // nil: asked for after models was read
			m.Total.add(l.counts)
			m.BatchQueues = append(m.BatchQueues, l.snapshot())
		}
	}
	for i := range s.Models {
		slices.SortFunc(s.Models[i].BatchQueues, func(a, b BatchQueueStats) int { return cmp.Compare(a.Key, b.Key) })
	}
	return s
}

func (l *batchQueue) snapshot() BatchQueueStats {
	s := BatchQueueStats{
		Key: l.key, Queued: l.n, Running: l.running, Size: l.size(), Limit: l.limit,
		A: duration(l.fit.a), C: duration(l.fit.c), Counts: l.counts,
	}
	s.Counts.Sizes = slices.Clone(l.counts.Sizes)
	return s
}
