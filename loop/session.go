package loop

import (
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// delivered is a result with its place in the session's order.
type delivered struct {
	seq    uint64
	stored *stored
}

func (s *Session) remembers() bool { return true }

func (s *Session) expects(by int64) { s.credit.open += by }

func (s *Session) parks(more bool, what wire.CreditTotals) { s.credit.park(more, what) }

// deliver gives the result the next number and sends it if the client is there. The
// answer to a sample that was sent again keeps its number.
func (s *Session) deliver(st *stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	if st.numbered.Swap(s) == s {
		if i := slices.IndexFunc(s.results, func(d *delivered) bool { return d.stored == st }); i >= 0 {
			s.sendResult(s.results[i])
		}
		return
	}
	s.seq++
	d := &delivered{s.seq, st}
	s.results = append(s.results, d)
	s.sendResult(d)
}

// prune drops results that the run no longer remembers: a client that never
// confirms must not make the gateway keep its history. The caller holds mu.
func (s *Session) prune() {
	n := 0
	for n < len(s.results) && s.results[n].stored.forgotten.Load() {
		s.results[n] = nil
		n++
	}
	s.results = s.results[n:]
}

// sendResult sends a numbered copy. The caller holds mu.
func (s *Session) sendResult(d *delivered) {
	if s.conn == nil {
		return
	}
	b, err := encodeResult(d.stored.res, d.seq)
	if err != nil {
		s.m.log.Error("result could not be encoded", "sample_id", d.stored.key.id, "run", s.run.name, "error", err)
		return
	}
	s.write(b)
}

// encodeResult encodes a copy of a result under a number.
func encodeResult(of *wire.Result, seq uint64) ([]byte, error) {
	res := *of
	res.Seq = seq
	b, err := wire.EncodeControl(&res)
	if err != nil { // details that JSON cannot express: the score still counts
		res.Details = map[string]any{"error": "details could not be encoded: " + err.Error()}
		b, err = wire.EncodeControl(&res)
	}
	return b, err
}

// write puts a message into the connection's outbox. The caller holds mu. An
// outbox that is full has closed the connection: the client will come back.
func (s *Session) write(b []byte) {
	if err := s.conn.Send(b); err != nil {
		s.m.log.Info("message not sent; the client has to resume", "run", s.run.name, "client", s.id.client, "error", err)
	}
}

// send encodes and sends a control message if the client is there.
func (s *Session) send(v any) {
	b, err := wire.EncodeControl(v)
	if err != nil {
		s.m.log.Error("message could not be encoded", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.write(b)
	}
}

// acknowledge says that this gateway answers for a sample. Those that come while the
// writer is busy are told in one message.
func (s *Session) acknowledge(id string) {
	s.mu.Lock()
	c := s.conn
	s.acks = append(s.acks, id)
	first := len(s.acks) == 1
	s.mu.Unlock()
	if c == nil || !first {
		return // or somebody has asked the writer already
	}
	if err := c.SendLater(func() []byte { return s.takeAcks(c) }); err != nil {
		s.m.log.Info("ack not sent; the client has to resume", "run", s.run.name, "client", s.id.client, "error", err)
	}
}

// takeAcks encodes what is to be acknowledged over a connection; nil: nothing. A client
// that came back over another one has sent again what it has no result for.
func (s *Session) takeAcks(c conn) []byte {
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
		s.m.log.Error("ack could not be encoded", "error", err)
		return nil
	}
	return b
}

// tell sends new credit totals over the connection they were granted for. Grants are
// told by whoever made them; totals that were overtaken on the way are not told.
func (s *Session) tell(c conn, total wire.Credit) {
	b, err := wire.EncodeControl(&total)
	if err != nil {
		s.m.log.Error("credit could not be encoded", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || s.conn != c || (total.Samples <= s.told.Samples && total.Bytes <= s.told.Bytes) {
		return
	}
	s.told = total
	s.write(b)
}

// confirm forgets every result up to seq.
func (s *Session) confirm(seq uint64) {
	s.mu.Lock()
	n := 0
	for n < len(s.results) && s.results[n].seq <= seq {
		n++
	}
	gone := s.results[:n]
	s.results = slices.Clone(s.results[n:])
	s.mu.Unlock()
	s.m.mu.Lock()
	for _, d := range gone {
		s.run.done.forget(d.stored)
	}
	s.m.mu.Unlock()
}

// sessionID names a client's connection within a run.
type sessionID struct {
	client string
	lane   int
}

// conn is what a session needs of its connection.
type conn interface {
	Send(text []byte) error
	// SendLater sends what later returns when its turn to be written comes; nil: nothing.
	SendLater(later func() []byte) error
	Close(code int, reason string) error
}

// Session is one client's side of a run. It outlives its connection: results wait
// in it until the client comes back and confirms them.
type Session struct {
	// Immutable after hello.
	m      *Manager
	run    *run
	id     sessionID
	token  string
	epoch  uint64
	reward string
	policy *rewards.SamplePolicy

	// Guarded by the manager's mutex.
	credit   window
	live     bool // it has a connection
	detached time.Time

	// mu is taken after the manager's mutex, never before it.
	mu      sync.Mutex
	conn    conn         // nil without a live connection; guarded by mu
	seq     uint64       // of the latest result; guarded by mu
	results []*delivered // not confirmed, in order of seq; guarded by mu
	told    wire.Credit  // the latest totals sent over conn; guarded by mu
	acks    []string     // ids that conn's writer will tell of; guarded by mu
}
