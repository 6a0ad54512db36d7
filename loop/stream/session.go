package stream

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Conn is a session's connection.
type Conn interface {
	// Send queues a text message. Send does not block.
	Send(text []byte) error
	// SendLater queues a message whose text is the result of later, called at the time of writing.
	// A nil result sends nothing.
	SendLater(later func() []byte) error
	// Close closes the connection with a closing handshake, which takes a few seconds at most.
	Close(code int, reason string) error
}

// ID identifies a client's connection within a run.
type ID struct {
	Client string
	Lane   int
}

// Answer is a final result that its session keeps until the client confirms it or the gateway
// forgets it.
type Answer struct {
	Result *wire.Result // immutable

	forgotten atomic.Bool             // confirmed or too old: no longer remembered
	numbered  atomic.Pointer[Session] // the session that has given it a number
}

// Forget records that the gateway no longer remembers the answer. The session drops the answer at
// the next delivery.
func (a *Answer) Forget() { a.forgotten.Store(true) }

// delivered is an answer with its place in the session's order.
type delivered struct {
	seq    uint64
	answer *Answer
}

// Session is one client's side of a run. It outlives its connection: results wait in it until the
// client reconnects and confirms them.
type Session struct {
	// Immutable.
	run   string
	id    ID
	epoch uint64
	token string
	log   *slog.Logger

	// Guarded by the gateway's mutex.
	credit   window
	live     bool // it has a connection
	detached time.Time

	// mu is taken after the gateway's mutex, never before it.
	mu      sync.Mutex
	conn    Conn                  // nil without a live connection; guarded by mu
	reward  string                // of samples that name none; guarded by mu
	policy  *rewards.SamplePolicy // nil: the profile's own; guarded by mu
	seq     uint64                // of the latest result; guarded by mu
	results []*delivered          // not confirmed, in order of seq; guarded by mu
	told    wire.Credit           // the latest totals sent over conn; guarded by mu
	acks    []string              // ids that conn's writer will tell of; guarded by mu
	warned  time.Time             // when the client was told last why its samples wait; guarded by mu
}

// NewSession returns a session of the given epoch of a run. A client resumes the session with
// token.
func NewSession(run string, id ID, epoch uint64, token string, log *slog.Logger) *Session {
	return &Session{run: run, id: id, epoch: epoch, token: token, log: log}
}

// Run returns the name of the session's run.
func (s *Session) Run() string { return s.run }

// ID returns the session's ID within its run.
func (s *Session) ID() ID { return s.id }

// Epoch returns the epoch of the run in which the session began.
func (s *Session) Epoch() uint64 { return s.epoch }

// Token returns the token with which a client resumes the session.
func (s *Session) Token() string { return s.token }

// Defaults returns the reward and the policy for samples that set none, from the latest hello
// message. A nil policy means the policy of the profile.
func (s *Session) Defaults() (reward string, policy *rewards.SamplePolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reward, s.policy
}

// Live reports whether the session has a connection. The caller holds the gateway's mutex.
func (s *Session) Live() bool { return s.live }

// Expects adds by to the number of samples that are accepted and not answered. The caller holds the
// gateway's mutex.
func (s *Session) Expects(by int64) { s.credit.open += by }

// Open returns the number of samples that are accepted and not answered. The caller holds the
// gateway's mutex.
func (s *Session) Open() int64 { return s.credit.open }

// Parks records that a frame stays in memory although no worker has its sample, or, if more is
// false, no longer does. Such a frame does not count against the credit. The caller holds the
// gateway's mutex.
func (s *Session) Parks(more bool, what wire.CreditTotals) { s.credit.park(more, what) }

// Unused returns the unused credit. The caller holds the gateway's mutex.
func (s *Session) Unused() wire.CreditTotals { return s.credit.unused() }

// Sweep drops the answers that the gateway has forgotten, and reports whether the client has been
// disconnected for longer than keep. The caller holds the gateway's mutex.
func (s *Session) Sweep(now time.Time, keep time.Duration) (gone bool) {
	s.mu.Lock()
	s.prune()
	s.mu.Unlock()
	return !s.live && now.Sub(s.detached) > keep
}

// greet begins the session on a connection: the welcome, and every result above what the
// client has.
func (s *Session) greet(c Conn, g Greeting, credit wire.CreditTotals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.acks = c, nil
	s.reward, s.policy = g.Reward, g.Policy
	s.told = wire.Credit(credit)
	w := g.Welcome
	w.Session, w.Epoch, w.Protocol, w.Credit = s.token, s.epoch, wire.Protocol, credit
	b, err := wire.EncodeControl(&w)
	if err != nil {
		s.log.Error("a welcome message could not be encoded", "error", err)
		return
	}
	s.write(b)
	if !w.Resumed {
		return
	}
	if g.Draining {
		if b, err := wire.EncodeControl(&wire.Draining{}); err == nil {
			s.write(b)
		}
	}
	for _, d := range s.results {
		if d.seq > g.Confirmed {
			s.sendResult(d)
		}
	}
}

// Cut detaches the session from its connection, so that nothing more is sent over it. Cut returns
// the connection for the caller to close, or nil if there was none.
func (s *Session) Cut() Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conn
	s.conn = nil
	return c
}

// lost notes that a connection has ended, and reports whether the session is on no other.
func (s *Session) lost(c Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == c {
		s.conn = nil
	}
	return s.conn == nil
}

func (s *Session) connection() Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// Deliver gives the answer the next number and sends it if the client is connected. The answer to a
// sample that was sent again keeps its number. Deliver returns the message that was sent, or nil.
func (s *Session) Deliver(a *Answer) (message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	if a.numbered.Swap(s) == s {
		if i := slices.IndexFunc(s.results, func(d *delivered) bool { return d.answer == a }); i >= 0 {
			return s.sendResult(s.results[i])
		}
		return nil
	}
	s.seq++
	d := &delivered{s.seq, a}
	s.results = append(s.results, d)
	return s.sendResult(d)
}

// prune drops results that the gateway no longer remembers: a client that never
// confirms must not make it keep its history. The caller holds mu.
func (s *Session) prune() {
	n := 0
	for n < len(s.results) && s.results[n].answer.forgotten.Load() {
		n++
	}
	s.drop(n)
}

// drop forgets the n oldest results. The others stay where they are: a copy of them for each
// message took 790 MiB while 29,405 were confirmed one by one. The caller holds mu.
func (s *Session) drop(n int) {
	clear(s.results[:n])
	s.results = s.results[n:]
	if len(s.results) == 0 {
		s.results = nil
	}
}

// Unconfirmed returns the number of answers that the client has not confirmed.
func (s *Session) Unconfirmed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.results)
}

// Confirm drops all answers up to the number seq, which the client has received, and returns them.
func (s *Session) Confirm(seq uint64) []*Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.results) && s.results[n].seq <= seq {
		n++
	}
	gone := make([]*Answer, n)
	for i, d := range s.results[:n] {
		gone[i] = d.answer
		d.answer.Forget()
	}
	s.drop(n)
	return gone
}

// sendResult sends a numbered copy and returns its message; nil: the client is not there. The caller holds mu.
func (s *Session) sendResult(d *delivered) []byte {
	if s.conn == nil {
		return nil
	}
	b, err := EncodeResult(d.answer.Result, d.seq)
	if err != nil {
		s.log.Error("a result could not be encoded", "sample_id", d.answer.Result.ID, "run", s.run, "error", err)
		return nil
	}
	s.write(b)
	return b
}

// EncodeResult encodes a copy of a result with the number seq. Details that JSON cannot represent
// are replaced by an error text, because details are informational and the score is still valid.
func EncodeResult(of *wire.Result, seq uint64) ([]byte, error) {
	res := *of
	res.Seq = seq
	b, err := wire.EncodeControl(&res)
	if err != nil {
		res.Details = map[string]any{"error": "details could not be encoded: " + err.Error()}
		b, err = wire.EncodeControl(&res)
	}
	return b, err
}

// write puts a message into the connection's outbox. The caller holds mu. An
// outbox that is full has closed the connection: the client will come back.
func (s *Session) write(b []byte) {
	if err := s.conn.Send(b); err != nil {
		s.log.Info("a message was not sent, because the connection broke; the client resumes its session by itself", "run", s.run, "client", s.id.Client, "error", err)
	}
}

// Send encodes and sends a control message if the client is connected.
func (s *Session) Send(v any) { s.sendOver(nil, v) }

// warnEvery is how often a client is told at most why its samples wait.
const warnEvery = 10 * time.Second

// Warn sends the client the reason why its samples wait, at most once every 10 s.
func (s *Session) Warn(now time.Time, class rewards.Class, why string) {
	s.mu.Lock()
	due := now.Sub(s.warned) >= warnEvery
	if due {
		s.warned = now
	}
	s.mu.Unlock()
	if due {
		s.Send(&wire.Error{Code: class, Message: why})
	}
}

// Acknowledge tells the client that the gateway has accepted a sample. Samples that are
// acknowledged while the writer is busy share one message.
func (s *Session) Acknowledge(id string) {
	s.mu.Lock()
	c := s.conn
	s.acks = append(s.acks, id)
	first := len(s.acks) == 1
	s.mu.Unlock()
	if c == nil || !first {
		return // or somebody has asked the writer already
	}
	if err := c.SendLater(func() []byte { return s.takeAcks(c) }); err != nil {
		s.log.Info("an ack was not sent, because the connection broke; the client resumes its session by itself", "run", s.run, "client", s.id.Client, "error", err)
	}
}

// takeAcks encodes what is to be acknowledged over a connection; nil: nothing. A client
// that came back over another one has sent again what it has no result for.
func (s *Session) takeAcks(c Conn) []byte {
	s.mu.Lock()
	ids := s.acks
	if s.conn != c {
		ids = nil
	} else {
		s.acks = nil
	}
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	b, err := wire.EncodeControl(&wire.Ack{IDs: ids})
	if err != nil {
		s.log.Error("an ack could not be encoded", "error", err)
		return nil
	}
	return b
}

// tell sends credit totals over the connection they were granted for. Grants are told by
// whoever made them; totals that were overtaken on the way are not told. A repeat says that
// the client may try again.
func (s *Session) tell(c Conn, total wire.Credit) {
	b, err := wire.EncodeControl(&total)
	if err != nil {
		s.log.Error("a credit message could not be encoded", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || s.conn != c || total.Samples < s.told.Samples || total.Bytes < s.told.Bytes {
		return
	}
	s.told = total
	s.write(b)
}

// sendOver sends a control message if the session is still on that connection; nil: on any.
func (s *Session) sendOver(c Conn, v any) {
	b, err := wire.EncodeControl(v)
	if err != nil {
		s.log.Error("a message to a client could not be encoded and was not sent", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && (c == nil || s.conn == c) {
		s.write(b)
	}
}
