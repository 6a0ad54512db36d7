package loop_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// said scores a sample by what its response says; "bad" fails, "hang" never ends.
func said(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
	switch s.Response {
	case "bad":
		return rewards.Score{}, fmt.Errorf("%w: as planned", rewards.BadInput)
	case "hang":
		return hanging(ctx, s)
	}
	v, err := strconv.ParseFloat(s.Response, 64)
	return rewards.Score{Value: v}, err
}

// trainer sends steps over one session.
type trainer struct {
	*peer
	s *stage
	n int
}

func (s *stage) trainer(t *testing.T) *trainer {
	t.Helper()
	return &trainer{peer: s.connect(t, wire.Hello{Run: "run"}), s: s}
}

// says sends one sample of a step and waits for its result. A uid makes it one of a
// group of so many.
func (tr *trainer) says(t *testing.T, split rewards.Split, step int64, uid string, size int, responses ...string) {
	t.Helper()
	for _, r := range responses {
		tr.n++
		sample := rig.Sample(fmt.Sprint("s", tr.n), 3)
		sample.Response, sample.Split, sample.Step, sample.UID, sample.GroupSize = r, split, step, uid, size
		tr.send(t, sample)
	}
	for i := range responses {
		tr.result(t, fmt.Sprint("s", tr.n-i))
	}
}

// whole declares that a step has what it has.
func (tr *trainer) whole(split rewards.Split, step int64) {
	tr.s.Manager.Declare(tr.session, wire.Step{Split: split, Step: step})
}

// stats returns the columns of a step by name, having checked their form.
func (tr *trainer) stats(t *testing.T, split rewards.Split, step int64) map[string]stats.ColumnStats {
	t.Helper()
	for _, st := range tr.s.Manager.Runs(0)[0].Steps {
		if st.Split != split || st.Step != step {
			continue
		}
		_, err := json.Marshal(st) // refuses NaN and Inf
		require.NoError(t, err)
		by := map[string]stats.ColumnStats{}
		for i, c := range st.Stats {
			by[c.Column] = c
			require.Equal(t, i == 0, c.Column == "reward_score", "the reward comes first")
		}
		return by
	}
	require.Fail(t, "no such step", "%s %d", split, step)
	return nil
}

func onTrainer(t *testing.T, managers map[string]*rewards.Manager, test func(t *testing.T, tr *trainer)) {
	t.Helper()
	o := rig.Options{Workers: 2, Worker: rig.Settings{Places: 8}, Loop: loop.Config{SampleTimeout: time.Minute}, Profiles: managers}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		tr := s.trainer(t)
		defer tr.drop()
		test(t, tr)
	})
}

// is compares numbers that may be absent.
func is(t *testing.T, want any, got *float64, what string) {
	t.Helper()
	if want == nil {
		assert.Nil(t, got, what)
		return
	}
	if assert.NotNil(t, got, what) {
		assert.InDelta(t, want, *got, 1e-12, what)
	}
}

func TestStepStatsAreThoseOfTheValues(t *testing.T) {
	t.Parallel()
	onTrainer(t, profiles(t, component(said)), func(t *testing.T, tr *trainer) {
		t.Helper()
		tr.says(t, "", 1, "a", 4, "1", "2", "3", "4")
		tr.says(t, "", 1, "b", 4, "0.1", "0.1", "0.1", "0.1")
		tr.says(t, "", 1, "", 0, "10")
		for _, name := range []string{"reward_score", "reward/hash"} {
			c := tr.stats(t, rewards.Train, 1)[name]
			assert.EqualValues(t, 9, c.Count, name)
			assert.Zero(t, c.Failed, name)
			is(t, 20.4/9, c.Mean, name)
			is(t, math.Sqrt((30+4*0.01+100)/9-20.4*20.4/81), c.Std, name)
			is(t, 0.1, c.Min, name)
			is(t, 10, c.Max, name)
			is(t, 0.1, c.P10, name)
			is(t, 1, c.P50, name)
			is(t, 4+0.2*6, c.P90, name) // between the eighth and the ninth
			assert.False(t, c.Sampled, name)
			assert.Equal(t, 2, c.Groups, name)
			assert.Equal(t, 1, c.ZeroStdGroups, name)
			is(t, math.Sqrt(1.25)/2, c.MeanGroupStd, name)
			is(t, nil, c.Drift, name)
		}
	})
}

func TestAFailedSampleIsNoZeroInTheStats(t *testing.T) {
	t.Parallel()
	optional := rewards.Component{Key: "half", Weight: 1, OnFailure: rewards.ComponentPolicy{Policy: rewards.PolicyZero}, Scorer: rewards.ScorerFunc(
		func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			if s.Response == "8" {
				return rewards.Score{}, rewards.BadInput
			}
			if s.Response == "6" {
				return rewards.Score{}, rewards.Skip("not for this one")
			}
			return rewards.Score{Value: 0.5}, nil
		})}
	onTrainer(t, profiles(t, component(said), optional), func(t *testing.T, tr *trainer) {
		t.Helper()
		tr.says(t, "", 1, "", 0, "bad")
		c := tr.stats(t, rewards.Train, 1)["reward_score"]
		assert.Zero(t, c.Count)
		assert.EqualValues(t, 1, c.Failed)
		for name, v := range map[string]*float64{
			"mean": c.Mean, "std": c.Std, "min": c.Min, "max": c.Max, "p10": c.P10, "p50": c.P50, "p90": c.P90, "groups": c.MeanGroupStd, "drift": c.Drift,
		} {
			is(t, nil, v, name)
		}

		tr.says(t, "", 1, "", 0, "4", "8", "6")
		tr.says(t, "", 1, "g", 2, "bad", "2")
		tr.n++
		sample := rig.Sample("taken back", 3)
		sample.Response, sample.Step = "hang", 1
		tr.send(t, sample)
		tr.m.Cancel(tr.session, "taken back")
		tr.result(t, "taken back")

		stats := tr.stats(t, rewards.Train, 1)
		c = stats["reward_score"]
		assert.EqualValues(t, 4, c.Count)
		assert.EqualValues(t, 2, c.Failed, "what its client takes back has not failed")
		is(t, (4.5+8+6+2.5)/4, c.Mean, "an imputed component is part of the reward")
		assert.Zero(t, c.Groups, "one value has no spread")
		c = stats["reward/hash"]
		assert.EqualValues(t, 4, c.Count)
		assert.EqualValues(t, 2, c.Failed)
		is(t, 2, c.Min, "hash")
		c = stats["reward/half"]
		assert.EqualValues(t, 1, c.Failed, "skipped is not failed, nor is what the failure of another component cut short")
		is(t, 0.5, c.Min, "the zero in its place is none of its own")
		assert.NotContains(t, stats, "reward/combined", "it is the reward")
		assert.NotContains(t, stats, "reward/half/imputed")
	})
}

func TestASingleRewardHasItsOwnColumn(t *testing.T) {
	t.Parallel()
	for name, extra := range map[string]map[string]any{"acc": nil, "score": {"acc": true, "words": "two"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := rewards.NewManager(rewards.ManagerConfig{Single: true, Components: []rewards.Component{component(
				func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
					score, err := said(ctx, s)
					score.Extra = extra
					return score, err
				})}})
			require.NoError(t, err)
			onTrainer(t, map[string]*rewards.Manager{"": m}, func(t *testing.T, tr *trainer) {
				t.Helper()
				tr.says(t, "", 1, "g", 3, "1") // what fails before the first success does not know the columns
				tr.says(t, "", 1, "g", 3, "3", "bad")
				stats := tr.stats(t, rewards.Train, 1)
				c := stats[name]
				assert.EqualValues(t, 2, c.Count)
				assert.EqualValues(t, 1, c.Failed)
				assert.Equal(t, 1, c.Groups)
				is(t, 1, c.MeanGroupStd, name)
				if name == "score" {
					is(t, 1, stats["acc"].Mean, "a flag is the share of its trues")
					assert.Zero(t, stats["acc"].Groups)
				}
				assert.NotContains(t, stats, "words")
			})
		})
	}
}

func TestDriftIsAgainstTheStepBeforeInItsOwnStd(t *testing.T) {
	t.Parallel()
	onTrainer(t, profiles(t, component(said)), func(t *testing.T, tr *trainer) {
		t.Helper()
		drift := func(split rewards.Split, step int64) *float64 { return tr.stats(t, split, step)["reward_score"].Drift }
		tr.says(t, "", 1, "", 0, "1", "3")
		tr.whole("", 1)
		tr.says(t, rewards.Val, 2, "", 0, "100", "200")
		tr.whole(rewards.Val, 2)
		is(t, nil, drift(rewards.Val, 2), "val has no step before")
		tr.says(t, "", 2, "", 0, "bad", "bad")
		tr.whole("", 2)
		is(t, nil, drift(rewards.Train, 2), "it has no mean")
		tr.says(t, "", 3, "", 0, "4.5", "4.5")
		is(t, 2.5, drift(rewards.Train, 3), "against step 1: step 2 has no values")
		tr.says(t, "", 4, "", 0, "7")
		is(t, nil, drift(rewards.Train, 4), "step 3 has no std")
		is(t, 2.5, drift(rewards.Train, 3), "and its own drift stays")
		tr.says(t, rewards.Val, 4, "", 0, "100", "100")
		is(t, -1, drift(rewards.Val, 4), "val against val")

		for step := int64(5); step <= 5+64; step++ { // until the first steps are forgotten
			tr.says(t, "", step, "", 0, "7", "9")
		}
		is(t, 0, drift(rewards.Train, 69), "as the step before")
		assert.Len(t, tr.s.Manager.Runs(0)[0].Steps, 64)
		oldest := slices.MinFunc(tr.s.Manager.Runs(0)[0].Steps, func(a, b loop.StepState) int { return int(a.Step - b.Step) })
		assert.EqualValues(t, 6, oldest.Step)
		is(t, 0, oldest.Stats[0].Drift, "it outlives the step that it is against")
	})
}

func TestAGroupIsToldHowMuchTheGroupsOfTheLastStepDiffered(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	told := map[string]*float64{}
	group := rewards.Component{Key: "place", Weight: 1, Group: rewards.GroupScorerFunc(
		func(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
			mu.Lock()
			defer mu.Unlock()
			told[fmt.Sprintf("%s%d%s", g.Split, g.Step, g.UID)] = g.LastMeanStd
			return make([]rewards.MemberScore, len(g.Members)), nil
		})}
	onTrainer(t, profiles(t, component(said), group), func(t *testing.T, tr *trainer) {
		t.Helper()
		spread := func(split rewards.Split, step int64, uid string, responses ...string) {
			tr.says(t, cmp.Or(split, rewards.Train), step, uid, len(responses), responses...)
		}
		tr.s.Manager.Declare(tr.session, wire.Step{Step: 1, Expected: 4})
		spread("", 1, "a", "1", "3")
		spread("", 1, "b", "0", "10")
		spread(rewards.Val, 1, "v", "0", "1000")
		tr.s.Manager.Declare(tr.session, wire.Step{Step: 2, Expected: 6})
		spread("", 2, "a", "1", "2")
		spread("", 2, "b", "1", "1")
		spread("", 3, "a", "0", "40") // while step 2 waits for two more
		spread("", 2, "c", "5", "5")
		spread("", 3, "b", "0", "8")
		spread("", 4, "a", "1", "1")
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, told, 9)
		is(t, nil, told["train1a"], "before the first")
		is(t, nil, told["train1b"], "the step itself does not count")
		is(t, nil, told["val1v"], "nor does another split")
		is(t, 3, told["train2a"], "(1 + 5) / 2")
		is(t, 3, told["train2b"], "the same for the whole step")
		is(t, 3, told["train3a"], "step 2 has not ended")
		is(t, 0.5/3, told["train3b"], "now it has")
		is(t, 12, told["train4a"], "(20 + 4) / 2: nobody said how many step 3 has, and step 4 has begun")
		assert.Equal(t, 2, tr.stats(t, rewards.Train, 2)["reward_score"].ZeroStdGroups)
		assert.Equal(t, 3, tr.stats(t, rewards.Train, 2)["reward/place"].ZeroStdGroups)
		is(t, 0, tr.stats(t, rewards.Train, 2)["reward/place"].MeanGroupStd, "all members got 0")
	})
}

func TestRewardGaugesAreOfTheLatestStepThatHasEnded(t *testing.T) {
	t.Parallel()
	onTrainer(t, profiles(t, component(said)), func(t *testing.T, tr *trainer) {
		t.Helper()
		reg := prometheus.NewPedanticRegistry()
		loop.RewardGauges(reg, tr.s.Manager)
		value := func(name string, labels ...string) *float64 {
			t.Helper()
			families, err := reg.Gather()
			require.NoError(t, err)
			for _, f := range families {
				for _, m := range f.GetMetric() {
					has := []string{}
					for _, l := range m.GetLabel() { // by name
						has = append(has, l.GetValue())
					}
					if f.GetName() == "rewardloop_reward_"+name && slices.Equal(has, labels) {
						v := m.GetGauge().GetValue()
						return &v
					}
				}
			}
			return nil
		}
		families, err := reg.Gather()
		require.NoError(t, err)
		require.Empty(t, families, "nothing without a value")

		tr.says(t, "", 1, "g", 2, "1", "3")
		is(t, 2, value("mean", "reward_score", "run", "train"), "none has ended: the one that runs")
		tr.whole("", 1)
		tr.says(t, "", 2, "", 0, "100")
		tr.says(t, rewards.Val, 9, "h", 2, "5", "5")
		is(t, 1, value("step", "run", "train"), "step 2 has only begun")
		is(t, 2, value("mean", "reward_score", "run", "train"), "mean")
		is(t, 1, value("std", "reward/hash", "run", "train"), "std")
		is(t, 1.2, value("quantile", "reward_score", "0.1", "run", "train"), "quantile")
		is(t, 1, value("mean_group_std", "reward_score", "run", "train"), "groups")
		is(t, 9, value("step", "run", "val"), "val")
		is(t, 1, value("zero_std_groups", "reward_score", "run", "val"), "val")
		is(t, nil, value("drift", "reward_score", "run", "train"), "absent, not 0")
		tr.says(t, "", 3, "", 0, "bad")
		is(t, 2, value("step", "run", "train"), "step 3 has begun, so step 2 has ended")
		is(t, 98, value("drift", "reward_score", "run", "train"), "drift")
		is(t, 0, value("failed", "reward_score", "run", "train"), "failed")

		for i := range 40 { // more runs than are shown
			sample := rig.Sample("x", 3)
			sample.Response = "1"
			result(t, tr.s.submit(t, fmt.Sprint("_other", i), sample))
		}
		families, err = reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "rewardloop_reward_step" {
				assert.InDelta(t, 32, len(f.GetMetric()), 1, "run may be among them, with two splits")
			}
		}
	})
}
