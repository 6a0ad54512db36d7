package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about samples that nobody can score at the moment: an engine or a service
// that they need is down, or no worker takes samples of their profile for another reason.
// They are queued and say for what they wait; after loop.unavailable_after, all waits of a
// sample together, they fail. A return is no attempt: it counts nowhere, and what a worker
// has finished of the sample goes to the next one with it.

// returnedOutcome is that of an attempt whose sample was returned, in traces.
const returnedOutcome = "returned"

// idle is for how long no worker took samples of a profile while some of its samples waited.
type idle struct {
	total time.Duration // so far: a clock that stands while samples are taken
	at    time.Time     // of the last look
	why   string        // then; "": samples were taken
	last  rewards.ComponentError
}

// longestLook bounds what one look adds to the wait: where nothing waits nobody looks, and
// there is no wait.
const longestLook = time.Second

// idleOf is the record of an entry's profile.
func (c *core) idleOf(e *entry) *idle {
	p := e.item.Profile()
	i := c.idle[p]
	if i == nil {
		i = &idle{}
		c.idle[p] = i
	}
	return i
}

// waiting notes that an entry goes from one state to another: it waits from the moment it is
// queued until a worker claims it, or it is over.
func (c *core) waiting(e *entry, to state) {
	was, is := e.state == queued || e.state == published, to == queued || to == published
	switch {
	case is && !was:
		e.mark = c.idleOf(e).total
	case was && !is:
		e.waited += c.idleOf(e).total - e.mark
	}
}

// hasWaited is for how long no worker has taken samples of the profile while the queued entry
// waited, all its waits together.
func (c *core) hasWaited(e *entry) time.Duration { return e.waited + c.idleOf(e).total - e.mark }

// enqueue puts an entry into its queue. One that was returned because a dependency is down
// backs off there, unless a worker that has not returned it may do better.
func (c *core) enqueue(e *entry) {
	p, b := e.item.Profile(), e.gave()
	switch {
	case b.waits == "":
		p.Add(e)
	case !b.whole && len(b.returned) <= 1 && p.Fit(b.returned):
		p.Add(e)
	default:
		e.back.returned = nil
		p.BackOff(e, b.waits, b.whole)
	}
}

// giveBack queues an entry that a worker has returned.
func (c *core) giveBack(e *entry, a attempt, res *wire.Result, fx *effects) {
	if e.back == nil {
		e.back = &giveBack{}
	}
	if a.backup {
		e.backup.claims--
	} else {
		e.claims--
		e.answers--
	}
	if e.unit == nil {
		e.back.kept = res.Partial
	} else {
		for _, m := range res.Members {
			if w := e.unit.waiting[m.ID]; w != nil && len(m.Partial) == len(w.partial.Partial) {
				own := *w.partial // a worker of this process may still read it
				own.Partial = m.Partial
				w.partial = &own
			}
		}
	}
	e.back.waits, e.back.whole = res.Waits, res.Always
	e.back.returned = append(e.back.returned, a.worker)
	if len(res.Errors) > 0 {
		e.back.outage = res.Errors[0]
		c.idleOf(e).last = e.back.outage
	}
	c.metrics.returned.Inc()
	c.again(e, fx)
}

// awaits says for what dependency a queued entry waits; "": for none.
func (e *entry) awaits() string {
	switch {
	case e.state != queued && e.state != published:
		return ""
	case e.item.BackingOff():
		return "waiting for " + e.gave().waits
	}
	return e.item.Profile().Awaits()
}

// lastOutage is what the dependency said last that an entry waits for.
func (c *core) lastOutage(e *entry) rewards.ComponentError {
	switch {
	case e.awaits() == "":
		return rewards.ComponentError{}
	case e.gave().outage.Message != "":
		return e.gave().outage
	}
	return c.idleOf(e).last
}

// unavailable says why no worker takes a queued entry; false: one does.
func (c *core) unavailable(e *entry) (why rewards.ComponentError, unserved bool) {
	if e.state != queued && e.state != published {
		return why, false
	}
	why = rewards.ComponentError{Class: rewards.Unavailable, Blame: rewards.BlameWorker, Message: c.unserved(e.profile)}
	if awaits := e.awaits(); awaits != "" {
		last := c.lastOutage(e)
		why.Component, why.Blame, why.Message = last.Component, rewards.BlameDependency, awaits
		if last.Message != "" {
			why.Message += ", which is down: " + last.Message
		}
	}
	return why, why.Message != ""
}

// unavail looks at the profiles of which no worker takes samples: tickets that nobody will
// claim come back, and samples that have waited for too long fail; in a drain, all that wait
// for a dependency.
func (c *core) unavail(now time.Time, fx *effects) {
	some := false
	for _, p := range c.board.Profiles() {
		i := c.idle[p]
		switch {
		case i == nil: // it never had a sample
			continue
		case i.why == "" && p.Queued() == 0 && p.Out() == 0:
			i.at = now
			continue
		}
		why := c.unserved(p.Name())
		if i.why != "" {
			i.total += min(now.Sub(i.at), longestLook)
		}
		if fresh := i.why == "" && why != ""; fresh && !p.Served() && p.Out() > 0 {
			for _, e := range c.all() {
				if e.state == published && e.item.Profile() == p {
					c.takeBack(now, e, fx)
				}
			}
		}
		i.at, i.why = now, why
		some = some || why != "" || p.AnyBackingOff()
	}
	limit := c.cfg.UnavailableAfter
	if !some || limit == 0 && !c.draining || now.Sub(c.unavailed) < longestLook/10 {
		return
	}
	c.unavailed = now
	for _, e := range c.all() {
		if e.state != queued || (!c.draining || e.awaits() == "") && (limit == 0 || c.hasWaited(e) < limit) {
			continue
		}
		if why, unserved := c.unavailable(e); unserved {
			c.unscorable(now, e, why, fx)
		}
	}
}
