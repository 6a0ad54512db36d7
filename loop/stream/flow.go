package stream

import (
	"iter"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Flow is the flow control of a gateway: which sessions have a connection, and what these
// may send of the memory for frames. Guarded by the gateway's mutex.
type Flow struct {
	budget   budget
	full     func(profile string) wire.CreditTotals
	sessions []*Session // with a live connection, in the order in which these came
}

// NewFlow divides maxBytes of memory, of which sessions of one profile get no more than
// each. A connection may send up to full of its profile before a frame is released again.
func NewFlow(maxBytes, each int64, full func(profile string) wire.CreditTotals) *Flow {
	return &Flow{budget: newBudget(maxBytes, each), full: full}
}

// Greeting is what a client is told when its session begins on a connection.
type Greeting struct {
	// Reward and Policy are for samples that name none; a nil Policy is the profile's own.
	Reward string
	Policy *rewards.SamplePolicy
	// Booked is the name by which the memory of that profile is booked.
	Booked string
	// Welcome has Resumed, Rewards and Limits; the session adds the rest.
	Welcome wire.Welcome
	// Got is the latest result that a resuming client has.
	Got uint64
	// Draining says that the gateway accepts nothing new.
	Draining bool
}

// Attach begins a session on a connection, grants its first credit, welcomes the client,
// and sends a resuming one what it has not got. It writes to the connection while the
// gateway's mutex is held, so that no grant or result can come before the welcome: Send
// must not block.
func (f *Flow) Attach(s *Session, c Conn, g Greeting) {
	s.credit.reclaim(&f.budget)
	s.credit.serves(&f.budget, g.Booked)
	s.credit.topUp(&f.budget, f.full(g.Booked))
	s.live = true
	f.sessions = append(f.sessions, s)
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
	s.credit.reclaim(&f.budget)
}

// Sessions are those with a connection, in the order in which these came.
func (f *Flow) Sessions() []*Session { return slices.Clone(f.sessions) }

// Spend books a sample that arrives over a session against its credit, and reports whether
// it may come: it is within the credit, or nothing else of the session is in flight, or it
// is known, and is sent again.
func (f *Flow) Spend(s *Session, size int64, known bool) bool {
	return s.credit.spend(&f.budget, size, known)
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
	return f.TopUp()
}

// TopUp gives the bytes that are free to whoever is low.
func (f *Flow) TopUp() Grants {
	var grants Grants
	for _, s := range f.sessions {
		if s.credit.topUp(&f.budget, f.full(s.credit.profile)) {
			grants = append(grants, grant{s, s.connection(), s.credit.granted})
		}
	}
	return grants
}

// Stuck are the sessions whose samples wait for others that cannot come, for memory is full
// of samples that wait. Each is looked at when its turn comes: what the caller has ended
// for one counts for the next.
func (f *Flow) Stuck() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for _, s := range f.sessions {
			if s.credit.stuck(&f.budget) && !yield(s) {
				return
			}
		}
	}
}

// Bytes returns how many bytes of frames are held, and how many are granted as credit and
// not yet used.
func (f *Flow) Bytes() (held, granted int64) { return f.budget.held, f.budget.unused }

// Grants are credit that was given and is still to be told.
type Grants []grant

type grant struct {
	session *Session
	conn    Conn
	total   wire.CreditTotals
}

// Send tells the clients, without the gateway's mutex. A grant is for one connection: the
// totals begin anew with each welcome.
func (g Grants) Send() {
	for _, one := range g {
		one.session.tell(one.conn, wire.Credit(one.total))
	}
}
