package workers_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// partitioned is a gateway that does not hear some answers.
type partitioned struct {
	*loop.Manager
	mu   sync.Mutex
	left int // guarded by mu
}

func (d *partitioned) Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left > 0 {
		d.left--
		return errPartitioned
	}
	return d.Manager.Finish(ctx, t, res)
}

var errPartitioned = errors.New("the gateway does not hear")

// The lease goes only after the gateway has the result: an answer that is not heard
// sends the ticket back at once, and no lease has to lapse.
func TestAnAnswerThatTheGatewayDoesNotHearIsGivenAgain(t *testing.T) {
	t.Parallel()
	var scores atomic.Int64
	score := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		scores.Add(1)
		return rewards.Score{Value: rig.Hash(s)}, ctx.Err()
	}
	inBubble(t, rig.Options{Profiles: profiles(t, score)}, func(t *testing.T, r *rig.Rig) {
		t.Helper()
		d := &partitioned{Manager: r.Manager, left: 2}
		w, err := workers.New(workers.Options{
			Config: workers.Config{ID: "w"}, Source: r.Source("w"), Gateway: d, Profiles: serving(profiles(t, score)),
		})
		require.NoError(t, err)
		w.Start(t.Context())
		defer w.Stop()
		start := time.Now()
		require.Equal(t, rewards.Scored, result(t, submit(t, r, "x")).Outcome)
		require.EqualValues(t, 3, scores.Load())
		require.Less(t, time.Since(start), 5*time.Second)
	})
}

// script is a source, lease and gateway that hand out one sample and note its end.
type script struct {
	workers.Source
	ticket wire.Ticket
	frame  *wire.Frame

	mu     sync.Mutex
	taken  bool         // guarded by mu
	ends   []string     // guarded by mu
	result *wire.Result // the last one that was handed over; guarded by mu
}

func (s *script) Take(ctx context.Context, _ string, _ int) ([]workers.Lease, error) {
	s.mu.Lock()
	first := !s.taken
	s.taken = true
	s.mu.Unlock()
	if first {
		return []workers.Lease{s}, nil
	}
	<-ctx.Done()
	return nil, nil
}

func (s *script) note(end string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, end)
}

func (s *script) Announce(wire.WorkerInfo)     {}
func (s *script) Move(string, string) error    { return nil }
func (s *script) Close()                       {}
func (s *script) Ticket() wire.Ticket          { return s.ticket }
func (s *script) Context() context.Context     { return context.Background() }
func (s *script) Extend(context.Context) error { return nil }
func (s *script) Done()                        { s.note("done") }
func (s *script) Return(time.Duration)         { s.note("returned") }

func (s *script) Claim(context.Context, wire.Ticket, string) (*wire.Frame, []rewards.ComponentResult, error) {
	return s.frame, nil, nil
}

func (s *script) ClaimGroup(context.Context, wire.Ticket, string) (*wire.Group, error) {
	return nil, wire.ErrGone
}

func (s *script) Finish(_ context.Context, _ wire.Ticket, res *wire.Result) error {
	s.note(string(res.Outcome))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result = res
	return nil
}

// frameOf encodes a sample as the gateway holds it.
func frameOf(t *testing.T, sample *rewards.Sample, buffers *wire.Buffers) *wire.Frame {
	t.Helper()
	msg, err := wire.Encode(sample, wire.Options{})
	require.NoError(t, err)
	frame, err := wire.NewFrame(msg, buffers)
	require.NoError(t, err)
	return frame
}

// A gateway leaves a sample waiting for a worker that serves its reward. One that comes
// all the same, because what the worker serves was not known yet, is answered by name.
func TestAWorkerThatServesNoSuchRewardSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		buffers := &wire.Buffers{Poison: true}
		s := &script{
			frame:  frameOf(t, rig.Sample("x", 3), buffers),
			ticket: wire.Ticket{ID: "x", Attempt: 1, Reward: "ocr", Deadline: time.Now().Add(time.Minute)},
		}
		score := func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: 1}, nil }
		w, err := workers.New(workers.Options{Config: workers.Config{ID: "w"}, Source: s, Gateway: s, Profiles: serving(profiles(t, score))})
		require.NoError(t, err)
		w.Start(t.Context())
		synctest.Wait()
		s.mu.Lock()
		require.Equal(t, []string{"failed", "done"}, s.ends)
		require.Equal(t, rewards.UnknownReward, s.result.Errors[0].Class)
		require.Contains(t, s.result.Errors[0].Message, `serves no reward named "ocr"`)
		s.mu.Unlock()
		require.Zero(t, buffers.Live())
		w.Stop()
	})
}

// A worker whose clock is a little ahead sees the deadline first. Given back, the
// sample would be claimed again and again until its attempts were spent, and be
// answered as lost: the gateway is the one to say that it has expired.
func TestASampleThatExpiresInAWorkersHandsIsNotGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		buffers := &wire.Buffers{Poison: true}
		s := &script{frame: frameOf(t, rig.Sample("x", 3), buffers), ticket: wire.Ticket{ID: "x", Attempt: 1, Deadline: time.Now().Add(time.Second)}}
		hang := func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
			<-ctx.Done()
			return rewards.Score{}, ctx.Err()
		}
		w, err := workers.New(workers.Options{Config: workers.Config{ID: "w"}, Source: s, Gateway: s, Profiles: serving(profiles(t, hang))})
		require.NoError(t, err)
		w.Start(t.Context())
		time.Sleep(1500 * time.Millisecond)
		s.mu.Lock()
		require.Equal(t, []string{"done"}, s.ends)
		s.mu.Unlock()
		require.Zero(t, buffers.Live())
		w.Stop()
	})
}

// serving are the profiles of these managers, with a place each.
func serving(managers map[string]*rewards.Manager) map[string]workers.Profile {
	out := make(map[string]workers.Profile, len(managers))
	for name, m := range managers {
		out[name] = workers.Profile{Manager: m, Queue: wire.QueueName(name, ""), Capacity: 1}
	}
	return out
}

// late is a source that is handed a ticket in the moment in which it is told to take no more.
type late struct{ ferry }

func (l *late) Take(ctx context.Context, _ string, _ int) ([]workers.Lease, error) {
	<-ctx.Done()
	time.Sleep(10 * time.Millisecond) // until the source has looked
	return []workers.Lease{l}, nil
}

func TestAWorkerThatIsDrainedAnswersWhatItWasHandedInThatMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &late{ferry{t: t, reaches: always}}
		score := rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: 1}, pause(ctx, time.Second)
		})
		w, err := workers.New(workers.Options{
			Config: workers.Config{ID: "w"}, Source: l, Gateway: l, Profiles: rig.Served(profiles(t, score), 1),
		})
		require.NoError(t, err)
		w.Start(t.Context())
		synctest.Wait()
		start := time.Now()
		require.NoError(t, w.Drain(t.Context()))
		require.Equal(t, 1010*time.Millisecond, time.Since(start))
		require.EqualValues(t, 1, w.Info().Scored)
		w.Stop()
	})
}
