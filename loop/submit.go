package loop

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Submission is a sample from inside the process, such as a sample of an HTTP request or of the
// offline scorer.
type Submission struct {
	// Run is the name of the run in whose queue the sample waits. HTTP routes use names that begin
	// with "_", which no websocket client may use.
	Run string
	// Client is the name of the token of the request; empty: the request needed no token.
	Client string
	// Sample is the sample to score. Its ID must be unique in the run while the sample is in
	// flight.
	Sample *rewards.Sample
	// Timeout is the maximum time to the final result. The default is Config.SampleTimeout.
	Timeout time.Duration
	// Policy, if not nil, replaces the profile's on_sample_failure.
	Policy *rewards.SamplePolicy
}

// Future is the pending result of a Submission.
type Future struct {
	m     *Manager
	key   sampleKey
	once  sync.Once
	ready chan struct{}
	res   *wire.Result // set before ready is closed
}

// Done returns a channel that is closed when the result is available.
func (f *Future) Done() <-chan struct{} { return f.ready }

// Wait returns the final result. If ctx ends before the result is available, Wait cancels the
// sample and returns the error of ctx.
func (f *Future) Wait(ctx context.Context) (*wire.Result, error) {
	select {
	case <-f.ready:
		return f.res, nil
	case <-ctx.Done():
		f.Cancel("the caller left")
		return nil, ctx.Err()
	}
}

// Cancel cancels the sample. The result of the Future is then cancelled.
func (f *Future) Cancel(reason string) {
	m := f.m
	m.mu.Lock()
	var fx effects
	if r := m.core.runs[f.key.run]; r != nil && r.epoch == f.key.epoch {
		fx = m.core.cancel(time.Now(), r, []string{f.key.id}, reason)
	}
	m.mu.Unlock()
	m.apply(fx)
}

func (f *Future) deliver(s *stored) []byte {
	f.once.Do(func() {
		f.res = s.Result
		close(f.ready)
	})
	return nil
}

func (f *Future) remembers() bool { return false }

func (f *Future) expects(int64) {}

func (f *Future) waits(bool, wire.CreditTotals) {}

// Submit accepts a sample from inside the process. If Submit returns an error, the sample was not
// accepted, and the error wraps the rewards.Class of the reason.
func (m *Manager) Submit(_ context.Context, sub Submission) (*Future, error) {
	s := sub.Sample
	policy, known := m.profile(s.Reward)
	if !known {
		return nil, m.refused(sub.Client, refuse(rewards.UnknownReward, s.ID, "%s", m.unknownReward(s.Reward)))
	}
	if sub.Policy != nil {
		policy = *sub.Policy
	}
	msg, err := wire.Encode(s, wire.Options{Limits: m.limits()})
	if err != nil {
		return nil, m.refused(sub.Client, fmt.Errorf("%w: %w", errRefused, err))
	}
	size := msg.Size()
	booked := m.bookedFor(s.Reward)
	if err := m.reserve(s.ID, booked, size); err != nil {
		return nil, m.refused(sub.Client, err)
	}
	frame, err := wire.NewFrame(msg, m.buffers)
	if err != nil {
		m.dropped(booked, size)
		return nil, m.refused(sub.Client, fmt.Errorf("%w: %w", errRefused, err))
	}
	frame.OnRelease(func() { m.dropped(booked, size) })
	timeout := sub.Timeout
	if timeout == 0 {
		timeout = m.cfg.SampleTimeout
	}
	now := time.Now()
	f := &Future{m: m, ready: make(chan struct{})}
	m.mu.Lock()
	r := m.core.runOf(sub.Run, now)
	f.key = sampleKey{r.name, r.epoch, s.ID}
	taken, fx, err := m.core.admit(now, admission{
		run: r, sample: s, frame: frame, owner: f, deadline: now.Add(timeout), profile: s.Reward, policy: policy,
		shut: m.draining,
	})
	m.mu.Unlock()
	if !taken {
		frame.Release()
	}
	m.apply(fx)
	if err != nil {
		return nil, m.refused(sub.Client, err)
	}
	m.metrics.client(m.metrics.clientSamples, sub.Client)
	return f, nil
}

// reserve books the bytes of a local sample, or refuses it as overload.
func (m *Manager) reserve(id, profile string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return refuse(rewards.Draining, id, "the gateway is draining")
	}
	if !m.flow.Reserve(profile, size) {
		held, granted := m.flow.Bytes()
		return refuse(rewards.Unavailable, id, "%d of max_bytes = %d are in use and %d granted to streams, and the profile %q may use at most %d of them; try again in a moment",
			held, m.cfg.MaxBytes, granted, shown(profile), m.cfg.profileBytes())
	}
	return nil
}

// refused counts a refusal.
func (m *Manager) refused(client string, err error) error {
	m.metrics.client(m.metrics.clientRefused, client)
	m.metrics.refused.WithLabelValues(string(rewards.ClassOf(err))).Inc()
	return err
}
