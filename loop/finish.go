package loop

import (
	"context"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about workers' answers: whether one counts, what it cost, and whether
// another worker is to try.

// Finish accepts a worker's result. Finish returns nil if the gateway is now responsible for
// answering the sample, whether the result is the first one or came too late.
func (m *Manager) Finish(_ context.Context, _ wire.Ticket, res *wire.Result) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrStopped
	}
	own := *res // a worker in this process still reads its own while the group finishes ours
	now := time.Now()
	fx := m.core.finish(now, &own)
	var grants stream.Grants
	if fx.waiting {
		grants = m.relieve(now, &fx)
	}
	m.mu.Unlock()
	m.apply(fx)
	grants.Send()
	return nil
}

// finish takes a worker's answer. The first one that counts wins; later ones are
// counted and dropped. A failure that another attempt may mend sends the sample
// back to its queue.
func (c *core) finish(now time.Time, res *wire.Result) effects {
	var fx effects
	e := c.entries[sampleKey{res.Attempt.Run, res.Attempt.Epoch, res.ID}]
	if e == nil || e.state == awaitsMean || e.state == awaitsGroup {
		c.metrics.late.Inc()
		return fx
	}
	a, held := c.answered(e, res)
	elsewhere := false
	if held {
		c.account(now, e, a, res)
		if res.Outcome != rewards.OutcomeCancelled {
			e.item.Profile().Answered(e)
			elsewhere = c.judge(now, e, a, res) && now.Before(e.deadline) && (e.another(&c.cfg, a) || e.elsewhere())
			fx.wake = fx.wake || len(c.breakers.news) > 0
		}
	}
	switch {
	case res.Waits != "" && held && e.state == running:
		c.giveBack(e, a, res, &fx)
	case res.Waits != "":
		c.metrics.late.Inc()
	case e.unit != nil:
		c.finishGroup(now, e, res, held && e.state == running, elsewhere, &fx)
	case res.Outcome == rewards.Scored:
		c.settle(now, e, res, &fx)
	case res.Partial != nil:
		c.gather(now, e, res, &fx)
	case !held || e.state != running:
		c.metrics.late.Inc() // a failure of an attempt that is over says nothing
	case res.Outcome == rewards.OutcomeCancelled:
		c.again(e, &fx)
	case elsewhere:
		c.tryRemote(e, res, &fx)
	default:
		c.settle(now, e, res, &fx)
	}
	return fx
}

// answered takes the attempt whose answer this is from the entry.
func (c *core) answered(e *entry, res *wire.Result) (attempt, bool) {
	i := slices.IndexFunc(e.attempts, func(a *attempt) bool { return a.worker == res.Worker && a.number == res.Attempt.Attempt })
	if i < 0 { // perhaps it has claimed a later attempt, too: that one goes on
		return attempt{}, false
	}
	if !e.attempts[i].backup {
		e.answers++
	}
	return c.letGo(e, i, answered), true
}

// account books what the answer of an attempt cost, and what it says of its worker.
func (c *core) account(now time.Time, e *entry, a attempt, res *wire.Result) {
	outcome := string(res.Outcome)
	if res.Partial != nil {
		outcome = string(awaitsGroup) // its own components are scored; the group's answer counts
	}
	if res.Waits != "" {
		outcome = returnedOutcome
	}
	e.tried(a, now, outcome, res.Errors...)
	if res.Waits != "" { // it was not tried
		e.share().Refund(e.chargedFor(a), now.Sub(a.since))
		return
	}
	e.row.Counted(a.worker, a.since, now)
	if res.Outcome == rewards.OutcomeCancelled {
		return
	}
	e.item.Profile().Done(now)
	took := now.Sub(a.since)
	good := res.Outcome == rewards.Scored || res.Partial != nil
	if e.unit == nil && good { // how fast a broken worker fails says nothing
		e.share().Observe(took)
		if c.cfg.Dispatch.BackupAfter > 0 || c.cfg.Dispatch.Policy == dispatch.SpeedWeighted {
			e.share().ObservePace(a.worker, took)
		}
	}
	e.share().Refund(e.chargedFor(a), took)
	switch {
	case a.backup && good:
		c.metrics.backupsWon.Inc()
	case a.backup:
		c.metrics.backupSeconds.Add(took.Seconds())
	}
}

// tryRemote sends an entry to another worker than the one that failed it.
func (c *core) tryRemote(e *entry, res *wire.Result, fx *effects) {
	e.errors = append(e.errors, firstErrors(res)...)
	if !slices.Contains(e.avoid, res.Worker) {
		e.avoid = append(e.avoid, res.Worker)
	}
	c.metrics.retries.Inc()
	c.again(e, fx)
}

// again queues the entry for its next attempt, unless a worker is still at another.
// One whose lease has lapsed is not waited for: its worker may be dead.
func (c *core) again(e *entry, fx *effects) {
	fx.wake = true
	switch {
	case e.busy():
		c.watch(e)
		return
	case e.offer != nil:
		c.promote(e)
		return
	}
	dispatch.Over(e)
	e.issued++
	e.attempt = e.issued
	e.backup.attempt = 0 // it has had its backup
	c.move(e, queued)
}
