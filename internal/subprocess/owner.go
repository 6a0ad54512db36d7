package subprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// own is the life of slot i: a child is started, tended until it is done for,
// reaped, and replaced. It sends one word to first: nil when its first child is
// ready, or why none starts.
func (p *Pool) own(ctx context.Context, i int, first chan<- error) {
	said := false
	say := func(err error) {
		if !said {
			said = true
			first <- err
		}
	}
	fails := 0            // children in a row that died before they answered a request
	var next chan<- error // to be told of the next start; nil: nobody asks
	var turn fair.Turn    // of whoever ended the child: the start of the next is its cost
	defer func() {
		turn.Release()
		if next != nil {
			close(next)
		}
	}()
	for n := 0; ctx.Err() == nil; n++ {
		if n > 0 {
			p.count(func(s *Stats) { s.Restarts++ })
		}
		c, err := p.startChild(ctx, i, n)
		turn.Release()
		if next != nil && ctx.Err() == nil {
			next <- err // capacity 1, and this is the one word
			next = nil
		}
		switch {
		case err == nil:
			say(nil)
			var e end
			e, err = p.tend(ctx, c)
			next, turn = e.next, e.turn
			p.forget(c)
			c.reap()
			fails++
			if c.answered > 0 {
				fails = 0
			}
		case ctx.Err() != nil:
			return
		default:
			fails++
			if p.startFailed(i, err) >= startTries {
				say(err)
			}
		}
		var pause time.Duration
		if fails > 0 {
			pause = p.cfg.backoff(fails)
		}
		if rest, why := p.failed(err); rest > 0 && ctx.Err() == nil {
			turn.Release() // nobody is to pay for the quarantine
			if next != nil {
				next <- why
				next = nil
			}
			pause = max(pause, rest)
		}
		if pause > 0 && !sleep(ctx, pause) {
			return
		}
	}
}

// startChild starts a process and makes it a child that can work: its handler is
// built and has answered the canary.
func (p *Pool) startChild(ctx context.Context, i, n int) (*child, error) {
	recycle := p.cfg.Recycle
	if n == 0 {
		// The first generation ends staggered, so that later ones do not end at once.
		recycle -= recycle * i / (2 * p.cfg.Slots)
	}
	c, err := p.spawnChild(recycle)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StartTimeout)
	defer cancel()
	if err := p.prepare(ctx, c); err != nil {
		if errors.Is(err, errBroken) {
			err, _ = c.autopsy(err)
		}
		c.destroy()
		p.forget(c)
		c.reap()
		return nil, fmt.Errorf("%w: %s child did not start: %w", ErrUnavailable, p.cfg.Kind, err)
	}
	p.ready(i, c)
	return c, nil
}

// spawnChild forks on the thread that lives as long as the pool.
func (p *Pool) spawnChild(recycle int) (*child, error) {
	type result struct {
		proc *process
		err  error
	}
	done := make(chan result, 1)
	p.fork <- func() {
		proc, err := spawn(p.cfg)
		done <- result{proc, err}
	}
	r := <-done
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, r.err)
	}
	c := newChild(r.proc, p.cfg, recycle)
	p.mu.Lock()
	p.live[c] = false
	p.mu.Unlock()
	return c, nil
}

func (p *Pool) prepare(ctx context.Context, c *child) error {
	body, err := c.exchange(ctx, opInit, Request{Meta: p.cfg.Init})
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if p.cfg.Started != nil {
		p.cfg.Started(body)
	}
	if p.cfg.Canary == nil {
		return nil
	}
	return p.prove(ctx, c)
}

// prove asks a child the canary.
func (p *Pool) prove(ctx context.Context, c *child) error {
	body, err := c.exchange(ctx, opDo, p.cfg.Canary.Request)
	if err == nil {
		err = p.cfg.Canary.Check(body)
	}
	if err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	return nil
}

// ready notes that slot i has a child that can work.
func (p *Pool) ready(i int, c *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live[c] = true
	c.renew = p.renew
	p.failing[i] = 0
	p.record.now = nil
	select {
	case <-p.down:
		p.down = make(chan struct{})
	default:
	}
}

// startFailed counts the failed starts of slot i; one that is final counts as three. When every
// slot has failed three times in a row, waiting for a child makes no sense any more.
func (p *Pool) startFailed(i int, err error) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.LastError = err.Error()
	p.failing[i]++
	if said := (*Error)(nil); p.cfg.Final != nil && errors.As(err, &said) && p.cfg.Final(said.Class) {
		p.failing[i] = max(p.failing[i], startTries)
	}
	for _, n := range p.failing {
		if n < startTries {
			return p.failing[i]
		}
	}
	p.refuse(fmt.Errorf("no child starts: %w", err))
	return p.failing[i]
}

// refuse has requests refused that wait for a child, until one is ready. The caller holds mu.
func (p *Pool) refuse(why error) {
	p.downErr = why
	select {
	case <-p.down:
	default:
		close(p.down)
	}
}

func (p *Pool) forget(c *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, c)
}

// end is what the end of a child leaves: who wants to know how its replacement starts, and whose
// turn lasts until then.
type end struct {
	next chan<- error
	turn fair.Turn
}

// tend offers a child to callers until it must be replaced or the pool stops. The error is how
// the child failed, nil if it did not.
func (p *Pool) tend(ctx context.Context, c *child) (end, error) {
	ping := time.NewTicker(p.cfg.PingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return end{}, nil
		case <-c.exited:
			return end{}, p.foundDead(c)
		case <-c.renew:
			return end{}, nil
		case <-ping.C:
			if well, err := p.look(ctx, c); !well {
				return end{}, err
			}
		case p.offer <- c:
			v, back := p.wait(c)
			if !back {
				return end{}, nil
			}
			if idle, err := p.settle(ctx, c, v); !idle {
				return end{v.next, v.turn}, err
			}
			v.turn.Release()
			if c.answered >= c.recycle {
				p.count(func(s *Stats) { s.Recycled++ })
				return end{}, nil
			}
		}
	}
}

// foundDead says how a child died that nobody used; nil: it was killed from outside.
func (p *Pool) foundDead(c *child) error {
	death, outside := c.autopsy(fmt.Errorf("while idle: %w", io.EOF))
	p.died(death)
	if outside {
		return nil
	}
	return death
}

// wait waits for a child that was handed out: its holder gives it back, RequestTimeout after it
// has begun at the latest. One that has not begun loses it when the pool kills its children;
// false says so.
func (p *Pool) wait(c *child) (v verdict, back bool) {
	select {
	case v = <-c.back:
	case <-p.killed:
		if c.revoke() {
			return verdict{}, false
		}
		v = <-c.back
	}
	c.mu.Lock()
	c.working = false
	c.mu.Unlock()
	return v, true
}

// look asks an idle child for a sign of life, or one of a device for the answer of the canary, and
// reports whether it came. Otherwise the child is killed, and the error says how it failed.
func (p *Pool) look(ctx context.Context, c *child) (well bool, fault error) {
	limited, cancel := context.WithTimeout(ctx, min(p.cfg.PingEvery, p.cfg.RequestTimeout))
	defer cancel()
	var err error
	if p.cfg.Device == nil {
		_, err = c.exchange(limited, opPing, Request{})
	} else {
		err = p.prove(limited, c)
	}
	if err == nil || ctx.Err() != nil {
		return err == nil, nil
	}
	if !errors.Is(err, errBroken) {
		c.destroy()
		err = fmt.Errorf("the check of the idle child process failed: %w", err)
	}
	death, outside := c.autopsy(err)
	p.died(death)
	if outside {
		return false, nil
	}
	return false, death
}

// settle does what a verdict asks for and reports whether the child is idle again, or how it
// failed.
func (p *Pool) settle(ctx context.Context, c *child, v verdict) (idle bool, fault error) {
	switch v.fate {
	case free:
		return true, nil
	case dead:
		return false, p.foundDead(c)
	case doubtful:
		return p.look(ctx, c)
	case broken:
		return false, v.fault
	case lingering:
	}
	p.count(func(s *Stats) { s.Busy++ })
	defer p.count(func(s *Stats) { s.Busy-- })
	// Not ctx: the drain of a Stop lets a child finish; hard stop kills it.
	limited, cancel := context.WithDeadline(context.WithoutCancel(ctx), v.until)
	defer cancel()
	_, err := c.await(limited)
	switch {
	case err == nil, errors.Is(err, ErrHandler):
		c.answered++
		if p.suspects(err) {
			return p.look(ctx, c)
		}
		return true, nil
	case errors.Is(err, errBroken):
		death, outside := c.autopsy(err)
		p.died(death)
		return false, p.fault(death, outside)
	}
	c.destroy()
	p.count(func(s *Stats) { s.Timeouts++ })
	return false, fmt.Errorf("%w: child %d was killed: %w", ErrTimeout, c.id, err)
}
