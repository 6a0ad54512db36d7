package loop

import (
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about samples that end before they are scored: a client takes them back,
// their trainer starts anew, or the gateway stops; and about getting an entry back from
// wherever it is, which every end needs.

// takeBack ends samples of a session that its client takes back.
func (m *Manager) takeBack(s *stream.Session, ids []string) {
	m.mu.Lock()
	var fx effects
	if r := m.current(s); r != nil {
		fx = m.core.cancel(time.Now(), r, ids, "the client took it back")
	}
	m.mu.Unlock()
	m.apply(fx)
}

// cancel ends samples that their client takes back.
func (c *core) cancel(now time.Time, r *run, ids []string, reason string) effects {
	var fx effects
	for _, id := range ids {
		if e := c.entries[sampleKey{r.name, r.epoch, id}]; e != nil && e.state != awaitsMean {
			c.settle(now, e, &wire.Result{
				Outcome: rewards.OutcomeCancelled, Errors: []rewards.ComponentError{{Class: rewards.Cancelled, Message: reason}},
			}, &fx)
		}
	}
	return fx
}

// deserted cancels the samples of a run whose clients have gone for longer than
// Config.ResumeGrace, and for which nobody has fetched rewards meanwhile: what they would have
// a worker do is for nobody. Samples of a step whose size was declared stay: its trainer may
// fetch them over HTTP.
func (c *core) deserted(now time.Time, r *run, fx *effects) {
	c.alarms.clear(&r.alarm)
	for _, e := range c.all() {
		if e.run != r || e.unit != nil || e.state == awaitsMean || e.state == final || !e.owner.remembers() || e.step.Expected() > 0 {
			continue
		}
		c.settle(now, e, &wire.Result{Outcome: rewards.OutcomeCancelled, Errors: []rewards.ComponentError{{
			Class:   rewards.Cancelled,
			Message: fmt.Sprintf("no client of run %q was connected for loop.resume_grace = %v", r.name, c.cfg.ResumeGrace),
		}}}, fx)
	}
}

// abort ends a sample because the gateway does, held or not.
func (c *core) abort(now time.Time, e *entry, reason string, fx *effects) {
	if e.state == awaitsMean {
		c.releaseWaiting(now, e, fx)
		return
	}
	if e.unit != nil { // a group's own entry goes with the last who waits for it
		return
	}
	if e.state == awaitsGroup {
		c.ungather(now, e, fx)
	}
	e.group = nil // nobody waits any more
	c.settle(now, e, &wire.Result{
		Outcome: rewards.OutcomeCancelled, Errors: []rewards.ComponentError{{Class: rewards.Cancelled, Message: reason}},
	}, fx)
}

// newEpoch forgets everything of a run: its trainer started anew and may use its
// ids again.
func (c *core) newEpoch(now time.Time, r *run, epoch uint64) effects {
	var fx effects
	for _, e := range c.all() {
		if e.run != r || e.unit != nil { // a group's own entry goes with the last who waits for it
			continue
		}
		c.withdraw(now, e, &fx)
		e.expects(-1)
		c.move(e, final) // nothing that still holds it may go on with it
		c.metrics.outcomes.WithLabelValues(string(rewards.OutcomeCancelled)).Inc()
	}
	for _, g := range r.groups {
		c.alarms.clear(&g.alarm)
	}
	c.alarms.clear(&r.alarm)
	r.epoch, r.inflight, r.done = epoch, 0, newMemory(c.journal)
	c.journal.begins(r)
	c.heed(c.book.Drop(r.name), &fx)
	r.groups, r.groupLog = map[groupKey]*group{}, nil
	c.board.Clear(r.name)
	return fx
}

// withdraw takes the entry out of wherever it is, and lets its frame go.
func (c *core) withdraw(now time.Time, e *entry, fx *effects) {
	if e.waiting != nil {
		c.ungather(now, e, fx)
	}
	c.recall(now, e, fx)
	if e.frame != nil {
		fx.released = append(fx.released, e.frame)
		e.frame = nil
	}
	if e.state != awaitsMean {
		c.move(e, decided)
	}
}

// recall takes the entry out of the queue and the workers' hands; the caller moves it.
func (c *core) recall(now time.Time, e *entry, fx *effects) {
	switch {
	case e.offer == nil:
	case e.state == published:
		c.rescind(e)
		fx.revoked = append(fx.revoked, c.keyOf(e, e.attempt))
	default:
		fx.revoked = append(fx.revoked, c.keyOf(e, e.offer.number))
		c.dropBackup(e)
	}
	dispatch.Over(e)
	own := len(fx.revoked)
	for len(e.attempts) > 0 { // the sample's one answer is there, or nobody wants it any more
		lapsed := e.attempts[0].state == lapsed
		a := c.letGo(e, 0, revoked)
		e.tried(a, now, string(rewards.OutcomeCancelled))
		if key := c.keyOf(e, a.number); !slices.Contains(fx.revoked[own:], key) {
			fx.revoked = append(fx.revoked, key)
		}
		if lapsed {
			continue
		}
		took := now.Sub(a.since)
		e.share().Refund(e.chargedFor(a), took)
		if e.backup.sent {
			c.metrics.backupSeconds.Add(took.Seconds())
		}
	}
	fx.wake = true
}
