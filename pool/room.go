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
	patience := time.NewTimer(d.cfg.LoadTimeout / 2)
	defer patience.Stop()
	for {
		d.mu.Lock()
		if !a.said {
			a.bytes = estimate
		}
		evict, wait, ok := d.memory.claim(a, time.Now())
		changed, full := d.memory.next(), error(nil)
		if !ok {
			full = d.memory.full(a)
		}
		d.mu.Unlock()
		if ok {
			err := d.unload(ctx, evict)
			if err != nil {
				d.settle(a, false, 0, 0)
			}
			return err
		}
		if d.memory.budget > 0 && a.bytes > d.memory.budget {
			return full
		}
		var soon <-chan time.Time // nil: only a change helps
		if wait > 0 {
			soon = time.After(wait)
		}
		select {
		case <-changed:
		case <-soon:
		case <-patience.C:
			return fmt.Errorf("%w, and none of them became idle within %s: move one to another device, or run it with fewer others",
				full, d.cfg.LoadTimeout/2)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unload unloads models that are out of the book already.
func (d *device) unload(ctx context.Context, evicted []*account) error {
	var errs []error
	for _, v := range evicted {
		err := d.unloadOne(ctx, v.model)
		d.mu.Lock()
		d.memory.unloaded(v)
		d.mu.Unlock()
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
	d.mu.Lock()
	defer d.mu.Unlock()
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
		d.mu.Lock()
		idle, wait := d.memory.idle(a, time.Now())
		for _, v := range idle {
			d.memory.expel(v)
		}
		changed := d.memory.next()
		d.mu.Unlock()
		if n += len(idle); len(idle) > 0 {
			if err := d.unload(ctx, idle); err != nil {
				return n, err
			}
			continue
		}
		if wait == 0 {
			return n, nil
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
}
