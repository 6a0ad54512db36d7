package stream

import "github.com/rewardloop/rewardloop/wire"

// budget is the gateway's memory for frames: what is held plus what clients may
// still send never exceeds max, but for the one message that a connection may
// always send (see spend). Guarded by the gateway's mutex.
type budget struct {
	max    int64
	each   int64            // most that sessions of one profile hold and may send
	held   int64            // bytes of frames alive
	unused int64            // bytes granted to connections and not yet used
	of     map[string]int64 // what sessions hold and may send, by profile
}

func newBudget(most, each int64) budget {
	return budget{max: most, each: each, of: map[string]int64{}}
}

// book changes what sessions of a profile hold, and what they may send.
func (b *budget) book(profile string, held, unused int64) {
	b.held += held
	b.unused += unused
	if b.of[profile] += held + unused; b.of[profile] == 0 {
		delete(b.of, profile)
	}
}

// free is what nobody holds and nobody may send.
func (b *budget) free() int64 { return b.max - b.held - b.unused }

// grantable is what may be given out as credit to a session of the profile. A quarter of
// max is kept for samples from inside the process: idle connections would otherwise hold all
// of it. A profile whose samples are not scored, for whatever reason, leaves the others
// their part.
func (b *budget) grantable(profile string) int64 {
	return min(b.free()-b.max/4, b.each-b.of[profile])
}

// window is one connection's credit: cumulative totals since its welcome.
// Guarded by the gateway's mutex.
type window struct {
	profile       string // of its samples that name none
	granted, sent wire.CreditTotals
	held          wire.CreditTotals // of frames alive that came over this session
	parked        wire.CreditTotals // of those, the ones that wait for their groups
	open          int64             // samples accepted and not answered
}

func (w *window) unused() wire.CreditTotals {
	return wire.CreditTotals{Samples: w.granted.Samples - w.sent.Samples, Bytes: w.granted.Bytes - w.sent.Bytes}
}

// spend books a sample that arrived and reports whether it was within the credit,
// or is the one message that a connection may always send: with nothing in flight,
// or a known sample sent again, which is read, compared and released. Frames that
// only an overrun scorer holds do not count as in flight: their samples are
// answered, and the client cannot know of them.
func (w *window) spend(b *budget, size int64, known bool) bool {
	u := w.unused()
	if (u.Samples < 1 || u.Bytes < size) && w.open > 0 && !known {
		return false
	}
	w.sent.Samples++
	w.sent.Bytes += size
	if w.sent.Samples > w.granted.Samples {
		w.granted.Samples = w.sent.Samples
	}
	if w.sent.Bytes > w.granted.Bytes { // beyond the grant: only what was granted leaves the budget
		b.book(w.profile, size, -u.Bytes)
		w.granted.Bytes = w.sent.Bytes
	} else {
		b.book(w.profile, size, -size)
	}
	w.held.Samples++
	w.held.Bytes += size
	return true
}

// release books the end of a frame.
func (w *window) release(b *budget, size int64) {
	w.held.Samples--
	w.held.Bytes -= size
	b.book(w.profile, -size, 0)
}

// park books a frame that stays although nobody works on it, or no longer does.
func (w *window) park(more bool, what wire.CreditTotals) {
	if !more {
		what.Samples, what.Bytes = -what.Samples, -what.Bytes
	}
	w.parked.Samples += what.Samples
	w.parked.Bytes += what.Bytes
}

// busy is what is held of frames that somebody works on or that wait for a slot.
func (w *window) busy() wire.CreditTotals {
	return wire.CreditTotals{Samples: w.held.Samples - w.parked.Samples, Bytes: w.held.Bytes - w.parked.Bytes}
}

// stuck reports whether the session's samples wait for others that cannot come: all
// it has is parked, it has no credit for another one of that size, and will get none.
func (w *window) stuck(b *budget) bool {
	if w.parked.Samples == 0 || w.busy().Samples > 0 {
		return false
	}
	each, u := w.parked.Bytes/w.parked.Samples, w.unused()
	return (u.Samples < 1 || u.Bytes < each) && b.grantable(w.profile) < each
}

// topUp grants the connection more, up to its full window or what the budget still has,
// frames that wait for their groups not counted against it. It reports whether a credit
// message is worth sending: half a window has been used up, or nothing is in flight and
// the client may be waiting.
func (w *window) topUp(b *budget, full wire.CreditTotals) bool {
	u := w.unused()
	busy := w.busy()
	samples := full.Samples - u.Samples - busy.Samples
	bytes := min(full.Bytes-u.Bytes-busy.Bytes, b.grantable(w.profile))
	low := u.Samples <= full.Samples/2 || u.Bytes <= full.Bytes/2 || busy.Samples == 0
	if !low || (samples <= 0 && bytes <= 0) {
		return false
	}
	if busy.Samples > 0 && samples < full.Samples/8 && bytes < full.Bytes/8 {
		return false // more is coming back soon: one message for all of it
	}
	w.granted.Samples += max(samples, 0)
	if bytes > 0 {
		w.granted.Bytes += bytes
		b.book(w.profile, 0, bytes)
	}
	return true
}

// reclaim takes the unused credit back when a connection ends.
func (w *window) reclaim(b *budget) {
	b.book(w.profile, 0, -w.unused().Bytes)
	w.granted, w.sent = wire.CreditTotals{}, wire.CreditTotals{}
}

// serves says which profile the window's samples are of, from now on.
func (w *window) serves(b *budget, profile string) {
	if profile == w.profile {
		return
	}
	bytes := w.held.Bytes + w.unused().Bytes
	b.book(w.profile, -w.held.Bytes, -w.unused().Bytes)
	w.profile = profile
	b.book(w.profile, w.held.Bytes, bytes-w.held.Bytes)
}
