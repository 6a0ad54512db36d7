package payload

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// openKey names a claim: another worker's at the same attempt is another one.
type openKey struct {
	attempt wire.AttemptKey
	worker  string
}

// session is a worker process as the gateway sees it: its connections come and go, its claims
// stay. It ends when nobody has come back to it for a while.
type session struct {
	srv *Server
	id  string

	conns int         // guarded by srv.mu
	timer *time.Timer // runs while there are no connections; guarded by srv.mu

	mu    sync.Mutex
	ended bool              // guarded by mu
	open  map[openKey]*held // guarded by mu
	byN   map[uint64]*held  // by the number of the latest question; guarded by mu
}

// held is an open claim: granted, or about to be, and without a result.
type held struct {
	key     openKey
	n       uint64   // guarded by session.mu
	payload *payload // until it has arrived; guarded by session.mu
	dropped bool     // nobody wants it any more; guarded by session.mu
}

func newSession(s *Server, id string) *session {
	return &session{srv: s, id: id, open: map[openKey]*held{}, byN: map[uint64]*held{}}
}

// begin notes that the process asks for a claim, as number n. Where it has asked before and
// the payload has not arrived, it is returned with references of the caller's own; with
// knows alone nothing is noted otherwise. A nil held says that too many claims are open.
func (s *session) begin(key openKey, n uint64, knows bool) (h *held, again *payload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h = s.open[key]
	switch {
	case h != nil && h.payload != nil:
		delete(s.byN, h.n)
		h.n, s.byN[n] = n, h
		return h, h.payload.retain()
	case knows:
		return nil, nil
	case h != nil: // it is claimed anew; what became of the old claim no longer matters
		s.forget(h)
	case s.ended || len(s.open) >= s.srv.cfg.MaxOpen:
		return nil, nil
	}
	h = &held{key: key, n: n}
	s.open[key], s.byN[n] = h, h
	s.srv.metrics.open.Inc()
	return h, nil
}

// keep holds the payload until it has arrived and returns it with references of the caller's
// own, nil if nobody wants it any more.
func (s *session) keep(h *held, p *payload) *payload {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.dropped {
		p.release()
		return nil
	}
	h.payload = p
	return p.retain()
}

// got gives the references back of payloads that have arrived.
func (s *session) got(ns []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range ns {
		if h := s.byN[n]; h != nil {
			h.payload.release()
			h.payload = nil
		}
	}
}

// drop ends claims by their numbers.
func (s *session) drop(ns []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range ns {
		if h := s.byN[n]; h != nil {
			s.forget(h)
		}
	}
}

// reconcile drops the claims up to a number that the process no longer wants: a word of it
// may have been lost with a connection.
func (s *session) reconcile(wanted []uint64, upTo uint64) {
	still := make(map[uint64]bool, len(wanted))
	for _, n := range wanted {
		still[n] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, h := range s.byN {
		if n <= upTo && !still[n] {
			s.forget(h)
		}
	}
}

// close ends a claim that has its result, or that was refused.
func (s *session) close(key openKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.open[key]; h != nil {
		s.forget(h)
	}
}

// refused ends a claim that came to nothing.
func (s *session) refused(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.dropped {
		s.forget(h)
	}
}

// isDropped reports whether nobody wants the claim any more.
func (s *session) isDropped(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.dropped
}

// forget takes a claim from the open ones. The caller holds mu.
func (s *session) forget(h *held) {
	h.dropped = true
	h.payload.release()
	h.payload = nil
	delete(s.open, h.key)
	delete(s.byN, h.n)
	s.srv.metrics.open.Dec()
}

// end drops everything and returns the workers that had claims open.
func (s *session) end() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	names := map[string]bool{}
	for _, h := range s.open {
		names[h.key.worker] = true
		s.forget(h)
	}
	return slices.Sorted(maps.Keys(names))
}
