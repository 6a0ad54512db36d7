package loop

import (
	"container/list"
	"time"

	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/wire"
)

// stored is a final result as it is remembered.
type stored struct {
	stream.Answer

	key  sampleKey
	sum  wire.Checksum
	size int64
	at   time.Time

	place *list.Element // in memory.order
}

// newStored is a result to remember since at.
func newStored(key sampleKey, sum wire.Checksum, res *wire.Result, at time.Time) *stored {
	return &stored{Answer: stream.Answer{Result: res}, key: key, sum: sum, size: sizeOf(res), at: at}
}

// memory is what a run remembers of answered samples, so that a sample sent again
// after a lost connection is answered and not scored twice. It is bounded in
// number, bytes and age; the oldest go first. Guarded by the manager's mutex.
type memory struct {
	byKey map[sampleKey]*stored
	order list.List // of *stored, the oldest in front
	bytes int64
	log   *journal
}

func newMemory(log *journal) *memory { return &memory{byKey: map[sampleKey]*stored{}, log: log} }

func (m *memory) add(s *stored) {
	if again := m.byKey[s.key]; again != nil {
		m.order.Remove(again.place)
		m.bytes -= again.size
	}
	m.byKey[s.key] = s
	s.place = m.order.PushBack(s)
	m.bytes += s.size
}

func (m *memory) get(key sampleKey) *stored { return m.byKey[key] }

// confirmed forgets an answer that its client has, if it is the one that is remembered.
func (m *memory) confirmed(key sampleKey, a *stream.Answer) {
	if s := m.byKey[key]; s != nil && &s.Answer == a {
		m.forget(s)
	}
}

// forget drops a remembered result. One that its client has goes at once, even where an older one
// stays because nobody confirms it.
func (m *memory) forget(s *stored) {
	s.Forget()
	m.order.Remove(s.place)
	delete(m.byKey, s.key)
	m.bytes -= s.size
	m.log.forgot(s.key)
}

// trim enforces the bounds and returns how many unconfirmed results it dropped.
func (m *memory) trim(cfg *Config, now time.Time) (dropped int) {
	for first := m.order.Front(); first != nil; first = m.order.Front() {
		s, _ := first.Value.(*stored)
		if len(m.byKey) <= cfg.KeepResults && m.bytes <= cfg.KeepBytes && now.Sub(s.at) <= cfg.KeepFor {
			break
		}
		m.forget(s)
		dropped++
	}
	return dropped
}

// mapEntry is what an entry of a small map costs beside a long key: tables grow by doubling.
const mapEntry = 48

// sizeOf estimates what a remembered result costs.
func sizeOf(r *wire.Result) int64 {
	size := int64(512 + len(r.ID) + len(r.Config) + 8*len(r.StepScores) + mapEntry*(len(r.TimingMS)+len(r.Values)))
	for k, v := range r.ExtraInfo {
		size += int64(len(k)) + mapEntry
		if s, ok := v.(string); ok {
			size += int64(len(s))
		}
	}
	for _, e := range r.Errors {
		size += int64(len(e.Message)) + 64
	}
	return size + detailSize(r.Details, 0)
}

// detailSize walks the details, which scorers bound themselves, to a fixed depth.
func detailSize(v any, depth int) int64 {
	switch t := v.(type) {
	case string:
		return int64(len(t)) + 16
	case map[string]any:
		var n int64
		for k, x := range t {
			if depth < 6 {
				n += int64(len(k)) + 16 + detailSize(x, depth+1)
			}
		}
		return n
	case []any:
		var n int64
		for _, x := range t {
			if depth < 6 {
				n += detailSize(x, depth+1)
			}
		}
		return n
	}
	return 64
}

// released is called when the last reference to a frame of a session has gone, dropped when
// that to one from inside the process has.
func (m *Manager) released(s *stream.Session, size int64) {
	m.mu.Lock()
	grants := m.flow.Release(s, size)
	m.mu.Unlock()
	grants.Send()
}

// refunded is called when the frame has gone of a sample that its client counts as not sent.
func (m *Manager) refunded(s *stream.Session, size int64) {
	m.mu.Lock()
	grants := m.flow.Refund(s, size)
	m.mu.Unlock()
	grants.Send()
}

func (m *Manager) dropped(profile string, size int64) {
	m.mu.Lock()
	grants := m.flow.Drop(profile, size)
	m.mu.Unlock()
	grants.Send()
}

// bookedFor is the name by which the memory of a profile is booked, which may have two.
func (m *Manager) bookedFor(profile string) string { return m.core.board.Profile(profile).Name() }

// relieve gives clients more credit, now that samples which wait for their groups do
// not count against it. Where memory is full of such samples, so that those they wait
// for can never come, the oldest group ends. The caller holds the mutex.
func (m *Manager) relieve(now time.Time, fx *effects) stream.Grants {
	grants := m.flow.TopUp()
	for s := range m.flow.Stuck() {
		m.core.evict(now, m.core.runs[s.Run()], fx)
	}
	return grants
}
