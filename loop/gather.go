package loop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about samples whose reward needs their whole prompt group. Such a
// sample is first scored alone, like any other, by the components that look at one sample.
// Then it waits for its group: its frame stays, its place is free. When the last member has
// come that far, the group gets an entry of its own, which goes through queue, ticket,
// claim and retries as a sample does; whoever claims it has all members' frames. Its
// answer ends all of them at once, with the statistics of the group.

// unitMark begins the ids of groups' own entries; admit refuses it in a client's.
const unitMark = "\x00group\x00"

// nobody owns the entries of groups.
type nobody struct{}

func (nobody) remembers() bool { return false }

func (nobody) deliver(*stored) []byte { return nil }

func (nobody) expects(int64) {}

func (nobody) waits(_ bool, _ wire.CreditTotals) {}

// gather keeps a sample whose own components have been scored for its group.
func (c *core) gather(now time.Time, e *entry, res *wire.Result, fx *effects) {
	g := e.group
	refused := func(class rewards.Class, format string, args ...any) {
		c.settle(now, e, &wire.Result{
			Outcome: rewards.Failed, Worker: res.Worker, TimingMS: res.TimingMS,
			Errors: []rewards.ComponentError{{Class: class, Message: fmt.Sprintf(format, args...)}},
		}, fx)
	}
	switch {
	case g == nil:
		refused(rewards.Internal, "the sample waits for a group but has none")
		return
	case g.closed || g.begun:
		refused(rewards.NoScore, "group %q was scored without the sample, which arrived too late", g.key.uid)
		return
	case len(g.waiting) > 0 && g.profile != e.profile:
		refused(rewards.BadInput, "group %q is scored by the reward %q, but this member asks for %q", g.key.uid, g.profile, e.profile)
		return
	}
	c.recall(now, e, fx)
	c.move(e, awaitsGroup)
	e.partial, e.waitsSince = res, now
	e.waiting = e.owner
	e.waiting.waits(true, wire.CreditTotals{Samples: 1, Bytes: e.bytes})
	fx.waiting = true
	c.alarms.put(&e.alarm, e.deadline)
	if len(g.waiting) == 0 {
		g.profile = e.profile
		// Those who are there by then are scored without the others; that needs time, too.
		c.alarms.put(&g.alarm, g.deadline.Add(-scoringTime(g.deadline.Sub(g.opened))))
	}
	g.waiting[e.key.id] = e
	c.proceed(now, g, fx)
}

// scoringTime is the part of a group's time that is kept for scoring it when members are
// missing: a tenth, at most a minute.
func scoringTime(whole time.Duration) time.Duration { return min(whole/10, time.Minute) }

// proceed has a group scored when every member has come, and all of them wait for it
// or have ended otherwise.
func (c *core) proceed(now time.Time, g *group, fx *effects) {
	if !g.closed && !g.begun && len(g.waiting) > 0 && g.settled+len(g.waiting) >= g.size {
		c.begin(now, g, fx)
	}
}

// begin queues the group's own entry.
func (c *core) begin(now time.Time, g *group, fx *effects) {
	g.begun = true
	c.arrivals++
	unit := &entry{
		unit: g, owner: nobody{}, order: c.arrivals, profile: g.profile, arrived: now, attempt: 1, issued: 1,
	}
	unit.alarm.entry = unit
	for _, e := range g.waiting {
		unit.run, unit.step, unit.key = e.run, e.step, e.key
		unit.bytes += e.bytes
		unit.order = min(unit.order, e.order) // before samples that came later
		if unit.deadline.IsZero() || e.deadline.Before(unit.deadline) {
			unit.deadline = e.deadline
		}
	}
	unit.trace = c.tracedGroup(now, maps.Values(g.waiting))
	unit.key.id = unitMark + string(g.key.step.Split) + fmt.Sprintf("\x00%d\x00", g.key.step.Step) + g.key.uid
	g.unit, g.lastMeanStd, g.absent = unit, c.stats.LastMeanStd(stats.Key(g.key.step)), g.absentees()
	c.units++
	c.entries[unit.key] = unit
	c.alarms.put(&g.alarm, g.deadline)
	unit.item = c.itemOf(unit)
	c.move(unit, queued)
	fx.wake = true
}

// mostAbsent bounds the members that a worker is told are not in a group.
const mostAbsent = 256

// absentees says of the members that have come and do not wait for the group why: the first ones by
// their ids, where there are many.
func (g *group) absentees() map[string]string {
	var absent map[string]string
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		if g.waiting[id] != nil || len(absent) == mostAbsent {
			continue
		}
		if absent == nil {
			absent = map[string]string{}
		}
		absent[id] = rewards.AbsentLate
		if g.members[id].settled {
			absent[id] = rewards.AbsentFailed
		}
	}
	return absent
}

// payload is the members of a group that is claimed. Every frame has a reference more.
func (g *group) payload() *wire.Group {
	p := &wire.Group{UID: g.key.uid, Size: g.size, LastMeanStd: g.lastMeanStd, Absent: g.absent}
	for _, e := range inOrder(maps.Values(g.waiting)) {
		e.frame.Retain()
		p.Members = append(p.Members, wire.GroupMember{Frame: e.frame, Partial: e.partial.Partial})
	}
	return p
}

// finishGroup takes a worker's answer for a whole group.
func (c *core) finishGroup(now time.Time, unit *entry, res *wire.Result, live, elsewhere bool, fx *effects) {
	switch {
	case res.Outcome == rewards.OutcomeCancelled && live:
		c.again(unit, fx)
	case len(res.Members) == 0 && !live:
		c.metrics.late.Inc() // a failure of an attempt that is over says nothing
	case live && elsewhere:
		c.tryRemote(unit, res, fx)
	case len(res.Members) == 0:
		c.failGroup(now, unit, res.Outcome, res.Errors, fx)
	default:
		c.resolve(now, unit, res, fx)
	}
}

// firstErrors are the errors of a result, of a group's those of its first member.
func firstErrors(res *wire.Result) []rewards.ComponentError {
	if len(res.Members) > 0 {
		return res.Members[0].Errors
	}
	return res.Errors
}

// failGroup ends every waiting member in the same way.
func (c *core) failGroup(now time.Time, unit *entry, outcome rewards.Outcome, errs []rewards.ComponentError, fx *effects) {
	unit.trace.fail(errs, outcome)
	res := &wire.Result{}
	for _, e := range inOrder(maps.Values(unit.unit.waiting)) {
		res.Members = append(res.Members, &wire.Result{ID: e.key.id, Outcome: outcome, Errors: slices.Clone(errs)})
	}
	c.resolve(now, unit, res, fx)
}

// resolve ends the members of a group by what a worker said of each, and closes it.
func (c *core) resolve(now time.Time, unit *entry, res *wire.Result, fx *effects) {
	g := unit.unit
	answers := make(map[string]*wire.Result, len(res.Members))
	for _, m := range res.Members {
		answers[m.ID] = m
	}
	// In the order of their arrival, so that results go out in it.
	waiting := inOrder(maps.Values(g.waiting))
	c.dropUnit(now, g, fx)
	for _, e := range waiting {
		m := answers[e.key.id]
		if m == nil {
			m = &wire.Result{Outcome: rewards.Failed, Errors: []rewards.ComponentError{{
				Class: rewards.Internal, Message: fmt.Sprintf("worker %s left the sample out of its group's answer", res.Worker),
			}}}
		}
		c.endMember(now, e, m, res, unit, fx)
	}
	c.closeGroup(now, g, fx)
}

// endMember makes a worker's answer the result of one member; the closing of its group
// finishes it.
func (c *core) endMember(now time.Time, e *entry, m, res *wire.Result, unit *entry, fx *effects) {
	own := *m
	own.Worker = res.Worker
	own.TimingMS = map[string]float64{"group_wait": millis(now.Sub(e.waitsSince))}
	maps.Copy(own.TimingMS, e.partial.TimingMS)
	maps.Copy(own.TimingMS, m.TimingMS) // has the sample's own components, too
	for k, v := range res.TimingMS {    // claim and score, once alone and once with the group
		own.TimingMS[k] += v
	}
	if len(unit.errors) > 0 {
		own.Errors = append(slices.Clip(own.Errors), unit.errors...)
	}
	c.examine(e, &own)
	c.withdraw(now, e, fx)
	c.complete(e, &own)
	e.claims += max(unit.claims-1, 0) // the group's own pass goes on with the first attempt
	own.Attempts = e.claims
	e.result = &own
	c.move(e, awaitsMean)
	e.row.Scored(now)
	e.group.settle(e.key.id, member{values: own.Values, waiting: e})
}

// dropUnit ends a group's own entry.
func (c *core) dropUnit(now time.Time, g *group, fx *effects) {
	unit := g.unit
	if unit == nil {
		return
	}
	g.unit = nil
	c.units--
	c.recall(now, unit, fx)
	unit.trace.scored(unit, now)
	c.move(unit, decided)
	c.move(unit, final)
}

// ungather takes a member that has ended out of those who wait, and ends a group's entry
// for which nobody waits any more.
func (c *core) ungather(now time.Time, e *entry, fx *effects) {
	e.waiting.waits(false, wire.CreditTotals{Samples: 1, Bytes: e.bytes})
	e.waiting = nil
	g := e.group
	delete(g.waiting, e.key.id)
	if len(g.waiting) == 0 && g.unit != nil {
		c.dropUnit(now, g, fx)
		c.alarms.put(&g.alarm, g.deadline) // nobody answers for the group any more
	}
}

// awaited says for whom a sample that waits for its group waits.
func (e *entry) awaited() string {
	g := e.group
	if g.begun {
		return fmt.Sprintf("its group %q was being scored", g.key.uid)
	}
	var rest []string
	for id, m := range g.members {
		if !m.settled && g.waiting[id] == nil {
			rest = append(rest, id)
		}
	}
	slices.Sort(rest)
	text := fmt.Sprintf("the sample waited for its group %q, of which %d of %d members had arrived", g.key.uid, g.arrived, g.size)
	if len(rest) > 0 {
		text += "; not scored yet: " + strings.Join(rest[:min(len(rest), 8)], ", ")
	}
	return text
}

// evict fails the oldest group of a run that still gathers: its frames fill the memory
// that the members it waits for would need.
func (c *core) evict(now time.Time, r *run, fx *effects) {
	var oldest *group
	open := 0
	for _, g := range r.groupLog { // the oldest first
		if len(g.waiting) == 0 || g.closed {
			continue
		}
		if g.begun {
			return // it ends soon, and its memory with it
		}
		open++
		if oldest == nil || g.opened.Before(oldest.opened) {
			oldest = g
		}
	}
	if oldest == nil {
		return
	}
	oldest.begun = true
	for _, e := range inOrder(maps.Values(oldest.waiting)) {
		c.settle(now, e, &wire.Result{Outcome: rewards.Failed, Errors: []rewards.ComponentError{{
			Class: rewards.TooLarge, Message: fmt.Sprintf("loop.max_bytes = %d is full of samples that wait for the rest of %d groups: "+
				"send one group after the other, or raise loop.max_bytes", c.cfg.MaxBytes, open),
		}}}, fx)
	}
}
