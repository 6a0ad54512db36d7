package loop

import (
	"fmt"
	"slices"
	"time"
)

// This file is the only one that moves a sample or an attempt from one state to another.
//
// A sample:
//
//	                   ┌──────── back for another attempt ────────┐
//	(new) ──► queued ──┴──► published ──► running ────────────────┘
//	             └─────────────┴─────────────┤
//	                                         ├──► waiting_for_group: waits to be scored with its group
//	                                         │        │
//	                                         └────────┴──► decided ──► waiting_for_group_mean: waits for its group's mean
//	                                                          └──────────┴──► final
//
// An attempt at it:
//
//	offered ──► claimed ──► answered
//	   │           ├──► lapsed ──► answered, or revoked
//	   └───────────┴──► revoked

// state is where an accepted sample is on its way.
type state string

const (
	fresh       state = ""                       // not accepted yet
	queued      state = "queued"                 // in its run's queue, in the gateway
	published   state = "published"              // its ticket is in the queue, unclaimed
	running     state = "running"                // a worker has claimed it
	awaitsGroup state = "waiting_for_group"      // scored alone, waiting for its group to be scored as a whole
	decided     state = "decided"                // out of everybody's hands; the next moment it waits for its group's mean or is final
	awaitsMean  state = "waiting_for_group_mean" // scored or failed, waiting for its prompt group
	final       state = "final"                  // answered; no longer in the table
)

// moves are the states that a sample may have next.
var moves = map[state][]state{ //nolint:gochecknoglobals // a table
	fresh:       {queued},
	queued:      {published, awaitsGroup, decided},
	published:   {queued, running, awaitsGroup, decided},
	running:     {queued, published, running, awaitsGroup, decided},
	awaitsGroup: {decided},
	decided:     {awaitsMean, final},
	awaitsMean:  {final},
}

// move puts a sample into another state, with what follows from that: it is in a queue if
// and only if it is queued.
func (c *core) move(e *entry, to state) {
	if !slices.Contains(moves[e.state], to) {
		c.amiss("sample %s of run %q goes from %q to %q", e.key.id, e.key.run, e.state, to)
	}
	switch {
	case e.state == queued && to == published:
		e.item.Profile().Serve(e)
	case e.state == queued:
		e.item.Profile().Remove(e)
	}
	c.waiting(e, to)
	e.state = to
	switch to {
	case queued:
		c.enqueue(e)
		c.alarms.put(&e.alarm, e.lastCall())
		if _, hopeless := c.hopeless(e.profile); hopeless {
			c.doomed = append(c.doomed, e)
		}
	case awaitsMean:
		c.alarms.put(&e.alarm, e.deadline)
	case final:
		delete(c.entries, e.key)
		c.alarms.clear(&e.alarm)
	}
	if fault := e.fault(); fault != "" {
		c.amiss("sample %s of run %q is %s, and %s", e.key.id, e.key.run, e.state, fault)
	}
}

// fault says what does not go with the sample's state; "": nothing. Some of it is true
// between two moves only.
func (e *entry) fault() string {
	busy := slices.ContainsFunc(e.attempts, func(a *attempt) bool { return a.state == claimed })
	switch {
	case e.item.Queued() != (e.state == queued):
		return fmt.Sprintf("in a queue: %v", e.item.Queued())
	case e.offer != nil && e.state != published && e.state != running:
		return "has a ticket that no worker has claimed"
	case busy && e.state != running:
		return "a worker scores the sample"
	case e.waiting != nil && e.state != awaitsGroup:
		return "its bytes are in the queue"
	case e.frame == nil && e.unit == nil && (e.state == queued || e.state == published || e.state == running || e.state == awaitsGroup):
		return "has no frame"
	}
	return ""
}

// amiss notes something that must not be: a defect of the gateway. It goes on, for others
// are waiting; the log and a counter say so.
func (c *core) amiss(format string, args ...any) {
	c.metrics.amiss.Inc()
	if len(c.faults) < 16 {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

// attemptState is where an attempt is.
type attemptState string

const (
	offered  attemptState = "offered"  // its ticket is in the queue, unclaimed
	claimed  attemptState = "claimed"  // a worker has the payload
	lapsed   attemptState = "lapsed"   // another worker has claimed the same ticket since; its answer may still be the first
	answered attemptState = "answered" // over
	revoked  attemptState = "revoked"  // over: nobody wants its answer
)

// turns are the states that an attempt may have next. A ticket whose lease has lapsed is
// offered again without the gateway's doing: a claim of it begins an attempt.
var turns = map[attemptState][]attemptState{ //nolint:gochecknoglobals // a table
	"":      {offered, claimed},
	offered: {claimed, revoked},
	claimed: {lapsed, answered, revoked},
	lapsed:  {answered, revoked},
}

// turn puts an attempt into another state, with what follows from that: tickets are counted
// while they are offered, a worker's place while it has claimed.
func (c *core) turn(e *entry, a *attempt, to attemptState) {
	if !slices.Contains(turns[a.state], to) {
		c.amiss("attempt %d at sample %s of run %q goes from %q to %q", a.number, e.key.id, e.key.run, a.state, to)
	}
	switch a.state {
	case offered:
		e.item.Profile().Unoffered(e)
		e.offer = nil
	case claimed:
		e.item.Profile().Leave(a.worker)
		c.breakers.holds(a.worker, e.profile, -1)
	}
	a.state = to
	switch to {
	case offered:
		e.item.Profile().Offered(e, a.slow)
		e.offer = a
	case claimed:
		e.attempts = append(e.attempts, a)
		e.item.Profile().Enter(a.worker)
		c.breakers.holds(a.worker, e.profile, 1)
	}
}

// offerTo makes an attempt whose ticket is published.
func (c *core) offerTo(e *entry, now time.Time, a attempt) *attempt {
	a.published = now
	c.turn(e, &a, offered)
	return &a
}

// letGo ends a claimed attempt.
func (c *core) letGo(e *entry, i int, how attemptState) attempt {
	a := e.attempts[i]
	e.attempts = slices.Delete(e.attempts, i, i+1)
	c.turn(e, a, how)
	return *a
}
