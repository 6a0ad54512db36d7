package stream

import (
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// budget is the gateway's memory for frames: what is held plus what clients may still send
// never exceeds max, but for one message of the reserve. Guarded by the gateway's mutex.
type budget struct {
	max    int64
	each   int64            // most that sessions of one profile hold and may send
	held   int64            // bytes of frames alive, without the one of the reserve
	unused int64            // bytes granted to connections and not yet used
	of     map[string]int64 // what sessions hold and may send, by profile
	lent   *window          // whose message is in the reserve; nil: nobody's
	size   int64            // of that message
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

// quota is what connections get of the memory. A quarter of it is kept for samples from
// inside the process: idle connections would otherwise hold all of it.
func (b *budget) quota() int64 { return b.max - b.max/4 }

// grantable is what may be given out as credit to a session of the profile. A profile whose
// samples are not scored, for whatever reason, leaves the others their part.
func (b *budget) grantable(profile string) int64 {
	return min(b.free()-b.max/4, b.each-b.of[profile])
}

// window is one connection's credit: cumulative totals since its welcome.
// Guarded by the gateway's mutex.
type window struct {
	profile       string // of its samples that name none
	client        string // the name of its token; connections of one name share as one
	granted, sent wire.CreditTotals
	held          wire.CreditTotals // of frames alive that came over this session
	waiting       wire.CreditTotals // of those, the ones that wait for their groups
	open          int64             // samples accepted and not answered

	// demand is how many bytes the connection can use at a time, in flight and as credit, as
	// far as the gateway knows; a connection that has never said it wants all it may have as
	// soon as it sends anything.
	demand   int64
	tells    bool              // it has said what it wants
	used     time.Time         // when its latest sample or want came
	asked    time.Time         // when it was asked for idle credit; zero: it was not, or has answered
	answered time.Time         // when it has
	yields   wire.CreditTotals // what it has handed back
	forced   int64             // bytes that were taken back although it said nothing: it may still send them
	called   bool              // it was told that the reserve is there for its message
	turn     time.Time         // since when; zero: nobody has looked since then
}

func (w *window) unused() wire.CreditTotals {
	return wire.CreditTotals{Samples: w.granted.Samples - w.sent.Samples, Bytes: w.granted.Bytes - w.sent.Bytes}
}

// within reports whether a sample of that size is within the credit.
func (w *window) within(size int64) bool {
	u := w.unused()
	return u.Samples >= 1 && u.Bytes >= size
}

// spend books a sample that arrives.
func (w *window) spend(b *budget, now time.Time, size int64) {
	u := w.unused()
	late := min(w.forced, max(size-u.Bytes, 0)) // it counts as sent already
	w.forced -= late
	w.sent.Samples++
	w.sent.Bytes += size - late
	w.granted.Samples = max(w.granted.Samples, w.sent.Samples)
	w.granted.Bytes = max(w.granted.Bytes, w.sent.Bytes)
	b.book(w.profile, size, -min(size, u.Bytes)) // beyond the grant, only what was granted leaves the budget
	w.held.Samples++
	w.held.Bytes += size
	w.used = now
}

// borrow books a sample that arrives into the reserve.
func (w *window) borrow(b *budget, now time.Time, size int64) {
	w.spend(b, now, size)
	b.book(w.profile, -size, 0)
	b.lent, b.size = w, size
}

// release books the end of a frame. Of several frames of one size, any may count as that in
// the reserve.
func (w *window) release(b *budget, size int64) {
	w.held.Samples--
	w.held.Bytes -= size
	if b.lent == w && b.size == size {
		b.lent, b.size = nil, 0
		return
	}
	b.book(w.profile, -size, 0)
}

// refund counts a sample as not sent, as its client does, unless others need the memory: the
// client then has less credit than it knows, and what is beyond it is refused once more.
func (w *window) refund(b *budget, size int64) {
	if b.grantable(w.profile) < size {
		return
	}
	w.sent.Samples--
	w.sent.Bytes -= size
	b.book(w.profile, 0, size)
}

// park books a frame that stays although nobody works on it, or no longer does.
func (w *window) park(more bool, what wire.CreditTotals) {
	if !more {
		what.Samples, what.Bytes = -what.Samples, -what.Bytes
	}
	w.waiting.Samples += what.Samples
	w.waiting.Bytes += what.Bytes
}

// busy is what is held of frames that somebody works on or that wait for a place.
func (w *window) busy() wire.CreditTotals {
	return wire.CreditTotals{Samples: w.held.Samples - w.waiting.Samples, Bytes: w.held.Bytes - w.waiting.Bytes}
}

// window is what is in flight and what may still be sent, in bytes.
func (w *window) window() int64 { return w.busy().Bytes + w.unused().Bytes }

// stuck reports whether the session's samples wait for others that cannot come: all
// it has is waiting, it has no credit for another one of that size, and will get none.
func (w *window) stuck(b *budget) bool {
	if w.waiting.Samples == 0 || w.busy().Samples > 0 {
		return false
	}
	each := w.waiting.Bytes / w.waiting.Samples
	return !w.within(each) && b.grantable(w.profile) < each
}

// topped is what topUp did.
type topped struct {
	tell  bool // a message is worth sending
	short bool // the connection should have more, and the memory has not
}

// topUp grants the connection more: up to so many samples, and up to its share of the
// memory or what there still is, frames that wait for their groups not counted against it.
// A credit message is worth sending when half of the window has been used up, or nothing is
// in flight and the client may be waiting.
func (w *window) topUp(b *budget, samples, share int64) (g topped) {
	u, busy := w.unused(), w.busy()
	more := samples - u.Samples - busy.Samples
	lack := share - w.window()
	bytes := min(lack, b.grantable(w.profile))
	low := u.Samples <= samples/2 || u.Bytes <= share/2 || busy.Samples == 0
	g.short = lack > max(bytes, 0) && u.Bytes <= share/2
	if !low || (more <= 0 && bytes <= 0) {
		return g
	}
	if busy.Samples > 0 && more < samples/8 && bytes < share/8 {
		return g // more is coming back soon: one message for all of it
	}
	w.granted.Samples += max(more, 0)
	if bytes > 0 {
		known := min(bytes, w.forced) // the client has not counted these as sent
		w.forced -= known
		w.sent.Bytes -= known
		w.granted.Bytes += bytes - known
		b.book(w.profile, 0, bytes)
	}
	g.tell = true
	return g
}

// wants takes what the client has ready beyond its credit.
func (w *window) wants(now time.Time, bytes int64) {
	w.tells = true
	w.demand = w.window() + bytes
	w.used = now
}

// yield books what the client hands back, all in all, as sent.
func (w *window) yield(b *budget, now time.Time, total wire.CreditTotals) {
	samples := min(max(total.Samples-w.yields.Samples, 0), w.unused().Samples)
	w.sent.Samples += samples
	bytes := max(total.Bytes-w.yields.Bytes, 0)
	known := min(bytes, w.forced)
	w.forced -= known
	w.takeBack(b, min(bytes-known, w.unused().Bytes))
	w.yields.Samples, w.yields.Bytes = max(w.yields.Samples, total.Samples), max(w.yields.Bytes, total.Bytes)
	if bytes > 0 {
		w.demand = w.window()
	}
	w.asked, w.answered = time.Time{}, now
}

// force takes all unused credit back from a client that has not answered. What it sends of
// that is refused, and taken again once there is credit.
func (w *window) force(b *budget) {
	u := w.unused().Bytes
	w.takeBack(b, u)
	w.forced += u
	w.asked, w.demand = time.Time{}, 0
}

func (w *window) takeBack(b *budget, bytes int64) {
	w.sent.Bytes += bytes
	b.book(w.profile, 0, -bytes)
}

// reset takes the unused credit back when a connection ends.
func (w *window) reset(b *budget) {
	b.book(w.profile, 0, -w.unused().Bytes)
	*w = window{profile: w.profile, client: w.client, held: w.held, waiting: w.waiting, open: w.open}
}

// serves says which profile the window's samples are of, from now on.
func (w *window) serves(b *budget, profile string) {
	if profile == w.profile {
		return
	}
	held, unused := w.held.Bytes, w.unused().Bytes
	if b.lent == w {
		held -= b.size
	}
	b.book(w.profile, -held, -unused)
	w.profile = profile
	b.book(w.profile, held, unused)
}
