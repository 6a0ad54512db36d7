package workers

import "time"

// breaker takes a worker out that only errs and lets it back by a canary. It is a
// plain object without a clock or a goroutine; the worker's mutex guards it.
//
//	closed ── threshold failures in a row ──► open ── pause over ──► canary
//	  ▲                                        ▲                       │ │
//	  │                                        └─── it failed (×2) ────┘ │
//	  └──────────────────────── it succeeded ────────────────────────────┘
type breaker struct {
	threshold int
	base, top time.Duration

	failures int // in a row
	pause    time.Duration
	until    time.Time // open until then; zero: closed
	canary   bool      // one sample is out to try
}

// allow returns how many of the free slots may take a sample now.
func (b *breaker) allow(now time.Time, free int) int {
	switch {
	case b.until.IsZero():
		return free
	case b.canary || now.Before(b.until):
		return 0
	}
	return min(free, 1)
}

// started notes that a sample was taken: while the breaker is open it is the canary.
func (b *breaker) started() {
	if !b.until.IsZero() {
		b.canary = true
	}
}

// success closes the breaker.
func (b *breaker) success() {
	b.failures, b.pause, b.until, b.canary = 0, 0, time.Time{}, false
}

// neutral notes an answer that says nothing about the worker: a bad input, a
// cancelled sample. A canary that ends so is tried again.
func (b *breaker) neutral() { b.canary = false }

// failure counts an answer that speaks against the worker and reports whether the
// breaker opened by it.
func (b *breaker) failure(now time.Time) bool {
	b.failures++
	if b.failures < b.threshold && b.until.IsZero() {
		return false
	}
	if !b.until.IsZero() && !b.canary {
		return false // a sample that was out when it opened
	}
	b.pause = min(max(2*b.pause, b.base), b.top)
	b.until, b.canary = now.Add(b.pause), false
	return true
}

func (b *breaker) open() bool { return !b.until.IsZero() }
