package pool

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

const (
	// A device's processes are started anew for want of memory at most once in restartMin, and
	// less often, down to once in restartMax, while that helps nobody.
	restartMin, restartMax = 10 * time.Second, 10 * time.Minute
	// maxHopeless bounds the items that are remembered for having lacked memory even then; the
	// oldest is forgotten.
	maxHopeless = 256
)

// relief is what a device remembers of restarts for want of memory. It is a plain object, as the
// policy is.
type relief struct {
	seed     maphash.Seed
	next     time.Time // no restart before
	vain     int       // restarts in a row that did not help
	hopeless []uint64  // fingerprints of items, the oldest first
	restarts uint64
}

// begin reports whether the device may be restarted for an item.
func (r *relief) begin(key uint64, now time.Time) bool {
	if now.Before(r.next) || slices.Contains(r.hopeless, key) {
		return false
	}
	r.restarts++
	r.next = now.Add(restartMin)
	return true
}

// ended takes in whether a restart has helped its item.
func (r *relief) ended(key uint64, helped bool, now time.Time) {
	if helped {
		r.vain = 0
		return
	}
	r.vain++
	r.next = now.Add(pause(restartMin, restartMax, r.vain))
	if len(r.hopeless) == maxHopeless {
		r.hopeless = slices.Delete(r.hopeless, 0, 1)
	}
	r.hopeless = append(r.hopeless, key)
}

// fingerprint tells an item from others by its model, its key and its data.
func (r *relief) fingerprint(b *batch) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	_, _ = h.WriteString(b.batchQueue.account.model.Path + "\x00" + b.batchQueue.key)
	if m := b.items[0].req.Message; m != nil {
		_, _ = h.Write(m.Head)
		for _, blob := range m.Blobs {
			_, _ = h.Write(blob)
		}
	}
	for _, t := range b.items[0].req.Inputs {
		for _, data := range []any{t.F32, t.I64, t.I32, t.U8} {
			raw, _ := binary.Append(nil, binary.LittleEndian, data) // numbers, which it knows
			_, _ = h.Write(raw)
		}
	}
	return h.Sum64()
}

// relieve runs an item again that the device had no memory for by itself: once the models are
// unloaded that nobody needs, and then once the processes of the device are new. The item keeps
// its slot meanwhile. One that has had such a restart in vain gets no other, and a device has
// few of them; it runs a third time all the same, because a process gives up the memory of a
// model that has lacked some twice in a row.
func (d *device) relieve(b *batch, o outcome) outcome {
	var evicted int
	var failed error // what was done for memory and went wrong
	o = d.repeat(b, o, func(ctx context.Context) {
		evicted, failed = d.clear(ctx, b.batchQueue.account)
	})
	if !errors.Is(o.err, infer.ErrMemory) {
		return o
	}
	key, restarted := d.relief.fingerprint(b), false
	o = d.repeat(b, o, func(ctx context.Context) {
		var err error
		restarted, err = d.restart(ctx, key)
		failed = errors.Join(failed, err)
	})
	lacks := errors.Is(o.err, infer.ErrMemory)
	d.mu.Lock()
	if restarted {
		d.relief.ended(key, !lacks, time.Now())
	}
	d.mu.Unlock()
	o.shared = d.memory.isShared(b.batchQueue.account)
	if !lacks {
		return o
	}
	what := ""
	if restarted {
		what = " and the device's processes were restarted"
	}
	o.err = fmt.Errorf("%w: the item failed %d times in a batch of its own, even after %d other models were unloaded%s", o.err, o.again+1, evicted, what)
	if failed != nil {
		o.err = fmt.Errorf("%w (%s)", o.err, failed.Error()) // its class is not the item's
	}
	return o
}

// repeat does something about the memory of a batch, and runs it again.
func (d *device) repeat(b *batch, o outcome, before func(context.Context)) outcome {
	began := time.Now()
	ctx, end := d.during(b, d.cfg.LoadTimeout)
	before(ctx)
	end()
	spent, again := o.spent+o.took+time.Since(began), o.again+1
	ctx, end = d.during(b, d.cfg.BatchTimeout)
	defer end()
	o = d.execute(ctx, b)
	o.spent, o.again = spent, again
	return o
}

// during is the context of something that is done for a batch that was handed out: it ends when
// nobody waits for the batch any more.
func (d *device) during(b *batch, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := d.bounded(limit)
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.cancel = cancel; b.live == 0 {
		cancel()
	}
	return ctx, cancel
}

// restart starts the device's processes anew, if that is allowed for the item.
func (d *device) restart(ctx context.Context, key uint64) (allowed bool, err error) {
	d.mu.Lock()
	allowed = d.relief.begin(key, time.Now())
	d.mu.Unlock()
	if !allowed {
		return false, nil
	}
	defer caught(&err)
	if err := d.runner.Restart(ctx); err != nil {
		return true, fmt.Errorf("restarting them: %w", err)
	}
	return true, nil
}
