package outbound

import (
	"context"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

var _ rewards.Reliant = (*Upstream)(nil)

// Dependency returns the state of the upstream as a dependency of scorers. The upstream is down
// while no endpoint is in service, because the breakers are open or the endpoints are held. An
// upstream whose endpoints will never be able to serve the requests is not down, because calls fail
// at once and must not wait.
func (g *Upstream) Dependency() rewards.Dependency {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	d := rewards.Dependency{Name: g.cfg.Name, Down: true, Changed: g.changed, Unanswered: g.unanswered(now)}
	for _, e := range g.endpoints {
		b := &e.breaker
		d.Down = d.Down && !e.inService()
		d.Probe = d.Probe || e.held == "" && b.probeDue(now)
		if e.held == "" && b.state == Open && (d.Due.IsZero() || b.due.Before(d.Due)) {
			d.Due = b.due
		}
		if d.Last == "" {
			d.Last = e.why()
		}
		if d.Held == "" {
			d.Held = e.held
		}
	}
	d.Down = d.Down && !g.unable()
	if !d.Down {
		d.Probe, d.Due, d.Held = false, time.Time{}, ""
	}
	return d
}

// unanswered is for how long the endpoints have answered nothing while requests are there:
// since the last answer, or since the oldest of the requests was sent where that is later.
// The caller holds mu.
func (g *Upstream) unanswered(now time.Time) time.Duration {
	var oldest, last time.Time
	for _, e := range g.endpoints {
		if f := e.flights.Front(); f != nil {
			if at, _ := f.Value.(time.Time); oldest.IsZero() || at.Before(oldest) {
				oldest = at
			}
		}
		if e.answered.After(last) {
			last = e.answered
		}
	}
	switch {
	case oldest.IsZero():
		return 0
	case last.After(oldest):
		return now.Sub(last)
	}
	return now.Sub(oldest)
}

// usable reports whether an endpoint may take a request now.
func (g *Upstream) usable(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.endpoints {
		if e.inService() || e.held == "" && e.breaker.probeDue(now) {
			return true
		}
	}
	return false
}

// surrender takes an endpoint out of service to which a call could not connect with its
// last attempt: for a call that is returned to a queue, and has nobody else to try, that is
// as good as BreakAfter failures, because the queue is to stop then.
func (g *Upstream) surrender(ctx context.Context, f *failure) {
	if f.endpoint == nil || f.status != 0 || !f.unserved || !f.retry || !rewards.Returns(ctx) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := f.endpoint; e.breaker.state == Closed {
		e.breaker.open(time.Now())
		g.announce()
		g.urge()
	}
}

// waits reports whether a call failed because the upstream is down: because it was not sent, or
// what was sent had no answer that says otherwise.
func (g *Upstream) waits(f *failure, blame rewards.Blame) bool {
	return f.waits || !f.permanent && blame == rewards.BlameDependency && (f.class == rewards.Unavailable || f.class == rewards.Timeout) &&
		g.Dependency().Down
}
