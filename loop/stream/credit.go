package stream

import "github.com/rewardloop/rewardloop/wire"

// budget is the gateway's memory for frames: what is held plus what clients may
// still send never exceeds max, but for the one message that a connection may
// always send (see spend). Guarded by the gateway's mutex.
type budget struct {
	max    int64
	held   int64 // bytes of frames alive
	unused int64 // bytes granted to connections and not yet used
}

// free is what nobody holds and nobody may send.
func (b *budget) free() int64 { return b.max - b.held - b.unused }

// grantable is what may be given out as credit. A quarter of max is kept for samples
// from inside the process: idle connections would otherwise hold all of it.
func (b *budget) grantable() int64 { return b.free() - b.max/4 }

// window is one connection's credit: cumulative totals since its welcome.
// Guarded by the gateway's mutex.
type window struct {
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
		b.unused -= u.Bytes
		w.granted.Bytes = w.sent.Bytes
	} else {
		b.unused -= size
	}
	w.held.Samples++
	w.held.Bytes += size
	b.held += size
	return true
}

// release books the end of a frame.
func (w *window) release(b *budget, size int64) {
	w.held.Samples--
	w.held.Bytes -= size
	b.held -= size
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
	return (u.Samples < 1 || u.Bytes < each) && b.grantable() < each
}

// topUp grants the connection more, up to its full window or what the budget still has,
// frames that wait for their groups not counted against it. It reports whether a credit
// message is worth sending: half a window has been used up, or nothing is in flight and
// the client may be waiting.
func (w *window) topUp(b *budget, full wire.CreditTotals) bool {
	u := w.unused()
	busy := w.busy()
	samples := full.Samples - u.Samples - busy.Samples
	bytes := min(full.Bytes-u.Bytes-busy.Bytes, b.grantable())
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
		b.unused += bytes
	}
	return true
}

// reclaim takes the unused credit back when a connection ends.
func (w *window) reclaim(b *budget) {
	b.unused -= w.unused().Bytes
	w.granted, w.sent = wire.CreditTotals{}, wire.CreditTotals{}
}
