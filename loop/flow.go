package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/loop/stream"
)

// This file is about memory that frees itself, and credit that clients get for it.

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
