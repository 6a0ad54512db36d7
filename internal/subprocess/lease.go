package subprocess

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// Lease gives its holder exclusive use of a child, so that the holder can prepare the request after
// its turn has come and not before. A Lease is not safe for concurrent use.
type Lease interface {
	// Do sends the request to the child, and returns the child to the pool afterwards. ctx limits
	// the work: at its deadline the child is killed; when ctx is cancelled, Do returns at once, and
	// the child's answer is discarded. The error wraps one of the sentinels, or ctx.Err(). If the
	// request crashed its last child, Do returns after the replacement has answered the canary or
	// failed, which shows whether the request is the cause.
	Do(ctx context.Context, req Request) (Response, error)
	// Release returns the child to the pool, if Do has not done so.
	Release()
}

// lease is that of a Pool.
type lease struct {
	p      *Pool
	turn   fair.Turn
	child  *child // nil: given back
	asked  time.Time
	waited time.Duration
}

// Release implements Lease.
func (l *lease) Release() {
	if l.child == nil {
		return
	}
	l.giveBack(verdict{fate: free})
	l.p.count(func(s *Stats) { s.Busy-- })
	l.turn.Release()
}

// giveBack gives the child to its owner.
func (l *lease) giveBack(v verdict) {
	l.child.back <- v
	l.child = nil
}

// Do implements Lease.
func (l *lease) Do(ctx context.Context, req Request) (Response, error) {
	p := l.p
	if err := p.quarantine.admit(p.cfg, &req); err != nil {
		l.Release()
		return Response{}, err
	}
	passed := false
	defer func() {
		if !passed { // else the owner releases it, when the child is free or replaced
			l.turn.Release()
		}
	}()
	ownFault := true
	var deaths []error
	for {
		if err := l.ready(ctx); err != nil {
			return Response{}, errors.Join(fmt.Errorf("%q: %w", req.Name, err), errors.Join(deaths...))
		}
		if len(deaths) > 0 {
			req.began()
		}
		c, began := l.child, time.Now()
		body, v, err := p.run(ctx, c, req)
		if err == nil || !errors.Is(err, errBroken) {
			if passed = v.fate != free; passed {
				v.turn = l.turn
			}
			l.giveBack(v)
			return Response{Body: body, Waited: l.waited, Ran: time.Since(began)}, err
		}
		death, outside := c.autopsy(err)
		next := make(chan error, 1)
		v.next = next
		v.fault = p.fault(death, outside)
		deaths = append(deaths, death)
		if passed = len(deaths) == req.attempts(); passed {
			v.turn = l.turn
		}
		l.giveBack(v)
		p.died(death)
		ownFault = ownFault && !outside
		if len(deaths) < req.attempts() {
			continue
		}
		return Response{}, p.guilty(ctx, req, errors.Join(deaths...), ownFault, next)
	}
}

// ready has a living child at hand: the lease's own, or the next if that died in vain. The
// turn is kept, so that nobody comes before.
func (l *lease) ready(ctx context.Context) error {
	if l.child != nil {
		switch {
		case !l.child.begin():
			l.p.count(func(s *Stats) { s.Busy-- })
			l.child = nil
			return fmt.Errorf("%w: stopping", ErrUnavailable)
		case !l.child.gone():
			return nil
		}
		l.p.count(func(s *Stats) { s.Busy-- })
		l.giveBack(verdict{fate: dead}) // no fault of this request
	}
	c, err := l.p.idle(ctx, nil)
	if err != nil {
		return err
	}
	l.child = c
	c.begin()
	l.waited = time.Since(l.asked)
	return nil
}
