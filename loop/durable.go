package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about samples that are to survive the process: those that came over a
// websocket, where the gateway has a Spool.
//
// A sample is in the spool before it is acknowledged, written by its connection's own
// goroutine without the manager's mutex: a slow disk slows its sender. Everything else
// is queued under the mutex, so that the spool's order is that of what happened, and
// written by the spool's goroutine a moment later: the dispatcher never waits for a disk.
// A result may so reach its client before the spool; if the process dies in between, the
// sample is scored again and its client, which has the result, passes over the second.
// What is queued is bounded by what is in the table and remembered, for nothing is
// accepted and no hello answered before the queue has been written.

// Spool stores the records of a durable gateway that must survive the process. *spool.Spool
// implements Spool.
type Spool interface {
	// Put writes a record and returns once the record survives the end of the process.
	Put(r spool.Record) error
	// Later queues a record to be written soon. Later does not block.
	Later(r spool.Record)
	// Flush writes the records that Later has queued.
	Flush() error
	// Trouble returns the reason why no samples are accepted at the moment, or nil if samples are
	// accepted. Trouble does not block. The condition ends without manual intervention.
	Trouble() error
	// Each calls use with each record that earlier processes have left in the spool.
	Each(use func(k *spool.Kept) error) error
}

// keptSample is the meta of a sample's record: what its frame does not say.
type keptSample struct {
	Reward   string         `json:"reward"` // of the session, where the sample names none
	Policy   rewards.Policy `json:"policy,omitempty"`
	Value    float64        `json:"value,omitempty"`
	Arrived  int64          `json:"arrived"`  // Unix nanoseconds
	Deadline int64          `json:"deadline"` // likewise
}

// keptResult is the meta of a result's record; the body is the result as it is sent.
type keptResult struct {
	Len    int64  `json:"len"` // of the frame, with its checksum: an id with other bytes is refused
	CRC32C uint32 `json:"crc32c"`
	At     int64  `json:"at"` // Unix nanoseconds
}

// keptMember is the meta of a member's record: an answered sample whose group is open.
type keptMember struct {
	Split    rewards.Split      `json:"split"`
	Step     int64              `json:"step"`
	UID      string             `json:"uid"`
	Size     int                `json:"size"`
	Deadline int64              `json:"deadline"` // of the group, Unix nanoseconds
	Scored   bool               `json:"scored,omitempty"`
	Reward   float64            `json:"reward,omitempty"`
	Values   map[string]float64 `json:"values,omitempty"`
}

// journal tells the spool what happens. Guarded by the manager's mutex; the zero value
// tells nobody.
type journal struct{ spool Spool }

func (j *journal) later(r spool.Record, meta any) {
	if j.spool == nil {
		return
	}
	if meta != nil {
		b, err := json.Marshal(meta)
		if err != nil {
			return // a number that is none; the record would say nothing
		}
		r.Meta = b
	}
	j.spool.Later(r)
}

// trouble is why samples are not taken at the moment.
func (j *journal) trouble() error {
	if j.spool == nil {
		return nil
	}
	return j.spool.Trouble()
}

func (j *journal) drop(of spool.Kind, key sampleKey) {
	j.later(spool.Record{Kind: spool.Drop, Of: of, Run: key.run, Epoch: key.epoch, ID: key.id}, nil)
}

// forgot drops a result that is remembered no longer.
func (j *journal) forgot(key sampleKey) { j.drop(spool.Result, key) }

// answered keeps a final result, which ends the sample's record.
func (j *journal) answered(s *stored) {
	if j.spool == nil {
		return
	}
	j.later(spool.Record{
		Kind: spool.Result, Run: s.key.run, Epoch: s.key.epoch, ID: s.key.id,
		Fill: func() []byte {
			b, _ := stream.EncodeResult(s.Result, 0) // of one that cannot be encoded nothing is there later
			return b
		},
	}, keptResult{s.sum.Len, s.sum.CRC32C, s.at.UnixNano()})
}

// joined keeps what an answered sample means to its group, while that is open.
func (j *journal) joined(e *entry) {
	g := e.group
	if j.spool == nil || g == nil || g.closed {
		return
	}
	m := g.members[e.key.id]
	if m == nil || !m.settled {
		return
	}
	m.kept = true
	j.later(spool.Record{Kind: spool.Member, Run: e.key.run, Epoch: e.key.epoch, ID: e.key.id}, keptMember{
		Split: g.key.step.Split, Step: g.key.step.Step, UID: g.key.uid, Size: g.size, Deadline: g.deadline.UnixNano(),
		Scored: m.scored, Reward: m.reward, Values: m.values,
	})
}

// kept are the members that the spool knows of.
func (g *group) kept() (ids []string) {
	for id, m := range g.members {
		if m.kept {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// left drops the members of a group that has closed.
func (j *journal) left(g *group, kept []string) {
	for _, id := range kept {
		j.drop(spool.Member, sampleKey{g.key.step.Run, g.key.epoch, id})
	}
}

func (j *journal) begins(r *run) {
	j.later(spool.Record{Kind: spool.Run, Run: r.name, Epoch: r.epoch}, nil)
}

func (j *journal) gone(r *run) {
	if r.epoch != 0 {
		j.later(spool.Record{Kind: spool.Gone, Run: r.name, Epoch: r.epoch}, nil)
	}
}

// keep writes a sample that is not known to the spool, before it is admitted, and holds
// its id meanwhile: a second connection that sends it waits, and finds it known. settle
// must be called under the mutex with what admit said.
func (m *Manager) keep(s *stream.Session, a *admission) (settle func(taken bool), err error) {
	nothing := func(bool) {}
	if m.spool == nil {
		return nothing, nil
	}
	key := sampleKey{s.Run(), s.Epoch(), a.sample.ID}
	mine := make(chan struct{})
	for {
		m.mu.Lock()
		if m.draining || m.current(s) == nil || m.core.knows(key) {
			m.mu.Unlock()
			return nothing, nil // admit says so
		}
		other := m.writing[key]
		if other == nil {
			m.writing[key] = mine
			m.mu.Unlock()
			break
		}
		m.mu.Unlock()
		<-other // as long as the disk takes
	}
	release := func() {
		delete(m.writing, key)
		close(mine)
	}
	if err := m.put(key, a); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		release()
		if errors.Is(err, spool.ErrInvalid) {
			return nil, refuse(rewards.TooLarge, key.id, "%v", err)
		}
		return nil, m.slow(s, key.id, err)
	}
	return func(taken bool) {
		release()
		if !taken {
			m.spool.Later(spool.Record{Kind: spool.Drop, Of: spool.Sample, Run: key.run, Epoch: key.epoch, ID: key.id})
		}
	}, nil
}

// slow refuses a sample that the spool does not take at the moment, as if there were no
// credit: its client sends it again after its next credit or result, and after a second. The
// caller holds the mutex.
func (m *Manager) slow(s *stream.Session, id string, why error) error {
	now := time.Now()
	if m.core.stuck == "" {
		m.wakeUp() // people are told
	}
	m.core.refused(now, why)
	s.Warn(now, rewards.Unavailable, m.core.stuck)
	return refuse(rewards.OverCredit, id, "%s", m.core.stuck)
}

// put writes a sample's record.
func (m *Manager) put(key sampleKey, a *admission) error {
	meta, err := json.Marshal(keptSample{
		Reward: a.profile, Policy: a.policy.Policy, Value: a.policy.Value, Arrived: a.arrived.UnixNano(), Deadline: a.deadline.UnixNano(),
	})
	if err != nil {
		return err
	}
	return m.spool.Put(spool.Record{
		Kind: spool.Sample, Run: key.run, Epoch: key.epoch, ID: key.id, Meta: meta, Body: a.frame.Bytes(), Sum: a.frame.Sum().CRC32C,
	})
}

// away owns samples whose client was connected to an earlier life of the gateway. Their
// results are remembered until it sends them again.
type away struct{ nobody }

func (away) remembers() bool { return true }

// Restored counts the records that Restore has read.
type Restored struct {
	Runs, Samples, Results int
	// Dropped is the number of records that this gateway cannot use, because the gateway does not
	// have the record's reward or cannot decode the record.
	Dropped int
	// Bytes is the total size of the samples' frames in bytes.
	Bytes int64
}

// Restore reads the records of an earlier process from the spool: the runs with their epochs,
// results that clients have not confirmed, open groups, and samples without a result. Restore
// queues these samples with their original deadlines. Call Restore once, before Start.
func (m *Manager) Restore() (Restored, error) {
	var n Restored
	if m.spool == nil {
		return n, nil
	}
	now := time.Now()
	err := m.spool.Each(func(k *spool.Kept) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		err := m.restore(now, k, &n)
		if err != nil && !errors.Is(err, spool.ErrDamaged) {
			n.Dropped++
			m.log.Warn("a record of the spool was dropped, because this gateway cannot use the record", "kind", k.Kind.String(), "run", k.Run, "sample_id", k.ID, "error", err)
			m.core.journal.drop(k.Kind, sampleKey{k.Run, k.Epoch, k.ID})
			return nil
		}
		return err
	})
	if err != nil {
		return n, fmt.Errorf("loop: restore: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.core.runs {
		r.done.trim(&m.cfg, now)
	}
	return n, nil
}

// restore takes in one record. The caller holds the mutex.
func (m *Manager) restore(now time.Time, k *spool.Kept, n *Restored) error {
	r := m.core.runOf(k.Run, now)
	r.epoch = k.Epoch
	switch k.Kind {
	case spool.Run:
		m.epochs = max(m.epochs, k.Epoch) // a clock that was put back must not make an epoch come twice
		n.Runs++
		return nil
	case spool.Member:
		var meta keptMember
		if err := json.Unmarshal(k.Meta, &meta); err != nil {
			return err
		}
		m.core.rejoin(now, r, k.ID, &meta)
		return nil
	case spool.Result:
		err := m.restoreResult(r, k)
		if err == nil {
			n.Results++
		}
		return err
	}
	err := m.restoreSample(now, r, k)
	if err == nil {
		n.Samples++
		n.Bytes += k.Size
	}
	return err
}

func (m *Manager) restoreResult(r *run, k *spool.Kept) error {
	var meta keptResult
	if err := json.Unmarshal(k.Meta, &meta); err != nil {
		return err
	}
	b, err := k.Bytes()
	if err != nil {
		return err
	}
	v, err := wire.DecodeControl(b)
	if err != nil {
		return err
	}
	res, ok := v.(*wire.Result)
	if !ok {
		return fmt.Errorf("%T is not a result", v)
	}
	r.done.add(newStored(sampleKey{k.Run, k.Epoch, k.ID}, wire.Checksum{Len: meta.Len, CRC32C: meta.CRC32C}, res, time.Unix(0, meta.At)))
	return nil
}

func (m *Manager) restoreSample(now time.Time, r *run, k *spool.Kept) error {
	var meta keptSample
	if err := json.Unmarshal(k.Meta, &meta); err != nil {
		return err
	}
	if _, known := m.profile(meta.Reward); !known {
		return fmt.Errorf("%w: %s", rewards.UnknownReward, m.unknownReward(meta.Reward))
	}
	h, err := wire.ReadHeader(k.Body, wire.Limits{MessageBytes: k.Size})
	if err != nil {
		return fmt.Errorf("%w: %w", spool.ErrDamaged, err)
	}
	f, err := h.ReadBody(k.Body, m.buffers)
	if err != nil {
		return fmt.Errorf("%w: %w", spool.ErrDamaged, err)
	}
	if f.Sum().CRC32C != k.Sum {
		f.Release()
		return spool.ErrDamaged
	}
	size := f.Size()
	booked := m.bookedFor(meta.Reward)
	m.flow.Hold(booked, size)
	f.OnRelease(func() { m.dropped(booked, size) })
	sample := h.Sample
	sample.Reward = meta.Reward
	taken, _, err := m.core.admit(now, admission{
		run: r, sample: &sample, frame: f, owner: away{}, profile: meta.Reward, policy: rewards.SamplePolicy{Policy: meta.Policy, Value: meta.Value},
		arrived: time.Unix(0, meta.Arrived), received: time.Unix(0, meta.Arrived), deadline: time.Unix(0, meta.Deadline),
	})
	if !taken {
		f.OnRelease(nil) // it would take the mutex
		m.flow.Drop(booked, size)
		f.Release()
	}
	return err
}

// rejoin takes an answered member into its group, which was open when the gateway died,
// so that the group is complete when the others have come.
func (c *core) rejoin(now time.Time, r *run, id string, meta *keptMember) {
	key := step.Key{Run: r.name, Split: meta.Split, Step: meta.Step}
	g, fresh := r.groupOf(groupKey{key, meta.UID, r.epoch}, meta.Size, now)
	if fresh {
		var ev step.Events
		g.step, ev = c.book.Open(now, key)
		c.heed(ev, &effects{}) // nothing is over, and nobody is there yet
		g.deadline = time.Unix(0, meta.Deadline)
		c.alarms.put(&g.alarm, g.deadline)
	}
	g.join(id)
	g.settle(id, member{scored: meta.Scored, reward: meta.Reward, values: meta.Values, kept: true})
}
