package outbound

import (
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// freshAnswer is how long an answer speaks for an endpoint: a process that had one,
	// and no failure since, does not listen to who calls the endpoint dead.
	freshAnswer = 5 * time.Second
	// trusted is for how many times the longest pause an endpoint is left alone on the
	// report of one other process, where the configuration names that pause.
	trusted = 2
	// maxPause bounds what another process may say of a pause.
	maxPause = 10 * time.Minute
	// sameTime is within how long two processes' failures are one event. The one whose
	// name comes first then leads.
	sameTime = time.Second
)

// gossip is what other processes say of an endpoint, and how far it counts here. It has
// no lock and no clock; the upstream's mutex guards it.
type gossip struct {
	reports  map[string]*report // By process; nil: none.
	answered time.Time          // When the endpoint last answered this process.
	since    time.Time          // From when on this process has relied on others.
	// patience stretches the trust in a single report by up to a quarter, so that those who
	// lost it do not ask for themselves at the same time.
	patience float64
}

// report is what one process says of the endpoint.
type report struct {
	failed  int64     // Its own count of failures; 0: it only relies on others.
	at      time.Time // When its last failure was heard of.
	probing bool
	// refuted: the endpoint has answered somebody since. What the process says about
	// this trouble does not count any more.
	refuted bool
}

// hear keeps a process's report and reports whether it is news.
func (h *gossip) hear(from string, o Opening, now time.Time) (w *report, news bool) {
	w = h.reports[from]
	if w == nil {
		if h.reports == nil {
			h.reports = map[string]*report{}
		}
		w, news = &report{}, true
		h.reports[from] = w
	}
	if o.Failed > w.failed {
		w.at, news = now, true
	}
	news = news || o.Probing
	w.failed, w.probing = o.Failed, o.Probing
	return w, news
}

// stands reports whether a process's report counts that has asked for itself.
func (h *gossip) stands() bool {
	for _, w := range h.reports {
		if !w.refuted && w.failed > 0 {
			return true
		}
	}
	return false
}

// refute makes all that was said so far void, and reports whether some of it counted.
func (h *gossip) refute() (some bool) {
	for _, w := range h.reports {
		some = some || !w.refuted
		w.refuted = true
	}
	return some
}

// trust is how long the reports of others are relied on: for a while after this process
// found out itself or began to rely on them; longer as soon as two processes, of which
// it may be one, have found out for themselves, for a while after the second.
func (h *gossip) trust(b *breaker) time.Time {
	since := h.since
	var first, second time.Time // The newest two.
	add := func(at time.Time) {
		switch {
		case at.After(first):
			first, second = at, first
		case at.After(second):
			second = at
		}
	}
	add(b.found)
	for _, w := range h.reports {
		if !w.refuted {
			add(w.at)
		}
	}
	for _, t := range []time.Time{second, b.found} {
		if t.After(since) {
			since = t
		}
	}
	return since.Add(time.Duration(float64(b.trust) * (1 + h.patience/4)))
}

// news is what the others shall know of the endpoints.
func (g *Upstream) news(now time.Time) (open []Opening, alive []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.endpoints {
		b := &e.breaker
		switch {
		case b.state == Closed:
			if len(e.others.reports) > 0 && b.row == 0 && now.Sub(e.others.answered) < freshAnswer {
				alive = append(alive, e.digest)
			}
		case b.state == HalfOpen || !b.told:
			o := Opening{Endpoint: e.digest, Failed: b.failed, Pause: max(b.pause, b.min).Milliseconds(), Probing: b.state == HalfOpen}
			if b.told {
				o.Failed = 0
			}
			if b.state == Open {
				o.Due = b.due.Sub(now).Milliseconds()
			}
			open = append(open, o)
		}
	}
	return open, alive
}

// told is given what another process than self says of the upstream's endpoints; nil: it has
// gone.
func (g *Upstream) told(now time.Time, self, from string, r *Report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed := false
	for _, e := range g.endpoints {
		if r == nil {
			delete(e.others.reports, from)
			continue
		}
		i := slices.IndexFunc(r.Open, func(o Opening) bool { return o.Endpoint == e.digest })
		switch {
		case i >= 0:
			changed = e.hearDead(self, from, r.Open[i], now) || changed
		case slices.Contains(r.Alive, e.digest):
			changed = e.hearAlive(from, now) || changed
		default:
			changed = e.hearClosed(from, now) || changed
		}
	}
	if changed {
		g.announce()
	}
}

// hearDead leaves the endpoint alone until the process that says so has probed it and
// told of it, or has not within the same pause again.
func (e *endpoint) hearDead(self, from string, o Opening, now time.Time) (changed bool) {
	b, h := &e.breaker, &e.others
	w, news := h.hear(from, o, now)
	pause, due := max(saidMS(o.Pause), 0), saidMS(o.Due)
	hope := now.Add(max(due, 0))
	until := now.Add(due + pause + time.Duration(rand.Int64N(int64(pause/4)+1))) // no secret
	switch {
	case w.refuted, b.state == HalfOpen:
		return false
	case b.state == Closed && (!until.After(now) || b.row == 0 && now.Sub(h.answered) < freshAnswer):
		return false
	case b.state == Closed:
		h.since, h.patience = now, rand.Float64() // no secret
		b.follow(earlier(until, h.trust(b)), hope, pause)
		return true
	case !news, !b.told && now.Sub(b.found) < sameTime && self < from:
		return false
	}
	until = earlier(until, h.trust(b))
	if !until.After(b.due) {
		return false
	}
	b.follow(until, hope, pause)
	return true
}

// hearAlive ends what is only based on the report of others. It is said again and again,
// so that it is a reason to probe only if the same process had said otherwise.
func (e *endpoint) hearAlive(from string, now time.Time) (changed bool) {
	w := e.others.reports[from]
	delete(e.others.reports, from)
	e.others.refute()
	return e.release(now, w != nil && !w.refuted)
}

// hearClosed is told that a process does not, or no longer, call the endpoint dead.
func (e *endpoint) hearClosed(from string, now time.Time) (changed bool) {
	w := e.others.reports[from]
	delete(e.others.reports, from)
	if w == nil || w.refuted || e.others.stands() {
		return false
	}
	return e.release(now, true)
}

// release puts an endpoint back into service that was left alone on the report of others;
// of one that this process has found dead itself it may have the probe made now.
func (e *endpoint) release(now time.Time, probe bool) (changed bool) {
	b := &e.breaker
	switch {
	case b.state != Open:
		return false
	case b.told:
		b.close()
		return true
	case probe && b.due.After(now):
		b.due, b.hope = now, time.Time{}
		return true
	}
	return false
}

// saidMS is a number of milliseconds that another process sent, at most maxPause.
func saidMS(ms int64) time.Duration {
	most := maxPause.Milliseconds()
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
