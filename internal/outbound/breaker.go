package outbound

import (
	"slices"
	"time"
)

// State is the state of an endpoint's breaker.
type State string

// The states of a breaker.
const (
	// Closed means that the endpoint is in service.
	Closed State = "closed"
	// Open means that the endpoint gets no requests until a probe is due.
	Open State = "open"
	// HalfOpen means that a probe, one request, is in flight.
	HalfOpen State = "half_open"
)

// verdict is what an attempt says of the endpoint's health.
type verdict int

const (
	unknown verdict = iota // The caller left, or the attempt never got there.
	alive                  // It answered, if only that the request was wrong.
	ill
)

// maxSuspects is how many requests a breaker remembers; beyond them each failure counts.
const maxSuspects = 64

// breaker keeps requests from an endpoint that fails. It has no lock and no clock;
// the upstream's mutex guards it.
type breaker struct {
	after    int           // Failures in a row that open it.
	min, max time.Duration // The pause before a probe.
	trust    time.Duration // UpstreamConfig.TrustFor

	state    State
	row      int           // Failures in a row.
	suspects []uint64      // Requests among them that may be to blame themselves.
	pause    time.Duration // The last pause.
	due      time.Time     // When the next probe is, while open.

	// In a fleet; see gossip.
	told   bool      // It is open on the report of another process only.
	hope   time.Time // When that one's probe is due, if it is.
	failed int64     // How often it opened otherwise.
	found  time.Time // When it last did.
}

func newBreaker(c UpstreamConfig) breaker {
	return breaker{after: c.BreakAfter, min: c.BreakMin, max: c.BreakMax, trust: c.TrustFor, state: Closed}
}

// probeDue reports whether the endpoint waits for a probe that may begin now.
func (b *breaker) probeDue(now time.Time) bool {
	return b.state == Open && !now.Before(b.due)
}

// begin is told of a request that is about to be sent, to an endpoint that is closed
// or whose probe is due, and says whether it is the probe.
func (b *breaker) begin() (probe bool) {
	if b.state == Closed {
		return false
	}
	b.state = HalfOpen
	return true
}

// end is told of the request's end and reports whether the state has changed. What
// was sent before the breaker opened says nothing of the endpoint now: while it is not
// closed only the probe counts. suspect names a request that may have brought about its
// failure itself, 0 for one that cannot: the same request failing again, as it does
// when the loop tries its sample on another worker, says nothing new of the endpoint,
// which would otherwise be taken from everybody for one request it dislikes.
func (b *breaker) end(probe bool, v verdict, suspect uint64, now time.Time) (changed bool) {
	switch {
	case probe && v == unknown:
		b.state, b.due, b.hope = Open, now, time.Time{} // The next call probes.
		return true
	case v == alive && (probe || b.told && b.state == Open): // An answer outweighs any report.
		b.close()
		return true
	case probe:
		b.row++
		b.open(now)
		return true
	case b.state != Closed || v == unknown:
		return false
	case v == alive:
		b.clear()
		return false
	case suspect != 0 && slices.Contains(b.suspects, suspect):
		return false
	}
	if suspect != 0 && len(b.suspects) < maxSuspects {
		b.suspects = append(b.suspects, suspect)
	}
	b.row++
	if b.row < b.after {
		return false
	}
	b.open(now)
	return true
}

func (b *breaker) close() {
	b.state, b.pause, b.told, b.hope = Closed, 0, false, time.Time{}
	b.clear()
}

// follow leaves the endpoint alone because another process, whose probe is due at hope
// after a pause, says that it is dead. It is probed at due if nothing more is heard.
func (b *breaker) follow(due, hope time.Time, pause time.Duration) {
	if b.state == Closed {
		b.state, b.told = Open, true
	}
	if b.told { // A probe that fails goes on where the other process was.
		b.pause = min(pause, b.max)
	}
	b.due, b.hope = due, hope
}

func (b *breaker) clear() {
	b.row, b.suspects = 0, b.suspects[:0]
}

func (b *breaker) open(now time.Time) {
	b.state = Open
	b.pause = min(max(2*b.pause, b.min), b.max)
	b.due = now.Add(b.pause)
	b.told, b.hope, b.found = false, time.Time{}, now
	b.failed++
}
