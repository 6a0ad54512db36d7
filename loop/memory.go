package loop

import "time"

// memory is what a run remembers of answered samples, so that a sample sent again
// after a lost connection is answered and not scored twice. It is bounded in
// number, bytes and age; the oldest go first. Guarded by the manager's mutex.
type memory struct {
	byKey map[sampleKey]*stored
	fifo  []*stored // oldest first; forgotten ones are nil
	bytes int64
	log   *journal
}

func newMemory(log *journal) *memory { return &memory{byKey: map[sampleKey]*stored{}, log: log} }

func (m *memory) add(s *stored) {
	m.byKey[s.key] = s
	m.fifo = append(m.fifo, s)
	m.bytes += s.size
}

func (m *memory) get(key sampleKey) *stored { return m.byKey[key] }

// forget drops a result that the client has confirmed.
func (m *memory) forget(s *stored) {
	s.forgotten.Store(true)
	if m.byKey[s.key] == s {
		delete(m.byKey, s.key)
		m.bytes -= s.size
		m.log.forgot(s.key)
	}
}

// trim enforces the bounds and returns how many unconfirmed results it dropped.
func (m *memory) trim(cfg *Config, now time.Time) (dropped int) {
	for len(m.fifo) > 0 {
		s := m.fifo[0]
		remembered := m.byKey[s.key] == s
		over := len(m.byKey) > cfg.KeepResults || m.bytes > cfg.KeepBytes || now.Sub(s.at) > cfg.KeepFor
		if remembered && !over {
			break
		}
		if remembered {
			m.forget(s)
			dropped++
		}
		m.fifo[0] = nil
		m.fifo = m.fifo[1:]
	}
	return dropped
}
