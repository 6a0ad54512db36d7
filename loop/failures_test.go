package loop_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// paper is a log that a test reads.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// lines are those that hold a text.
func (p *paper) lines(text string) (found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.text.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// Every failure is logged, many alike as a number, and remembered with its reason after the
// sample has gone.
func TestEveryFailureIsLoggedAndRemembered(t *testing.T) {
	t.Parallel()
	log := &paper{}
	boom := func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{}, fmt.Errorf("%w: ValueError: row %s", rewards.Internal, s.ID)
	}
	all := map[string]*rewards.Manager{
		"":      profile(t, component(hashing(0))),
		"judge": profile(t, rewards.Component{Key: "boom", Weight: 1, Required: true, Scorer: rewards.ScorerFunc(boom)}),
		"mixed": profile(t, component(hashing(0)), rewards.Component{Key: "boom", Weight: 1, OnFailure: rewards.ComponentPolicy{Policy: rewards.PolicyZero}, Scorer: rewards.ScorerFunc(boom)}),
	}
	onStage(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 4}, Profiles: all, Loop: loop.Config{SampleTimeout: time.Minute}, Log: slog.New(slog.NewTextHandler(log, nil)),
	}, func(t *testing.T, s *stage) {
		t.Helper()
		for _, reward := range []string{"", "judge", "mixed"} {
			p := s.connect(t, wire.Hello{Run: "run", Client: reward, Reward: reward})
			defer p.drop()
			for _, id := range ids("x"+reward, 20) {
				sample := rig.Sample(id, 3)
				sample.Step = 7
				p.send(t, sample)
				p.result(t, id)
			}
		}
		require.Len(t, log.lines("a sample failed"), 1, "the first at once")
		for _, part := range []string{
			"level=WARN", "sample_id=xjudge0", "run=run", "step=7", "split=train", "reward=judge", "component=boom", "class=internal", "blame=reward",
			"ValueError: row xjudge0", "worker=w", "attempts=1", "outcome=failed",
		} {
			require.Contains(t, log.lines("a sample failed")[0], part)
		}
		require.Len(t, log.lines("has a score without it"), 1)
		time.Sleep(11 * time.Second)
		require.Len(t, log.lines("a sample failed"), 2)
		require.Contains(t, log.lines("a sample failed")[1], "alike_since_last_said=19 alike=20")
		time.Sleep(time.Hour)
		require.Len(t, log.lines("a sample failed"), 2, "nothing has followed")
		list, total := s.Manager.Failures()
		require.EqualValues(t, 40, total)
		require.Len(t, list, 2)
		judge, mixed := list[0], list[1]
		require.Equal(t, "mixed", mixed.Reward)
		require.EqualValues(t, 20, mixed.Scored)
		require.Equal(t, "judge", judge.Reward)
		require.Equal(t, "boom", judge.Component)
		require.EqualValues(t, 20, judge.Count)
		require.Zero(t, judge.Scored)
		require.Equal(t, "xjudge19", judge.Samples[0].ID)
		require.EqualValues(t, 7, judge.Samples[0].Step)
	})
}

// A sample that nobody scored in time has failed as a whole; one that its client took back
// has not failed.
func TestWhatExpiredIsAFailureAndWhatWasCancelledIsNone(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hanging)), Loop: loop.Config{MaxAttempts: 1}}, func(t *testing.T, s *stage) {
		t.Helper()
		gone := s.submitFor(t, "_run", rig.Sample("gone", 3), time.Hour)
		late := s.submitFor(t, "_run", rig.Sample("late", 3), time.Second)
		gone.Cancel("not wanted")
		require.Equal(t, rewards.OutcomeExpired, result(t, late).Outcome)
		list, total := s.Manager.Failures()
		require.EqualValues(t, 1, total)
		require.Empty(t, list[0].Component)
		require.Equal(t, rewards.Expired, list[0].Class)
		require.Equal(t, "late", list[0].Samples[0].ID)
	})
}

// A failed sample counts in the times of its step: the trainer has waited for it as for any
// other. A step whose samples all failed has a report.
func TestAFailedSampleCountsInTheTimesOfItsStep(t *testing.T) {
	t.Parallel()
	score := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		if s.ID[0] == 'x' {
			time.Sleep(19 * time.Second)
			return rewards.Score{}, fmt.Errorf("%w: no", rewards.Internal)
		}
		return hashing(time.Second)(ctx, s)
	}
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component(score)}, Timeout: time.Minute})
	require.NoError(t, err)
	onStage(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 8}, Profiles: map[string]*rewards.Manager{"": m}}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		for step, names := range map[int64][]string{1: {"a", "b", "x"}, 2: {"xx", "xy"}} {
			s.Manager.Declare(p.session, wire.Step{Step: step, Expected: int64(len(names))})
			for _, id := range names {
				sample := rig.Sample(id, 3)
				sample.Step = step
				p.send(t, sample)
			}
		}
		for _, id := range []string{"a", "b", "x", "xx", "xy"} {
			p.result(t, id)
		}
		for _, st := range s.Manager.Runs(0)[0].Steps {
			require.InDelta(t, 19_000, st.ExposedMS, 100, "step %d", st.Step)
			detail, err := s.Manager.Step("run", rewards.Train, st.Step)
			require.NoError(t, err)
			require.NotNil(t, detail.Report, "step %d", st.Step)
			require.InDelta(t, st.ExposedMS/1000, detail.Report.Exposed, 0.001, "the page and the report say the same")
			require.Equal(t, map[int64]int{1: 1, 2: 2}[st.Step], detail.Report.Unscored)
			require.Equal(t, "failed", detail.Report.Tail[0].Outcome)
		}
	})
}
