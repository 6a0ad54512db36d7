package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Stats is the state of a pool. The counters never decrease while the pool exists.
type Stats struct {
	Devices []DeviceStats // sorted by name
}

// DeviceStats is the state of one device.
type DeviceStats struct {
	Device string
	// Slots is how many batches the device can run at the same time, and Running how many are
	// running. Both are 0 until the device is open.
	Slots, Running int
	// Queued is the number of items that wait for a slot, and QueuedBytes their size. Waiting is
	// the number of items that wait for room in the queue.
	Queued, QueuedBytes, Waiting int
	// Inside is the number of callers of Model.Enter that prepare an item, and AtIngress the number
	// of callers that wait for permission.
	Inside, AtIngress int
	// Budget is the maximum number of bytes of all models on the card; 0 means no limit. Taken is
	// the number of bytes of this device's models that are loaded or being loaded.
	Budget, Taken int64
	// Evictions counts models that were unloaded to make room. Restarts counts the restarts of the
	// device's processes because of missing memory.
	Evictions, Restarts uint64
	// Opens counts the attempts to open the device, and OpenFailures the failed attempts.
	Opens, OpenFailures uint64
	Models              []ModelStats // sorted by name
}

// ModelStats is the state of one model on one device.
type ModelStats struct {
	// Model is the model, with the name of the device.
	Model  infer.Model
	Loaded bool
	// Bytes is the amount of the device's memory that the model uses, estimated or as its runner
	// reports. It is 0 before the first load.
	Bytes int64
	// Loads counts the attempts to load the model, and LoadFailures the failed attempts.
	Loads, LoadFailures uint64
	// Total is the sum over all batch queues of the model, including forgotten ones.
	Total       Counts
	BatchQueues []BatchQueueStats // sorted by key
}

// BatchQueueStats is the state of one batch queue: a model's items of equal shapes.
type BatchQueueStats struct {
	Key string
	// Queued is the number of waiting items, and Running the number of running batches.
	Queued, Running int
	// Size is the planned number of items in the next batch. Limit is the maximum, which is lowered
	// when the device runs out of memory.
	Size, Limit int
	// A and C are the measured cost of a batch of b items, S(b) = A + C·b. A is 0 until two sizes
	// have been measured.
	A, C   time.Duration
	Counts Counts
}

// Counts are totals. Every submitted item is counted once in Items, Failed, Expired, Left or Moved
// when it is completed on a device.
type Counts struct {
	// Items counts items that got outputs, and Failed items that got an error. Expired counts items
	// that were dropped at their turn because their deadline had passed. Left counts items whose
	// callers left first. Items that are refused because the pool is closed count as Failed.
	Items, Failed, Expired, Left uint64
	// Moved counts items that went to another device of their model, where they are counted again.
	Moved uint64
	// Batches counts successful batches, and Sizes[b] those with b items.
	Batches uint64
	Sizes   []uint64
	// Faults counts failed runs and rows with NaN or an infinity. Splits counts the failed runs of
	// several items that lacked memory. Retries counts items that ran again because of a fault.
	Faults, Splits, Retries uint64
	// Waits counts how often a free slot waited for a fuller batch.
	Waits uint64
	// Queue is the total time of items in the batch queue. Busy is the total time of slots on its
	// batches, including failed ones.
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
