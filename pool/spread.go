package pool

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
)

// ready waits until a device has the model, and returns the replicas that do, held, without those
// that were tried.
func (m *Model) ready(ctx context.Context, tried []*replica) ([]*replica, error) {
	for {
		ready, pending, err := m.look(tried)
		if len(ready) > 0 {
			return ready, nil
		}
		if len(pending) == 0 {
			return nil, err
		}
		if err := first(ctx, pending); err != nil {
			return nil, err
		}
	}
}

// standing is whether a replica is to be used while there are others.
type standing int

const (
	good    standing = iota
	resting          // its device has failed a moment ago: where no other is ready
	crowded          // it was evicted, and its device has no room: where no other is ready or will be
	standings
)

// look is one round of ready: the replicas that are, held, what is under way for others, and why
// there is neither. All good ones that lack the model are asked to load it.
func (m *Model) look(tried []*replica) (ready []*replica, pending []*attempt, err error) {
	var all [standings][]*replica
	for _, r := range m.replicas {
		if !slices.Contains(tried, r) {
			at := r.hold()
			all[at] = append(all[at], r)
		}
	}
	for at, replicas := range all {
		if len(ready) > 0 || standing(at) == crowded && len(pending) > 0 {
			release(replicas)
			continue
		}
		for _, r := range replicas {
			a, failed := r.poll()
			if a == nil && failed == nil {
				ready = append(ready, r)
				continue
			}
			r.release()
			if a != nil {
				pending = append(pending, a)
			}
			err = worse(err, failed)
		}
	}
	if err != nil && len(m.replicas) > 1 {
		err = fmt.Errorf("none of %d devices serves the model: %w", len(m.replicas), err)
	}
	return ready, pending, err
}

// worse is that of two errors of replicas that says most: one that may pass before one that
// does not, and the first of those.
func worse(a, b error) error {
	stays := func(err error) bool { return errors.Is(err, infer.ErrModel) || errors.Is(err, infer.ErrMissing) }
	if a == nil || b != nil && stays(a) && !stays(b) {
		return b
	}
	return a
}

// first waits until one of several attempts is over.
func first(ctx context.Context, pending []*attempt) error {
	over := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, a := range pending {
		over = append(over, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(a.over)})
	}
	if chosen, _, _ := reflect.Select(over); chosen == 0 {
		return infer.Marked(infer.ErrWaiting, gaveUp(ctx))
	}
	return nil
}

// release lets go of replicas that ready has held.
func release(held []*replica) {
	for _, r := range held {
		r.release()
	}
}

// submit gives an item to the device where it is expected to end first, and lets go of the others.
func (m *Model) submit(it *item, ready []*replica) *replica {
	m.mu.Lock()
	k := m.soonest(ready, it.key)
	r := ready[k]
	r.device.submit(it, r.account)
	m.mu.Unlock()
	release(slices.Delete(ready, k, k+1))
	return r
}

// order puts the device first where an item of the key would end first.
func (m *Model) order(ready []*replica, key string) []*device {
	m.mu.Lock()
	k := m.soonest(ready, key)
	m.mu.Unlock()
	devices := make([]*device, len(ready))
	for i := range ready {
		devices[i] = ready[(k+i)%len(ready)].device
	}
	return devices
}

// soonest is which of the replicas ends an item first. Called with mu held.
func (m *Model) soonest(ready []*replica, key string) int {
	if len(ready) == 1 {
		return 0
	}
	now := time.Now()
	all := make([]forecast, len(ready))
	for i, r := range ready {
		all[i] = r.device.forecast(r.account, key, now)
	}
	m.turn++
	k := soonest(all, m.turn)
	if m.turn%probeEvery == 0 { // what was slow once need not be slow for ever
		for i, r := range ready {
			if all[i].idle() && m.chosen[r] < m.chosen[ready[k]] {
				k = i
			}
		}
	}
	m.chosen[ready[k]] = m.turn
	return k
}

// enter waits for leave to make something ready for one of the devices.
func enter(ctx context.Context, devices []*device, t fair.Tenant) (leave func(), err error) {
	granted := make(chan *visit, len(devices))
	var visits []*visit
	depart := func(but *visit) {
		for _, v := range visits {
			if v != but {
				v.device.depart(v)
			}
		}
	}
	for _, d := range devices {
		v := d.knock(granted, t)
		visits = append(visits, v)
		if len(granted) > 0 {
			break
		}
	}
	select {
	case v := <-granted:
		depart(v)
		if v.err != nil {
			return nil, v.err
		}
		return func() { v.device.depart(v) }, nil
	case <-ctx.Done():
		depart(nil)
		return nil, infer.Marked(infer.ErrWaiting, gaveUp(ctx))
	}
}
