package loop

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/internal/ranking"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about time: what needs a look when, and what is decided then. Nobody
// waits for ever, for every entry has an alarm at its deadline or before it.

// tick handles everything whose time has come. It returns tickets to be published again.
func (c *core) tick(now time.Time, workers []wire.WorkerInfo) (again []wire.Ticket, fx effects) {
	c.backupDue = time.Time{}
	c.survey(workers)
	c.breakers.tick(now)
	c.unserve(now, &fx)
	c.unavail(now, &fx)
	for a := c.alarms.ringing(now); a != nil; a = c.alarms.ringing(now) {
		switch {
		case a.group != nil:
			c.lookAtGroup(now, a.group, &fx)
		case a.step != nil:
			c.closeStep(now, a.step, &fx)
		case a.run != nil:
			c.deserted(now, a.run, &fx)
		default:
			if t, republish := c.look(now, a.entry, &fx); republish {
				again = append(again, t)
			}
		}
	}
	c.reconsider(now, workers, &fx)
	c.meetStrangers(&fx)
	fx.failures = append(fx.failures, c.failures.Tick(now)...)
	if c.watched() && !now.Before(c.observed.Add(watchEvery)) {
		fx.progress = c.observe(now)
	}
	fx.faults = c.faults[c.told:]
	c.told = len(c.faults)
	return again, fx
}

// watched reports whether the progress of profiles is looked at although nobody asks.
func (c *core) watched() bool { return len(c.entries) > 0 || c.stuck != "" }

// survey looks at who is there.
func (c *core) survey(workers []wire.WorkerInfo) {
	if c.board.Survey(workers) {
		c.breakers.meet(workers)
	}
}

// maxStrangers bounds how many workers of another configuration are told of.
const maxStrangers = 1024

// meetStrangers tells of workers whose configuration of a profile is another one, once each.
func (c *core) meetStrangers(fx *effects) {
	for _, p := range c.board.Profiles() {
		s := stranger{p.Stranger(), p.Name()}
		if s.worker == "" || c.strangers[s] || len(c.strangers) >= maxStrangers {
			continue
		}
		c.strangers[s] = true
		fx.strangers = append(fx.strangers, s)
	}
}

// unserve decides about samples that no worker takes any more because a breaker has opened:
// tickets come back, and what no worker can ever score fails.
func (c *core) unserve(now time.Time, fx *effects) {
	if news := c.breakers.news; len(news) > 0 {
		fx.breakers, c.breakers.news = append(fx.breakers, news...), nil
		for _, n := range news {
			c.metrics.breakers.Add(float64(map[bool]int{true: 1}[n.Open]))
		}
		for _, e := range c.all() { // it is seldom that one opens
			if e.state == published && !e.item.Profile().Served() {
				c.takeBack(now, e, fx)
			} else if _, hopeless := c.hopeless(e.profile); hopeless && e.state == queued {
				c.doomed = append(c.doomed, e)
			}
		}
	}
	doomed := c.doomed
	c.doomed = nil
	for _, e := range doomed {
		if why, hopeless := c.hopeless(e.profile); hopeless && e.state == queued {
			c.unscorable(now, e, why, fx)
		}
	}
}

// unscorable fails a queued entry that no worker will score.
func (c *core) unscorable(now time.Time, e *entry, why rewards.ComponentError, fx *effects) {
	if e.unit != nil {
		c.failGroup(now, e, rewards.Failed, append([]rewards.ComponentError{why}, e.errors...), fx)
		return
	}
	c.settle(now, e, &wire.Result{Outcome: rewards.Failed, Errors: []rewards.ComponentError{why}}, fx)
}

// lastCall is when a queued sample fails for which no worker's breaker lets it pass: a
// little before its deadline, so that its client learns the reason in time.
func (e *entry) lastCall() time.Time {
	return e.deadline.Add(-min(5*time.Second, e.deadline.Sub(e.arrived)/10))
}

// due is when the next look is needed, whatever happens until then; zero: none is.
func (c *core) due() time.Time {
	at := soonest(c.alarms.next(), c.backupDue, c.breakers.due(), c.failures.Due())
	if c.watched() {
		at = soonest(at, c.observed.Add(watchEvery))
	}
	if len(c.doomed) > 0 || len(c.breakers.news) > 0 {
		return time.Unix(1, 0)
	}
	return at
}

// look decides about one entry whose alarm went off. It always moves or clears the
// alarm.
func (c *core) look(now time.Time, e *entry, fx *effects) (wire.Ticket, bool) {
	switch {
	case e.state == awaitsMean:
		c.releaseWaiting(now, e, fx)
	case !now.Before(e.deadline) && e.unit != nil:
		c.failGroup(now, e, rewards.OutcomeExpired, []rewards.ComponentError{{
			Class: rewards.Expired, Message: fmt.Sprintf("group %q was not scored before the deadline of a member; the group was %s", e.unit.key.uid, e.state),
		}}, fx)
	case !now.Before(e.deadline):
		where, blame := "the sample was "+string(e.state), rewards.BlameNobody
		if n := len(e.attempts); n > 0 {
			where += fmt.Sprintf(" on worker %q", e.attempts[n-1].worker)
		}
		if why, unserved := c.unavailable(e); unserved {
			where += "; " + why.Message
		}
		if e.state == running {
			if awaits := e.item.Profile().Awaits(); awaits != "" {
				where, blame = where+"; the reward was "+awaits, rewards.BlameDependency
			}
		}
		if e.state == awaitsGroup {
			where = e.awaited()
		}
		c.settle(now, e, &wire.Result{
			Outcome: rewards.OutcomeExpired,
			Errors: []rewards.ComponentError{{
				Class: rewards.Expired, Message: e.lateness() + where, Blame: blame,
			}},
		}, fx)
		if e.state == awaitsMean { // its group may outlive it, its deadline does not
			c.releaseWaiting(now, e, fx)
		}
	case e.state == queued && !now.Before(e.lastCall()):
		c.alarms.put(&e.alarm, e.deadline)
		if why, unserved := c.unavailable(e); unserved {
			c.unscorable(now, e, why, fx)
		}
	case e.state == published:
		c.alarms.put(&e.alarm, earliest(e.deadline, now.Add(c.cfg.RepublishAfter)))
		switch p := e.item.Profile(); {
		case !p.Served(): // who is there takes none, or nobody is
			c.takeBack(now, e, fx)
		case p.Free() > 0:
			c.metrics.republished.Inc()
			return c.ticket(e, e.offer), true
		}
	case e.state == running:
		c.overdue(now, e, fx)
	default:
		c.alarms.put(&e.alarm, e.deadline)
	}
	return wire.Ticket{}, false
}

// lateness begins the message of a sample whose time has passed.
func (e *entry) lateness() string {
	if e.step.Closed() {
		return fmt.Sprintf("step %d (%s) ended at its deadline, %v after the sample arrived; ",
			e.step.Key().Step, e.step.Key().Split, e.deadline.Sub(e.arrived).Round(time.Millisecond))
	}
	return fmt.Sprintf("no result within %v; ", e.deadline.Sub(e.arrived))
}

// lookAtGroup decides about a group whose alarm went off. It always moves or clears the
// alarm.
func (c *core) lookAtGroup(now time.Time, g *group, fx *effects) {
	switch {
	case len(g.waiting) > 0 && !g.begun: // the others have had their time
		c.begin(now, g, fx)
	case g.unit != nil: // whoever scores it ends it, by the deadline of a member
		c.alarms.clear(&g.alarm)
	default:
		c.closeGroup(now, g, fx)
		c.alarms.clear(&g.alarm)
	}
}

// soonest is the first of some moments, of which those that are zero never come.
func soonest(of ...time.Time) (at time.Time) {
	for _, t := range of {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// alarm is a moment at which an entry, a group or a step needs a look.
type alarm struct {
	at    time.Time
	entry *entry // or
	group *group // or
	step  *step.Step
	run   *run // that no client is connected to
	place int  // among all, from 1; 0: it is not set
	first int  // tells alarms of the same moment apart: the one that was set first comes first
}

// alarms orders what needs a look by time.
type alarms struct {
	all ranking.Heap[*alarm, byTime]
	set int // so far
}

type byTime struct{}

func (byTime) Before(a, b *alarm) bool {
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.first, b.first)) < 0
}
func (byTime) Place(a *alarm) *int { return &a.place }

// put files the alarm, or moves it.
func (a *alarms) put(al *alarm, at time.Time) {
	if al.first == 0 {
		a.set++
		al.first = a.set
	}
	al.at = at
	a.all.Move(al)
}

func (a *alarms) clear(al *alarm) { a.all.Remove(al) }

// ringing is the first alarm, if its time has come; else nil.
func (a *alarms) ringing(now time.Time) *alarm {
	if a.all.Len() == 0 || a.all.First().at.After(now) {
		return nil
	}
	return a.all.First()
}

// next is when the first alarm goes off; zero: there is none.
func (a *alarms) next() time.Time {
	if a.all.Len() == 0 {
		return time.Time{}
	}
	return a.all.First().at
}
