package payload

import (
	"log/slog"
	"sync"
	"time"
)

// seldom logs at most one line a second of each kind and says how many it left out. Kinds are
// constants of this package.
type seldom struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*pause // guarded by mu
}

type pause struct {
	until   time.Time
	skipped int
}

func (s *seldom) warn(kind, msg string, args ...any) {
	now := time.Now()
	s.mu.Lock()
	p := s.kinds[kind]
	if p == nil {
		if s.kinds == nil {
			s.kinds = map[string]*pause{}
		}
		p = new(pause)
		s.kinds[kind] = p
	}
	if now.Before(p.until) {
		p.skipped++
		s.mu.Unlock()
		return
	}
	skipped := p.skipped
	*p = pause{until: now.Add(time.Second)}
	s.mu.Unlock()
	s.log.Warn(msg, append(args, "left_out", skipped)...)
}
