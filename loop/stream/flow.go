package stream

import (
	"iter"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Flow is the flow control of a gateway: which sessions have a connection, and what these
// may send of the memory for frames. Connections that are busy share it (share.go); the credit
// of idle ones is asked back when others need it. Guarded by the gateway's mutex.
type Flow struct {
	budget   budget
	full     func(profile string) wire.CreditTotals
	wake     func()
	sessions []*Session      // with a live connection, in the order in which these came
	levels   map[party]int64 // the largest window; where there is none, a window has no bound
	line     []*Session      // those whose next message waits for the reserve, in order
	short    bool            // a connection should have more, and the memory has not
	next     time.Time       // when Tick has something to do, while anybody waits
}

// NewFlow divides maxBytes of memory, of which sessions of one profile get no more than
// each. A connection may send up to full of its profile before a frame is released again.
// Wake is called, with the gateway's mutex held, when Tick is to be called at Due; it must
// not block.
func NewFlow(maxBytes, each int64, full func(profile string) wire.CreditTotals, wake func()) *Flow {
	return &Flow{budget: newBudget(maxBytes, each), full: full, wake: wake}
}

// Greeting is what a client is told when its session begins on a connection.
type Greeting struct {
	// Client is the name of the token that the connection came with. Connections of one name
	// share the memory as one does.
	Client string
	// Reward and Policy are for samples that name none; a nil Policy is the profile's own.
	Reward string
	Policy *rewards.SamplePolicy
	// Booked is the name by which the memory of that profile is booked.
	Booked string
	// Welcome has Resumed, Rewards and Limits; the session adds the rest.
	Welcome wire.Welcome
	// Confirmed is the latest result that a resuming client has.
	Confirmed uint64
	// Draining says that the gateway accepts nothing new.
	Draining bool
}

// Attach begins a session on a connection, grants its first credit, welcomes the client,
// and sends a resuming one what it has not got. It writes to the connection while the
// gateway's mutex is held, so that no grant or result can come before the welcome: Send
// must not block.
func (f *Flow) Attach(s *Session, c Conn, g Greeting) {
	s.credit.reset(&f.budget)
	s.credit.client = g.Client
	s.credit.serves(&f.budget, g.Booked)
	s.live = true
	f.sessions = append(f.sessions, s)
	f.topUp(s)
	s.greet(c, g, s.credit.granted)
}

// Displace takes a session's connection away for another one, and returns it for the
// caller to close; nil: it had none.
func (f *Flow) Displace(s *Session) Conn {
	c := s.Cut()
	f.leave(s)
	return c
}

// Detach notes that a connection has ended. It reports whether the session was on it still,
// and has no connection now; what it had not used is then granted to the others.
func (f *Flow) Detach(s *Session, c Conn, now time.Time) (Grants, bool) {
	if !s.lost(c) || !s.live {
		return nil, false // another connection has taken the session over
	}
	f.leave(s)
	s.detached = now
	return f.TopUp(), true
}

// leave counts a session no longer among those with a connection.
func (f *Flow) leave(s *Session) {
	s.live = false
	f.sessions = slices.DeleteFunc(f.sessions, func(o *Session) bool { return o == s })
	f.unqueue(s)
	s.credit.reset(&f.budget)
}

// Sessions are those with a connection, in the order in which these came.
func (f *Flow) Sessions() []*Session { return slices.Clone(f.sessions) }

// Spend books a sample that arrives over a session, and reports whether it may come: it is
// within the credit, or nothing else of the session is in flight, and there is memory for it.
// Where there is none, such samples come one after the other, over the reserve: the session
// is told by a repeated credit when it is its turn. A client that does not say what it wants
// is granted its share with its first sample.
func (f *Flow) Spend(now time.Time, s *Session, size int64) (Grants, bool) {
	w, b := &s.credit, &f.budget
	if !w.tells {
		w.demand = f.full(w.profile).Bytes
	}
	alone := w.open == 0
	switch {
	case w.within(size), alone && b.grantable(w.profile)+w.unused().Bytes >= size:
		w.spend(b, now, size)
	case alone && b.lent == nil && (len(f.line) == 0 || f.line[0] == s):
		w.borrow(b, now, size)
	case alone:
		f.queue(s)
		return nil, false
	default:
		return nil, false
	}
	f.unqueue(s)
	if w.tells {
		return nil, true
	}
	return f.topUpOne(s), true
}

// Skip books a sample that is sent again and needs no memory, since it is known.
func (f *Flow) Skip(now time.Time, s *Session, size int64) Grants {
	s.credit.spend(&f.budget, now, size)
	s.credit.release(&f.budget, size)
	return f.topUpOne(s)
}

// Want takes what a client has ready beyond its credit, and grants it.
func (f *Flow) Want(now time.Time, s *Session, more wire.Want) Grants {
	s.credit.wants(now, more.Bytes)
	return f.topUpOne(s)
}

// Yield takes credit that a client hands back, all in all, and grants it to the others.
func (f *Flow) Yield(now time.Time, s *Session, total wire.Yield) Grants {
	s.credit.yield(&f.budget, now, wire.CreditTotals(total))
	return f.TopUp()
}

// Reserve books the frame of a sample from inside the process, if there is room for it: of all
// memory, and of its profile's part.
func (f *Flow) Reserve(profile string, size int64) bool {
	if size > f.budget.free() || size > f.budget.each-f.budget.of[profile] {
		return false
	}
	f.Hold(profile, size)
	return true
}

// Hold books a frame that came over no session, whether there is room for it or not, and
// Drop its end. What is free then is granted.
func (f *Flow) Hold(profile string, size int64) { f.budget.book(profile, size, 0) }

// Drop is the end of a Hold.
func (f *Flow) Drop(profile string, size int64) Grants {
	f.budget.book(profile, -size, 0)
	return f.TopUp()
}

// Release books the end of a frame that came over a session. What is free now is granted.
func (f *Flow) Release(s *Session, size int64) Grants {
	s.credit.release(&f.budget, size)
	return f.freed(s)
}

// Refund books the end of a frame whose sample was refused as over_credit after Spend: its
// client counts it as not sent, and so has credit for it again.
func (f *Flow) Refund(s *Session, size int64) Grants {
	s.credit.release(&f.budget, size)
	if s.live {
		s.credit.refund(&f.budget, size)
	}
	return f.freed(s)
}

func (f *Flow) freed(s *Session) Grants {
	if f.short || len(f.line) > 0 {
		return f.TopUp()
	}
	return f.topUpOne(s)
}

func (f *Flow) topUpOne(s *Session) Grants {
	if !s.live || !f.topUp(s) {
		return nil
	}
	return Grants{grant{session: s, conn: s.connection(), total: s.credit.granted}}
}

// TopUp gives the bytes that are free to whoever should have more.
func (f *Flow) TopUp() Grants {
	var grants Grants
	f.short = false
	for _, s := range f.sessions {
		if f.topUp(s) {
			grants = append(grants, grant{session: s, conn: s.connection(), total: s.credit.granted})
		}
	}
	if len(f.line) > 0 && f.budget.lent == nil && !f.line[0].credit.called {
		s := f.line[0]
		s.credit.called = true
		grants = append(grants, grant{session: s, conn: s.connection(), total: s.credit.granted})
	}
	return grants
}

// topUp grants a session its share, and reports whether there is something to tell.
func (f *Flow) topUp(s *Session) bool {
	w := &s.credit
	done := w.topUp(&f.budget, f.full(w.profile).Samples, f.share(w))
	if done.short && !f.short {
		f.short = true
		f.wake()
	}
	return done.tell
}

// Stuck are the sessions whose samples wait for others that cannot come, for memory is full
// of samples that wait. Each is looked at when its turn comes: what the caller has ended
// for one counts for the next. Nobody is stuck while another one has credit that it may
// hand back.
func (f *Flow) Stuck() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for _, s := range f.sessions {
			if s.credit.stuck(&f.budget) && !f.surplus(s) && !yield(s) {
				return
			}
		}
	}
}

// surplus reports whether anybody but a session has more credit than an idle connection keeps.
func (f *Flow) surplus(but *Session) bool {
	floor := f.floor()
	return slices.ContainsFunc(f.sessions, func(s *Session) bool { return s != but && s.credit.unused().Bytes > floor })
}

// Hungry is how many connections of a profile want to send more than they have credit for.
func (f *Flow) Hungry(profile string) (n int) {
	for _, s := range f.sessions {
		if w := &s.credit; w.profile == profile && w.tells && f.lacks(w) {
			n++
		}
	}
	return n
}

// Bytes returns how many bytes of frames are held, and how many are granted as credit and
// not yet used.
func (f *Flow) Bytes() (held, granted int64) { return f.budget.held + f.budget.size, f.budget.unused }

// Grants are credit that was given, or is asked for, and is still to be told.
type Grants []grant

type grant struct {
	session *Session
	conn    Conn
	total   wire.CreditTotals
	reclaim bool
}

// Send tells the clients, without the gateway's mutex. A grant is for one connection: the
// totals begin anew with each welcome.
func (g Grants) Send() {
	for _, one := range g {
		if one.reclaim {
			one.session.sendOver(one.conn, &wire.Reclaim{})
			continue
		}
		one.session.tell(one.conn, wire.Credit(one.total))
	}
}
