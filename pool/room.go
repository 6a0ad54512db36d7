package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// reserve waits until the device has room for a model, and makes it: models that nobody needs
// are unloaded, the least recently used first. It waits for half of LoadTimeout at most, so that
// the other half is left for the load.
func (d *device) reserve(ctx context.Context, a *account, estimate int64) error {
	patience, cancel := context.WithTimeout(ctx, d.cfg.LoadTimeout/2)
	defer cancel()
	for {
		d.memory.mu.Lock()
		if !a.said {
			a.bytes = estimate
		}
		evict, wait, ok := d.memory.claim(a, time.Now())
		changed, full := d.memory.next(), error(nil)
		if !ok {
			full = d.memory.full(a)
		}
		budget, bytes := d.memory.budget, a.bytes
		d.memory.mu.Unlock()
		if ok {
			err := d.unload(ctx, evict)
			if err != nil {
				d.settle(a, false, 0, 0)
			}
			return err
		}
		if budget > 0 && bytes > budget {
			return full
		}
		if err := sleep(patience, changed, wait); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w, and none of them became idle within %s: move one to another device, or run it with fewer others",
				full, d.cfg.LoadTimeout/2)
		} else if err != nil {
			return err
		}
	}
}

// unload unloads models that are out of the book already.
func (d *device) unload(ctx context.Context, evicted []*account) error {
	var errs []error
	for _, v := range evicted {
		err := v.on.unloadOne(ctx, v.model)
		d.memory.mu.Lock()
		d.memory.unloaded(v)
		d.memory.mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("unloading %s to make room: %w", v.model.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (d *device) unloadOne(ctx context.Context, m infer.Model) (err error) {
	defer caught(&err)
	return d.runner.Unload(ctx, m)
}

// settle notes what became of a load for which room was reserved. Bytes is what the model takes;
// 0: the runner did not say.
func (d *device) settle(a *account, loaded bool, bytes int64, took time.Duration) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	if loaded {
		d.memory.loaded(a, bytes, took, time.Now())
	} else {
		d.memory.failed(a)
	}
}

// clear unloads all models beside a that nobody needs, and says how many those were. It waits
// for those that were loaded a moment ago.
func (d *device) clear(ctx context.Context, a *account) (n int, err error) {
	for {
		idle, wait, changed := d.expel(a)
		if n += len(idle); len(idle) > 0 {
			err = d.unload(ctx, idle)
		} else if wait > 0 {
			err = sleep(ctx, changed, wait)
		}
		if err != nil || len(idle) == 0 && wait == 0 {
			return n, err
		}
	}
}

// yield waits until a device on which a load lacked memory has more of it: models beside a that
// nobody needs are unloaded, and those are waited for that somebody does or that are being loaded.
// It fails where there are none, or only such as wait like a.
func (d *device) yield(ctx context.Context, a *account) error {
	d.place(a, starving)
	defer d.place(a, arriving)
	for waited := false; ; waited = true {
		idle, wait, changed := d.expel(a)
		switch {
		case len(idle) > 0:
			return d.unload(ctx, idle)
		case changed == nil && waited: // a load beside it has failed, and took no more memory
			return nil
		case changed == nil:
			return errAlone
		}
		if err := sleep(ctx, changed, wait); err != nil {
			return err
		}
	}
}

func (d *device) place(a *account, p place) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	a.place = p
}

// errAlone says that no other model is on a device.
var errAlone = errors.New("no other model to unload")

// expel takes the models beside a out of the book that nobody needs. Wait is how long it is until
// another one may go, 0: there is none; changed is closed when more may, and nil where none will.
func (d *device) expel(a *account) (idle []*account, wait time.Duration, changed <-chan struct{}) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	idle, wait = d.memory.idle(a, time.Now())
	for _, v := range idle {
		d.memory.expel(v)
	}
	if d.memory.shared(a) {
		changed = d.memory.next()
	}
	return idle, wait, changed
}

// sleep waits for a change, or for so long, 0: for the change alone.
func sleep(ctx context.Context, changed <-chan struct{}, wait time.Duration) error {
	var soon <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		soon = timer.C
	}
	select {
	case <-changed:
		return nil
	case <-soon:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
