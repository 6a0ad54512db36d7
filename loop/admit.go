package loop

import (
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about taking a sample in: what its connection has booked and read becomes
// an entry, unless it is known already or cannot be accepted.

// Receive implements stream.Gateway.
func (m gateway) Receive(s *stream.Session, r io.Reader) error {
	h, err := wire.ReadHeader(r, m.limits())
	if err != nil {
		return err
	}
	known, err := m.spend(s, h)
	if err != nil {
		return err
	}
	if known {
		return m.compare(s, h, r)
	}
	size, received := h.Size, time.Now()
	frame, err := h.ReadBody(r, m.buffers)
	if err != nil {
		m.released(s, size)
		return err
	}
	frame.OnRelease(func() { m.released(s, size) })
	if err := m.accept(s, frame, received); err != nil {
		return err
	}
	m.metrics.client(m.metrics.clientSamples, m.client)
	return nil
}

// spend books a sample against its session's credit before its body is read. One that is
// known is only compared, which needs no memory.
func (m *Manager) spend(s *stream.Session, h *wire.Header) (known bool, err error) {
	now := time.Now()
	var grants stream.Grants
	defer func() { grants.Send() }() // after the mutex
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return false, refuse(rewards.Draining, h.Sample.ID, "the gateway accepts no new samples")
	}
	if m.core.knows(sampleKey{s.Run(), s.Epoch(), h.Sample.ID}) {
		grants = m.flow.Skip(now, s, h.Size)
		return true, nil
	}
	if err := m.core.journal.trouble(); err != nil {
		return false, m.slow(s, h.Sample.ID, err)
	}
	var within bool
	if grants, within = m.flow.Spend(now, s, h.Size); !within {
		u := s.Unused()
		return false, refuse(rewards.OverCredit, h.Sample.ID, "%d bytes with %d samples and %d bytes of credit left; wait for credit", h.Size, u.Samples, u.Bytes)
	}
	return false, nil
}

// compare reads a sample that was known as its header came, and attaches it to the session
// or answers it.
func (m *Manager) compare(s *stream.Session, h *wire.Header, r io.Reader) error {
	sum, err := h.ReadSum(r)
	if err != nil {
		return err
	}
	key := sampleKey{s.Run(), s.Epoch(), h.Sample.ID}
	m.mu.Lock()
	var fx effects
	known := false
	if m.current(s) != nil {
		known, fx, err = m.core.meet(key, sum, client{s})
	}
	m.mu.Unlock()
	if !known { // the run has begun anew meanwhile, or the answer was confirmed
		return refuse(rewards.OverCredit, key.id, "the sample was dropped while its bytes arrived; send it again")
	}
	if err == nil {
		s.Acknowledge(key.id)
	}
	m.apply(fx)
	return err
}

// accept admits a sample that has arrived whole and acknowledges it.
func (m *Manager) accept(s *stream.Session, f *wire.Frame, received time.Time) error {
	h := f.Header()
	sample := h.Sample
	if sample.Run != "" && sample.Run != s.Run() {
		f.Release()
		return refuse(rewards.Malformed, sample.ID, "the sample names run %q on a connection of run %q", sample.Run, s.Run())
	}
	reward, own := s.Defaults()
	if sample.Reward == "" {
		sample.Reward = reward
	}
	policy, _ := m.profile(sample.Reward)
	if !slices.Contains(m.rewards, sample.Reward) {
		f.Release()
		return refuse(rewards.UnknownReward, sample.ID, "%s", m.unknownReward(sample.Reward))
	}
	if own != nil {
		policy = *own
	}
	timeout := h.Deadline
	if timeout == 0 {
		timeout = m.cfg.SampleTimeout
	}
	now := time.Now()
	a := admission{
		sample: &sample, frame: f, owner: client{s}, profile: sample.Reward, policy: policy,
		received: received, arrived: now, deadline: now.Add(min(timeout, m.cfg.MaxSampleTimeout)),
	}
	settle, err := m.keep(s, &a)
	if err != nil {
		if size := f.Size(); errors.Is(err, rewards.OverCredit) {
			f.OnRelease(func() { m.refunded(s, size) })
		}
		f.Release()
		return err
	}
	m.mu.Lock()
	taken, fx, err := m.admit(now, s, a)
	settle(taken)
	m.mu.Unlock()
	if !taken {
		f.Release()
	}
	if err == nil {
		s.Acknowledge(sample.ID)
	}
	m.apply(fx)
	return err
}

// admit takes a session's sample into the table. The caller holds the mutex.
func (m *Manager) admit(now time.Time, s *stream.Session, a admission) (taken bool, fx effects, err error) {
	r := m.current(s)
	if r == nil {
		return false, fx, refuse(rewards.Malformed, a.sample.ID, "run %q has begun a new epoch on another connection", s.Run())
	}
	r.lastUse = now
	a.run, a.shut = r, m.draining
	return m.core.admit(now, a)
}

// admission is a sample that asks to be scored.
type admission struct {
	run      *run
	sample   *rewards.Sample // header fields only
	frame    *wire.Frame
	owner    owner
	deadline time.Time
	profile  string
	policy   rewards.SamplePolicy
	shut     bool      // the gateway drains or has stopped: only what it knows is answered
	received time.Time // when its first byte came; of a sample that a client sent
	arrived  time.Time // when it was here whole; zero: now
}

// admit takes a sample in, attaches a known one to its new owner, or answers one
// that is finished. The caller's reference to the frame passes to the core only if
// taken is true.
func (c *core) admit(now time.Time, a admission) (taken bool, fx effects, err error) {
	key := sampleKey{run: a.run.name, epoch: a.run.epoch, id: a.sample.ID}
	if strings.HasPrefix(key.id, unitMark) {
		return false, fx, refuse(rewards.Malformed, key.id, "the prefix of this id is reserved for the gateway")
	}
	sum := a.frame.Sum()
	if known, fx, err := c.meet(key, sum, a.owner); known {
		return false, fx, err
	}
	if s := a.sample; s.UID == "" && s.GroupSize > 1 && slices.Contains(c.cfg.GroupByPrompt, a.profile) {
		own := *s
		own.UID = rewards.PromptUID(s.Prompt)
		a.sample = &own
	}
	if g := int64(a.sample.GroupSize); a.sample.HasGroup() && slices.Contains(c.cfg.GroupProfiles, a.profile) && g*a.frame.Size() > c.cfg.MaxBytes-c.cfg.MaxBytes/4 {
		return false, fx, refuse(rewards.TooLarge, key.id, "the %d members of group %q, %d bytes each, do not fit into three quarters of loop.max_bytes = %d, "+
			"where all of them wait for the last", g, a.sample.UID, a.frame.Size(), c.cfg.MaxBytes)
	}
	if st := c.book.Step(step.KeyOf(a.run.name, a.sample.Split, a.sample.Step)); st != nil && st.Closed() {
		k := st.Key()
		return false, fx, refuse(rewards.Expired, key.id, "step %d (%s) ended at its deadline, %v before the sample arrived", k.Step, k.Split, now.Sub(st.Closes()).Round(time.Millisecond))
	}
	if a.shut { // since its bytes were booked
		return false, fx, refuse(rewards.Draining, key.id, "the gateway accepts no new samples")
	}
	c.insert(now, key, sum, a, &fx)
	fx.wake = true
	fx.whole = c.entries[key].step.Whole()
	return true, fx, nil
}

// meet attaches a sample that is known to who sends it now, or answers it.
func (c *core) meet(key sampleKey, sum wire.Checksum, by owner) (known bool, fx effects, err error) {
	if e := c.entries[key]; e != nil {
		if !by.remembers() {
			return true, fx, refuse(rewards.IDReused, key.id, "the id is in flight in run %q", key.run)
		}
		if e.sum != sum {
			return true, fx, refuse(rewards.IDReused, key.id, "the id is in flight with other bytes (%d, now %d)", e.sum.Len, sum.Len)
		}
		e.attach(by)
		return true, fx, nil
	}
	r := c.runs[key.run]
	if r == nil {
		return false, fx, nil
	}
	s := r.done.get(key)
	if s == nil {
		return false, fx, nil
	}
	if s.sum != sum {
		return true, fx, refuse(rewards.IDReused, key.id, "the id was answered for other bytes (%d, now %d)", s.sum.Len, sum.Len)
	}
	fx.results = append(fx.results, answer{s, by, 0})
	return true, fx, nil
}

// maxOwners bounds the connections of a run that wait for the same sample.
const maxOwners = 16

// attach has one more connection take the entry's result, beside those that have sent the
// sample before and are still their client's latest.
func (e *entry) attach(by owner) {
	gone := func(o owner) bool {
		c, ok := o.(client)
		return !ok || e.run.sessions[c.ID()] != c.Session
	}
	for _, o := range e.also {
		if gone(o) || o == by {
			o.expects(-1)
		}
	}
	e.also = slices.DeleteFunc(e.also, func(o owner) bool { return gone(o) || o == by })
	switch {
	case e.owner == by:
		return
	case gone(e.owner):
		e.owner.expects(-1)
		e.owner = by
	case len(e.also) == maxOwners-1:
		e.also[0].expects(-1)
		e.also = append(slices.Delete(e.also, 0, 1), by)
	default:
		e.also = append(e.also, by)
	}
	by.expects(1)
}

// expects counts the entry for all who wait for its result.
func (e *entry) expects(by int64) {
	e.owner.expects(by)
	for _, o := range e.also {
		o.expects(by)
	}
}

func (c *core) insert(now time.Time, key sampleKey, sum wire.Checksum, a admission, fx *effects) {
	s := a.sample
	c.arrivals++
	arrived := a.arrived
	if arrived.IsZero() {
		arrived = now
	}
	e := &entry{
		key: key, frame: a.frame, header: a.frame.Header(), sum: sum, run: a.run, order: c.arrivals, index: s.Index, profile: a.profile,
		policy: a.policy, arrived: arrived, deadline: a.deadline, bytes: a.frame.Size(), owner: a.owner,
		attempt: 1, issued: 1,
	}
	e.alarm.entry = e
	e.trace = c.traced(&a, arrived)
	here := step.Arrival{ID: key.id, Index: s.Index, Received: a.received, Arrived: arrived}
	if s.HasGroup() {
		here.UID, here.Size = s.UID, s.GroupSize
	}
	if e.owner.remembers() {
		here.Flight = e
	}
	var ev step.Events
	e.step, e.row, ev = c.book.Arrived(now, step.KeyOf(a.run.name, s.Split, s.Step), here)
	c.heed(ev, fx)
	if s.HasGroup() {
		g, fresh := a.run.groupOf(groupKey{e.step.Key(), s.UID, key.epoch}, s.GroupSize, now)
		if fresh {
			g.step, g.deadline = e.step, e.deadline
			c.alarms.put(&g.alarm, e.deadline)
		}
		g.join(key.id)
		e.group = g
	}
	c.entries[key] = e
	e.item = c.itemOf(e)
	c.move(e, queued)
	a.run.inflight++
	e.expects(1)
}

// knows reports whether a sample is in flight or its answer remembered.
func (c *core) knows(key sampleKey) bool {
	if c.entries[key] != nil {
		return true
	}
	r := c.runs[key.run]
	return r != nil && r.done.get(key) != nil
}
