package loop

import (
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// maxRuns bounds the runs that are remembered at once.
const maxRuns = 1024

// attach finds or makes the session that a hello asks for, grants its first credit,
// greets the client, and sends again what it has not confirmed.
func (m *Manager) attach(h wire.Hello, c conn) (*Session, error) {
	if err := checkRun(h.Run); err != nil {
		return nil, err
	}
	if !slices.Contains(m.rewards, h.Reward) {
		return nil, fmt.Errorf("%w: no reward named %q; known are %q", rewards.UnknownReward, h.Reward, m.rewards)
	}
	var policy *rewards.SamplePolicy
	if h.OnSampleFailure != "" {
		p, err := rewards.ParseSamplePolicy(h.OnSampleFailure)
		if err != nil {
			return nil, fmt.Errorf("%w: on_sample_failure: %w", rewards.Malformed, err)
		}
		policy = &p
	}
	if m.spool != nil {
		_ = m.spool.Flush() // clients that begin epoch after epoch wait for the disk, too
	}
	now := time.Now()
	m.mu.Lock()
	s, displaced, resumed, fx, err := m.enter(now, h)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	s.reward, s.policy = h.Reward, policy
	s.credit.reclaim(&m.budget)
	s.credit.topUp(&m.budget, m.fullWindow())
	m.join(s)
	// mu is taken inside the manager's, so that no grant or result can come before
	// the welcome; nothing below blocks.
	s.mu.Lock()
	s.conn, s.acks = c, nil
	m.greet(s, h, resumed)
	s.mu.Unlock()
	m.mu.Unlock()
	if displaced != nil {
		m.closing.Go(func() { // the handshake takes as long as the old peer likes, at most seconds
			_ = displaced.Close(closePolicy, "another connection took this client and lane")
		})
	}
	m.apply(fx)
	return s, nil
}

// enter decides between a known session, another one of the current epoch, and a
// new epoch. The caller holds the mutex.
func (m *Manager) enter(now time.Time, h wire.Hello) (s *Session, displaced conn, resumed bool, fx effects, err error) {
	if m.closed || (m.draining && !m.resumable(h)) {
		return nil, nil, false, fx, fmt.Errorf("%w: the gateway accepts nothing new", rewards.Draining)
	}
	if m.core.runs[h.Run] == nil && len(m.core.runs) >= maxRuns {
		return nil, nil, false, fx, fmt.Errorf("%w: %d runs are remembered already; end some", rewards.Unavailable, maxRuns)
	}
	r := m.core.runOf(h.Run, now)
	id := sessionID{h.Client, h.Lane}
	old := r.sessions[id]
	if h.Epoch != 0 && h.Epoch != r.epoch {
		return nil, nil, false, fx, fmt.Errorf("%w: run %q is at epoch %d, not %d: its trainer was started again", rewards.Malformed, h.Run, r.epoch, h.Epoch)
	}
	if old != nil {
		displaced = old.take()
		m.leave(old)
	}
	if m.resumable(h) {
		return old, displaced, true, fx, nil
	}
	if old != nil {
		old.credit.reclaim(&m.budget)
	}
	if r.epoch == 0 || (h.Epoch == 0 && h.Resume == nil && !m.live(r)) {
		m.epochs++
		fx = m.core.newEpoch(now, r, m.epochs)
		clear(r.sessions)
	}
	s = &Session{m: m, run: r, id: id, token: randomName() + randomName(), epoch: r.epoch}
	r.sessions[id] = s
	return s, displaced, false, fx, nil
}

// resumable reports whether the hello names a session that is still known. A draining
// gateway lets it in: its results are here. The caller holds the mutex.
func (m *Manager) resumable(h wire.Hello) bool {
	r := m.core.runs[h.Run]
	if r == nil || h.Resume == nil {
		return false
	}
	s := r.sessions[sessionID{h.Client, h.Lane}]
	return s != nil && s.token == h.Resume.Session && s.epoch == r.epoch
}

// live reports whether any client of the run is connected. The caller holds the mutex.
func (m *Manager) live(r *run) bool {
	for _, s := range r.sessions {
		if s.live {
			return true
		}
	}
	return false
}

// join counts a session among those with a connection, leave no longer. The caller holds the
// mutex.
func (m *Manager) join(s *Session) {
	s.live = true
	m.sessions = append(m.sessions, s)
}

func (m *Manager) leave(s *Session) {
	s.live = false
	m.sessions = slices.DeleteFunc(m.sessions, func(o *Session) bool { return o == s })
}

// take removes and returns the session's connection.
func (s *Session) take() conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conn
	s.conn = nil
	return c
}

// greet sends the welcome and every result above what the client has. The caller
// holds both mutexes.
func (m *Manager) greet(s *Session, h wire.Hello, resumed bool) {
	s.told = wire.Credit(s.credit.granted)
	names := m.rewards
	info := make([]wire.RewardInfo, len(names))
	for i, name := range names {
		info[i] = wire.RewardInfo{Name: name}
	}
	w := wire.Welcome{
		Session: s.token, Epoch: s.epoch, Resumed: resumed, Protocol: Protocol, Credit: s.credit.granted, Rewards: info,
		Limits: wire.LimitsInfo{
			MessageBytes: m.cfg.MessageBytes, HeaderBytes: wire.MaxHeaderBytes, ControlBytes: wire.MaxClientControlBytes,
			InFlight: m.cfg.CreditSamples,
		},
	}
	b, err := wire.EncodeControl(&w)
	if err != nil {
		m.log.Error("welcome could not be encoded", "error", err)
		return
	}
	s.write(b)
	if !resumed {
		return
	}
	if m.draining {
		if b, err := wire.EncodeControl(&wire.Draining{}); err == nil {
			s.write(b)
		}
	}
	for _, d := range s.results {
		if d.seq > h.Resume.Got {
			s.sendResult(d)
		}
	}
}

// detach notes that a session's connection has ended. What it has in flight goes
// on: the client may resume.
func (m *Manager) detach(s *Session, c conn) {
	m.mu.Lock()
	s.mu.Lock()
	mine := s.conn == c || s.conn == nil
	if s.conn == c {
		s.conn = nil
	}
	s.mu.Unlock()
	if !mine || !s.live {
		m.mu.Unlock()
		return // another connection has taken the session over
	}
	m.leave(s)
	s.credit.reclaim(&m.budget)
	s.detached = time.Now()
	s.run.lastUse = s.detached
	grants := m.topUp() // what it had not used is free for others
	m.mu.Unlock()
	send(grants)
}
