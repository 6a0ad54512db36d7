package stream

import (
	"iter"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Flow implements the flow control of a gateway: which sessions have a connection, and how much of
// the memory for frames each of them may use. Busy connections share the memory (share.go); the
// credit of idle connections is reclaimed when others need it. Flow is guarded by the gateway's
// mutex.
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

// NewFlow returns a Flow that divides maxBytes of memory; the sessions of one profile together get
// at most each bytes. full returns what a connection may send of a profile before a frame is
// released. wake is called with the gateway's mutex held when Due has changed, so that Tick is
// called at that time; wake must not block.
func NewFlow(maxBytes, each int64, full func(profile string) wire.CreditTotals, wake func()) *Flow {
	return &Flow{budget: newBudget(maxBytes, each), full: full, wake: wake}
}

// Greeting contains what a session needs when it begins on a connection.
type Greeting struct {
	// Client is the name of the token of the connection. Connections with the same name share the
	// memory like a single connection.
	Client string
	// Reward and Policy apply to samples that set none. A nil Policy means the policy of the
	// profile.
	Reward string
	Policy *rewards.SamplePolicy
	// Booked is the name under which the memory of the profile is accounted.
	Booked string
	// Welcome has the fields Resumed, Rewards and Limits set; the session sets the others.
	Welcome wire.Welcome
	// Confirmed is the number of the latest result that a resuming client has received.
	Confirmed uint64
	// Draining reports whether the gateway accepts no new samples.
	Draining bool
}

// Attach begins a session on a connection: it grants the first credit, sends the welcome message,
// and sends a resuming client the results that it has not received. Attach writes to the connection
// while the gateway's mutex is held, so that no grant or result can precede the welcome message;
// therefore Conn.Send must not block.
func (f *Flow) Attach(s *Session, c Conn, g Greeting) {
	s.credit.reset(&f.budget)
	s.credit.client = g.Client
	s.credit.serves(&f.budget, g.Booked)
	s.live = true
	f.sessions = append(f.sessions, s)
	f.topUp(s)
	s.greet(c, g, s.credit.granted)
}

// Displace detaches a session from its connection because another connection takes over. It returns
// the old connection for the caller to close, or nil if there was none.
func (f *Flow) Displace(s *Session) Conn {
	c := s.Cut()
	f.leave(s)
	return c
}

// Detach records that connection c has ended, and reports whether the session s has no connection
// now; that is false if another connection has taken over s. The unused credit of s is granted to
// other sessions.
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

// Sessions returns the sessions with a connection, in the order of their connections.
func (f *Flow) Sessions() []*Session { return slices.Clone(f.sessions) }

// Spend accounts for a sample that arrives over session s, and reports whether the sample is
// accepted. It is accepted if it is within the credit of s, or if s has no other sample in flight
// and there is memory for it. Without memory, such samples are accepted one after another in the
// reserve; a repeated credit message tells the client when it is its turn. A client that does not
// send want messages gets its share with its first sample.
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

// Skip accounts for a sample that is sent again and needs no memory, because the gateway already
// has it.
func (f *Flow) Skip(now time.Time, s *Session, size int64) Grants {
	s.credit.spend(&f.budget, now, size)
	s.credit.release(&f.budget, size)
	return f.topUpOne(s)
}

// Want records how much a client has to send beyond its credit, and grants it more credit.
func (f *Flow) Want(now time.Time, s *Session, more wire.Want) Grants {
	s.credit.wants(now, more.Bytes)
	return f.topUpOne(s)
}

// Yield accepts credit that a client returns, as totals, and grants it to the others.
func (f *Flow) Yield(now time.Time, s *Session, total wire.Yield) Grants {
	s.credit.yield(&f.budget, now, wire.CreditTotals(total))
	return f.TopUp()
}

// Reserve accounts for the frame of a sample from inside the process, and reports whether there is
// memory for it, in total and in the profile's part.
func (f *Flow) Reserve(profile string, size int64) bool {
	if size > f.budget.free() || size > f.budget.each-f.budget.of[profile] {
		return false
	}
	f.Hold(profile, size)
	return true
}

// Hold accounts for a frame that arrived over no session, even if there is no memory for it. Drop
// ends the Hold.
func (f *Flow) Hold(profile string, size int64) { f.budget.book(profile, size, 0) }

// Drop ends a Hold, and grants the free memory.
func (f *Flow) Drop(profile string, size int64) Grants {
	f.budget.book(profile, -size, 0)
	return f.TopUp()
}

// Release accounts for the end of a frame that arrived over a session, and grants the free memory.
func (f *Flow) Release(s *Session, size int64) Grants {
	s.credit.release(&f.budget, size)
	return f.freed(s)
}

// Refund accounts for the end of a frame whose sample was refused as over_credit after Spend. The
// client does not count the sample as sent, and therefore gets the credit back.
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

// TopUp grants the free bytes to the sessions that should have more credit.
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

// Stuck returns the sessions whose samples wait for samples that cannot arrive, because memory is
// full of waiting samples. Each session is checked when the iterator reaches it, so that what the
// caller has ended for one session counts for the next. No session is stuck while another session
// has credit that its client may return.
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

// Hungry returns the number of connections of a profile that have more to send than credit.
func (f *Flow) Hungry(profile string) (n int) {
	for _, s := range f.sessions {
		if w := &s.credit; w.profile == profile && w.tells && f.lacks(w) {
			n++
		}
	}
	return n
}

// Bytes returns the number of bytes of frames in memory, and the number of bytes granted as credit
// and not used yet.
func (f *Flow) Bytes() (held, granted int64) { return f.budget.held + f.budget.size, f.budget.unused }

// Grants are credit messages and reclaim requests that have not been sent yet.
type Grants []grant

type grant struct {
	session *Session
	conn    Conn
	total   wire.CreditTotals
	reclaim bool
}

// Send sends the messages to the clients. Call it without holding the gateway's mutex. A grant is
// valid for one connection only, because the totals start again with each welcome message.
func (g Grants) Send() {
	for _, one := range g {
		if one.reclaim {
			one.session.sendOver(one.conn, &wire.Reclaim{})
			continue
		}
		one.session.tell(one.conn, wire.Credit(one.total))
	}
}
