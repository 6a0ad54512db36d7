package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// outcome is what became of a batch's run.
type outcome struct {
	// err is why the run failed; it wraps a sentinel of internal/infer.
	err error
	// rows are the items' outputs, and faults what is wrong with them, by item. They
	// are set when err is not.
	rows   [][]infer.Tensor
	faults []error
	took   time.Duration
	// again counts the runs before this one that lacked memory, spent is what they and
	// all that was done to find some took. Shared says that other models have stayed on the device.
	again  int
	spent  time.Duration
	shared bool
}

// errClosed is what a pool that was closed answers with.
var errClosed = fmt.Errorf("%w: the pool is closed", infer.ErrUnavailable)

// ended takes in that a batch that was handed out has run: its items are answered,
// or made up into batches to be run again.
func (p *policy) ended(b *batch, o outcome, now time.Time) {
	l := b.batchQueue
	l.running--
	p.runs = slices.DeleteFunc(p.runs, func(o *batch) bool { return o == b })
	ran := b.items
	p.bill(ran, o.took+o.spent, now)
	l.counts.Busy += o.took + o.spent
	l.counts.Faults += uint64(o.again)
	l.counts.Retries += uint64(o.again)
	b.release()
	if errors.Is(o.err, infer.ErrMemory) && len(ran) == 1 && (l.counts.Items > 0 && ran[0].req.Message == nil || o.shared) {
		// What fits into memory is the same for all items of a batch queue, and others did, but for
		// messages, each of which has a size of its own; or it shares the device with what could
		// not be evicted.
		o.err = infer.Marked(infer.ErrHost, o.err)
	}
	if lost(o.err) || errors.Is(o.err, infer.ErrMemory) && errors.Is(o.err, infer.ErrHost) {
		p.leaveBatch(b, o.err)
	}
	switch {
	case o.err == nil:
		l.ran(len(b.items), o.took)
		p.answer(b, o, now)
	case b.live == 0: // it was ended because nobody waited
	case len(b.items) > 1 && errors.Is(o.err, infer.ErrMemory):
		l.counts.Faults++
		l.short(len(b.items))
		p.halve(b, now)
	case len(b.items) > 1 && !final(o.err):
		l.counts.Faults++
		for _, it := range b.waiting() {
			it.retried = it.retried || errors.Is(o.err, infer.ErrHung)
			p.retry(l, now, it)
		}
	case errors.Is(o.err, infer.ErrHung) && !ran[0].retried:
		// The process may have stood still for a reason of its own.
		l.counts.Faults++
		ran[0].retried = true
		p.retry(l, now, ran[0])
	default:
		l.counts.Faults++
		for _, it := range b.waiting() {
			l.counts.Failed++
			p.give(it, nil, o.err)
		}
	}
	for _, it := range ran {
		if it.state == settled {
			p.book.Drop(it.holder)
		}
	}
	l.open-- // last: what is to be run again has kept the batch queue
	p.measure(now)
}

// bill replaces what the items of a batch were charged in advance by what it took, each an
// equal part.
func (p *policy) bill(items []*item, took time.Duration, now time.Time) {
	each := took.Seconds() / float64(len(items))
	for _, it := range items {
		p.book.End(it.holder, it.use, each, now)
		x := p.part(it.holder, it.account)
		x.used = min(x.used+each-it.charged, x.holder.Data.clock+debt)
	}
}

// leaveBatch moves those of a batch's items whose model has other devices: this one failed them.
func (p *policy) leaveBatch(b *batch, why error) {
	for _, it := range b.waiting() {
		if it.mobile {
			b.live--
			p.moveOn(it, why)
		}
	}
	if b.live == 0 {
		b.batchQueue.counts.Faults++
	}
}

// moveOn answers an item that another device is to have.
func (p *policy) moveOn(it *item, why error) {
	p.counts(it).Moved++
	p.give(it, nil, &moved{why})
}

// move takes out the items that wait, are such, and may move to other devices.
func (p *policy) move(such func(*item) bool, now time.Time) {
	var all []*item
	pick := func(it *item) {
		if it.mobile && such(it) {
			all = append(all, it)
		}
	}
	for h := range p.outside.InTurn(0, now) {
		for it := h.Data.outside.head; it != nil; it = it.next {
			pick(it)
		}
	}
	for h := range p.turns.InTurn(0, now) {
		for _, x := range h.Data.active {
			for _, q := range x.ready {
				for it := q.head; it != nil; it = it.next {
					pick(it)
				}
			}
			for _, b := range x.redo {
				for _, it := range b.waiting() {
					pick(it)
				}
			}
		}
	}
	for _, it := range all {
		p.withdraw(it)
		p.moveOn(it, nil)
	}
	p.refill(now)
}

// final says whether an error holds for every item of a batch: a model that cannot
// be run, or the end of the pool. Any other may be the fault of one item.
func final(err error) bool {
	return errors.Is(err, infer.ErrModel) || errors.Is(err, errClosed)
}

// answer gives every item its rows. One that got NaN or an infinity is run once
// more by itself, on whichever slot is free, before it fails.
func (p *policy) answer(b *batch, o outcome, now time.Time) {
	l := b.batchQueue
	for i, it := range b.items {
		bad := o.faults[i]
		if bad != nil {
			l.counts.Faults++
		}
		switch {
		case it.state == settled: // its caller left during the run
		case bad == nil:
			l.counts.Items++
			p.give(it, o.rows[i], nil)
		case it.retried:
			l.counts.Failed++
			p.give(it, nil, bad)
		default:
			it.retried = true
			p.retry(l, now, it)
		}
	}
}

// halve makes two batches of the items of one that did not fit into memory.
func (p *policy) halve(b *batch, now time.Time) {
	items := b.waiting()
	half := (len(items) + 1) / 2
	p.retry(b.batchQueue, now, items[:half]...)
	p.retry(b.batchQueue, now, items[half:]...)
}

// retry makes a batch to be run again, in the turn of the tenant of its first item.
func (p *policy) retry(l *batchQueue, now time.Time, items ...*item) {
	if len(items) == 0 {
		return
	}
	b := &batch{batchQueue: l, items: items, live: len(items)}
	for _, it := range items {
		it.state, it.batch = parked, b
	}
	l.open++
	l.counts.Retries += uint64(len(items))
	x := p.part(items[0].holder, l.account)
	x.redo = append(x.redo, b)
	p.book.Keep(x.holder) // its items may leave before
	p.activate(x, now)
}

// split takes a run's outputs apart by item, and checks them: as many rows as
// items, each a number. Whole outputs are those of the one item.
func split(names []string, outputs []infer.Tensor, whole bool) (rows [][]infer.Tensor, faults []error, err error) {
	if len(outputs) == 0 {
		return nil, nil, fmt.Errorf("%w: the model returned no output", infer.ErrFault)
	}
	if whole {
		var fault error
		for _, t := range outputs {
			if fault == nil {
				fault = finite(t)
			}
		}
		return [][]infer.Tensor{outputs}, []error{fault}, nil
	}
	for _, t := range outputs {
		if len(t.Shape) == 0 || t.Shape[0] != len(names) {
			return nil, nil, fmt.Errorf("%w: output %q has shape %v for a batch of %d", infer.ErrFault, t.Name, t.Shape, len(names))
		}
	}
	rows, faults = make([][]infer.Tensor, len(names)), make([]error, len(names))
	for i := range names {
		rows[i] = make([]infer.Tensor, len(outputs))
		for k, t := range outputs {
			if rows[i][k], err = t.Row(i); err != nil {
				return nil, nil, err
			}
			if faults[i] == nil {
				faults[i] = finite(rows[i][k])
			}
		}
	}
	return rows, faults, nil
}

// finite says where a float tensor holds NaN or an infinity: there, all bits of
// the exponent are set. It takes about 1 ms for a detector's map of 960×960.
func finite(t infer.Tensor) error {
	const exponent = 0x7f800000
	for i, v := range t.F32 {
		if math.Float32bits(v)&exponent == exponent {
			return fmt.Errorf("%w: output %q is %v at element %d", infer.ErrNumbers, t.Name, v, i)
		}
	}
	return nil
}

// classed says whether an error wraps a sentinel of internal/infer.
func classed(err error) bool {
	for _, class := range []error{
		infer.ErrModel, infer.ErrInput, infer.ErrMemory, infer.ErrFault,
		infer.ErrCrashed, infer.ErrTimeout, infer.ErrUnavailable,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// lost says whether an error of a run tells of a device that does not serve, whatever it is
// asked to run.
func lost(err error) bool {
	host := errors.Is(err, infer.ErrUnavailable) || errors.Is(err, infer.ErrHost)
	return host && !errors.Is(err, infer.ErrMemory) && !errors.Is(err, errClosed)
}

// gaveUp is the answer to a caller whose context has ended: that context's error,
// and infer.ErrTimeout with it if it was the deadline.
func gaveUp(ctx context.Context) error {
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", infer.ErrTimeout, context.DeadlineExceeded)
}

// caught makes an error of a panic in a runner. To be deferred.
func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: panic: %v\n%s", infer.ErrFault, r, debug.Stack())
	}
}
