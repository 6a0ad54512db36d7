package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
)

// device is one device: its runner, its policy and its slots. It has no goroutine
// of its own: whoever changes something (a caller with an item, a run that ended, a
// timer) asks the policy what to run now, and every batch runs on a goroutine of
// its own, at most as many as there are slots.
type device struct {
	name string
	cfg  Config
	// foreseen are the slots that it will have; 0: nobody knows before it is open.
	foreseen int

	memory *memory // of the card; it has a mutex of its own, which is taken after mu

	open    shared[*opened]
	bounded func(time.Duration) (context.Context, context.CancelFunc) // of a run

	runs sync.WaitGroup // the goroutines of batches; none is added once closed is set

	mu     sync.Mutex // guards what follows, the policy and all it holds
	policy *policy
	runner *opened // nil until it is open
	idle   int     // slots that run nothing
	timer  *time.Timer
	closed bool // nothing is run any more
	gone   bool // the runner has been closed, or was never open
	relief relief
	out    time.Time // models that have other devices leave it alone before
	failed int       // times in a row that it was left alone
}

// opened is a runner and what it said about itself.
type opened struct {
	Runner
	slots int
}

// bringUp opens the device. It is the work of device.open.
func (d *device) bringUp(ctx context.Context, open Opener) (*opened, error) {
	r, err := open.Open(ctx, d.name)
	if err != nil {
		return nil, err
	}
	o := &opened{Runner: r, slots: r.Slots()}
	d.mu.Lock()
	usable := o.slots > 0 && !d.gone // gone: the pool closed without waiting for this
	if usable {
		d.runner, d.idle, d.policy.slots = o, o.slots, o.slots
	}
	d.mu.Unlock()
	if usable {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	return nil, errors.Join(fmt.Errorf("%w: %d slots, want 1 or more", infer.ErrUnavailable, o.slots), r.Close(ctx))
}

// forecast is what is to be expected of an item that is not submitted yet.
func (d *device) forecast(a *account, key string, now time.Time) forecast {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.policy.forecast(a, key, now)
}

// submit takes an item of a model in.
func (d *device) submit(it *item, a *account) {
	d.mu.Lock()
	defer d.mu.Unlock()
	it.account = a
	d.policy.add(it, time.Now())
	d.kick()
}

// cancel gives up an item whose caller has left.
func (d *device) cancel(it *item, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy.cancel(it, it.late(err), time.Now())
	d.kick()
}

// knock asks for leave to make something ready for the device.
func (d *device) knock(granted chan *visit, t fair.Tenant) *visit {
	v := &visit{device: d, granted: granted}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		v.state, v.err = departed, errClosed
		granted <- v
		return v
	}
	d.policy.knock(v, t, time.Now())
	return v
}

// depart ends a visit.
func (d *device) depart(v *visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy.depart(v, time.Now())
}

// flush passes on that a step ends.
func (d *device) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy.flush(time.Now())
	d.kick()
}

// refuse answers what is queued, and lets nothing new run.
func (d *device) refuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.kick()
}

// kick starts what should run now. It is called with mu held, after everything
// that may change the policy's mind.
func (d *device) kick() {
	if d.closed {
		d.timer.Stop()
		d.policy.clear(errClosed, time.Now())
		return
	}
	for d.idle > 0 {
		b, wait := d.policy.next(time.Now(), d.idle)
		if b == nil {
			if wait > 0 {
				d.timer.Reset(wait)
			}
			return
		}
		ctx, cancel := d.bounded(d.cfg.BatchTimeout)
		b.cancel = cancel
		d.idle--
		d.memory.hold(b.batchQueue.account)
		d.runs.Go(func() {
			defer cancel()
			d.run(ctx, b)
		})
	}
}

// wake is the timer's function: a wait for a fuller batch is over.
func (d *device) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kick()
}

// run is the goroutine of a batch. The batch's list of items does not change while
// it runs.
func (d *device) run(ctx context.Context, b *batch) {
	o := d.execute(ctx, b)
	if len(b.items) == 1 && errors.Is(o.err, infer.ErrMemory) {
		o = d.relieve(b, o)
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle++
	d.policy.ended(b, o, now)
	d.memory.release(b.batchQueue.account, now)
	switch {
	case o.err == nil:
		d.failed = 0
	case lost(o.err) && !now.Before(d.out):
		d.failed++
		d.out = now.Add(pause(reopenMin, reopenMax, d.failed))
		d.policy.move(func(*item) bool { return true }, now)
	}
	d.kick()
}

// disperse has the items of a model that wait here choose among its devices again.
func (d *device) disperse(a *account) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy.move(func(it *item) bool { return it.account == a }, time.Now())
	d.kick()
}

// execute runs a batch and takes its outputs apart.
func (d *device) execute(ctx context.Context, b *batch) outcome {
	start := time.Now()
	names, outputs, err := d.call(ctx, b)
	o := outcome{took: time.Since(start)}
	if err == nil {
		o.rows, o.faults, err = split(names, outputs, b.items[0].req.Whole)
	}
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), errClosed):
		o.err = errClosed
	case classed(err):
		o.err = err
	case ctx.Err() != nil:
		o.err = fmt.Errorf("%w: a batch of %d did not end within %s", infer.ErrTimeout, len(b.items), d.cfg.BatchTimeout)
	default:
		o.err = fmt.Errorf("%w: %w", infer.ErrFault, err)
	}
	return o
}

// call stacks the items and hands them to the runner.
func (d *device) call(ctx context.Context, b *batch) (names []string, outputs []infer.Tensor, err error) {
	defer caught(&err)
	if err := ctx.Err(); err != nil { // nobody waits for it any more
		return nil, nil, err
	}
	reqs := make([]infer.Request, len(b.items))
	for i, it := range b.items {
		reqs[i] = it.req
	}
	stacked, err := infer.Stack(reqs)
	if err != nil {
		return nil, nil, err
	}
	if len(reqs) > 1 && stacked.Messages == nil { // they were copied: callers that left may have their tensors back
		d.mu.Lock()
		b.release()
		d.mu.Unlock()
	}
	stacked.Began = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		b.runs()
	}
	outputs, err = d.runner.Run(ctx, b.batchQueue.account.model, stacked)
	return stacked.Names, outputs, err
}

// end closes the runner, once nothing runs on it any more or nothing can be done
// about that.
func (d *device) end(ctx context.Context) (err error) {
	defer caught(&err)
	d.mu.Lock()
	r := d.runner
	d.gone = true
	d.mu.Unlock()
	if r == nil {
		return nil
	}
	if err := r.Close(ctx); err != nil {
		return fmt.Errorf("pool: device %s: %w", d.name, err)
	}
	return nil
}
