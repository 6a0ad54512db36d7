package stats_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

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

// steps are those of one run, and their statistics.
type steps struct {
	*stats.Stats

	known map[stats.Key]*stats.Progress
}

func newSteps() *steps {
	s := &steps{known: map[stats.Key]*stats.Progress{}}
	s.Stats = stats.New(func(string) iter.Seq[stats.Progress] {
		return func(yield func(stats.Progress) bool) {
			for p := range maps.Values(s.known) {
				if !yield(*p) {
					return
				}
			}
		}
	})
	return s
}

// says takes one result of a step in that has so many components, all of the same value.
func (s *steps) says(split rewards.Split, step int64, components int, values ...float64) {
	key := stats.Key{Run: "run", Split: split, Step: step}
	if s.known[key] == nil {
		s.known[key] = &stats.Progress{Key: key}
	}
	for _, v := range values {
		res := &wire.Result{Outcome: rewards.Scored, RewardScore: &v, ExtraInfo: map[string]any{}}
		for i := range components {
			name := fmt.Sprintf("reward/t%02d", i)
			res.ExtraInfo[name], res.ExtraInfo[name+"/imputed"] = v, false
		}
		s.known[key].Arrived++
		s.Note(key, res)
		s.Pack("run", split)
	}
}

// whole says that a step has what it has.
func (s *steps) whole(split rewards.Split, step int64) {
	s.known[stats.Key{Run: "run", Split: split, Step: step}].Whole = true
}

// stats returns the columns of step 1 of training by name.
func (s *steps) stats(t *testing.T) (by map[string]stats.ColumnStats, more bool) {
	t.Helper()
	all, more := s.Columns(stats.Key{Run: "run", Split: rewards.Train, Step: 1})
	by = map[string]stats.ColumnStats{}
	for i, c := range all {
		require.Equal(t, i == 0, c.Column == "reward_score", "the reward comes first")
		c.Finish()
		by[c.Column] = c
	}
	return by, more
}

// statsOf describes a column that was given these values, after and before a look.
func statsOf(values ...float64) stats.ColumnStats {
	s := newSteps()
	key := stats.Key{Run: "run", Split: rewards.Train, Step: 1}
	s.Note(key, &wire.Result{Outcome: rewards.Failed})
	look := func() stats.ColumnStats {
		all, _ := s.Columns(key)
		all[0].Finish()
		return all[0]
	}
	for i, v := range values {
		s.Note(key, &wire.Result{Outcome: rewards.Scored, RewardScore: &v})
		if i == 2999 { // to look changes nothing
			look()
		}
	}
	return look()
}

func TestValuesAreDroppedOnceALaterStepHasEnded(t *testing.T) {
	t.Parallel()
	s := newSteps()
	s.says(rewards.Train, 1, 20, 1, 2, 3)
	s.whole(rewards.Train, 1)
	require.NotZero(t, s.Kept(rewards.Train, 1), "the latest one may get more")
	before, more := s.stats(t)
	assert.Len(t, before, 16)
	assert.True(t, more)
	s.says(rewards.Val, 7, 20, 5)
	s.whole(rewards.Val, 7)
	s.says(rewards.Val, 7, 20, 5)
	require.NotZero(t, s.Kept(rewards.Train, 1), "another split's")

	s.says(rewards.Train, 2, 20, 5)
	s.says(rewards.Train, 3, 20, 5) // nobody says how many, but step 3 has begun
	assert.Zero(t, s.Kept(rewards.Train, 1))
	assert.NotZero(t, s.Kept(rewards.Train, 3))
	after, _ := s.stats(t)
	assert.Equal(t, before, after, "what they said stays")

	s.says(rewards.Train, 1, 20, 10) // a straggler
	after, _ = s.stats(t)
	c := after["reward_score"]
	assert.EqualValues(t, 4, c.Count)
	is(t, 4, c.Mean, "the mean goes on")
	is(t, 10, c.Max, "as do the ends")
	is(t, 2, c.P50, "quantiles stay")
	assert.True(t, c.Sampled)
	assert.Zero(t, s.Kept(rewards.Train, 1))
}

// Kept is how many values a step keeps.
func (s *steps) Kept(split rewards.Split, step int64) int {
	return stats.Values(s.Stats, stats.Key{Run: "run", Split: split, Step: step})
}

func TestASampleOfAStepThatWasPackedBeforeItCameKeepsNoValue(t *testing.T) {
	t.Parallel()
	s := newSteps()
	s.says(rewards.Train, 1, 1) // declared, and nothing came
	s.says(rewards.Train, 2, 1, 5)
	s.whole(rewards.Train, 2)
	s.says(rewards.Train, 2, 1, 5)
	s.says(rewards.Train, 1, 1, 7)
	assert.Zero(t, s.Kept(rewards.Train, 1))
	late, _ := s.stats(t)
	c := late["reward_score"]
	is(t, 7, c.Mean, "mean")
	is(t, nil, c.P50, "quantiles are of values")
}

func TestAForgottenStepHasNoColumns(t *testing.T) {
	t.Parallel()
	s := newSteps()
	s.says(rewards.Train, 1, 1, 1)
	s.whole(rewards.Train, 1)
	key := stats.Key{Run: "run", Split: rewards.Train, Step: 1}
	s.NoteGroup(key, &wire.GroupStats{Scored: 2, Std: new(3.0)}, nil)
	s.says(rewards.Train, 2, 1, 1)
	is(t, 3, s.LastMeanStd(stats.Key{Run: "run", Split: rewards.Train, Step: 2}), "of step 1")
	s.Forget(key)
	delete(s.known, key)
	is(t, nil, s.LastMeanStd(stats.Key{Run: "run", Split: rewards.Train, Step: 2}), "there is none before")
	all, _ := s.Columns(key)
	assert.Empty(t, all)
	s.NoteGroup(key, &wire.GroupStats{Scored: 2, Std: new(3.0)}, nil) // a group that closes late
	l, ok := s.Latest("run", rewards.Train)
	require.True(t, ok)
	assert.EqualValues(t, 2, l.Key.Step)
	_, ok = s.Latest("run", rewards.Val)
	assert.False(t, ok)
}

func TestStatsOfMoreValuesThanAreKept(t *testing.T) {
	t.Parallel()
	values := make([]float64, 4096)
	for i := range values {
		values[i] = float64(i)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	exact := statsOf(values...)
	assert.False(t, exact.Sampled)
	is(t, 409.5, exact.P10, "of 0 … 4095")
	is(t, 2047.5, exact.P50, "of 0 … 4095")
	is(t, 3685.5, exact.P90, "of 0 … 4095")

	many := make([]float64, 100_000) // rising: a window of the latest would show
	for i := range many {
		many[i] = float64(i) / 100_000
	}
	drawn := statsOf(many...)
	assert.True(t, drawn.Sampled)
	assert.EqualValues(t, 100_000, drawn.Count)
	is(t, 0.499995, drawn.Mean, "over all")
	// The standard error of a median of 4,096 is 0.0078, of the others 0.0047.
	assert.InDelta(t, 0.1, *drawn.P10, 0.02)
	assert.InDelta(t, 0.5, *drawn.P50, 0.03)
	assert.InDelta(t, 0.9, *drawn.P90, 0.02)
	assert.Equal(t, drawn, statsOf(many...), "the draw is seeded")
}

func TestNoStatIsEverNaN(t *testing.T) {
	t.Parallel()
	const most = math.MaxFloat64
	for name, values := range map[string][]float64{
		"none": {}, "one": {0.1}, "the same": slices.Repeat([]float64{0.1}, 1000), "largest": {most, most, most},
		"both ends": {most, -most, most, -most}, "tiny": {math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64},
		"far away": {1e15 + 1, 1e15 + 2, 1e15 + 3}, "ends and one": {-most, most, 1},
	} {
		s := statsOf(values...)
		_, err := json.Marshal(s)
		require.NoError(t, err, name)
		if len(values) == 0 {
			require.Nil(t, s.Mean, name)
			continue
		}
		require.NotNil(t, s.Mean, name)
		require.NotNil(t, s.P50, name)
		assert.LessOrEqual(t, *s.Min, *s.Mean, name)
		assert.LessOrEqual(t, *s.Mean, *s.Max, name)
		if *s.Min == *s.Max {
			require.NotNil(t, s.Std, name)
			assert.Zero(t, *s.Std, name)
		}
		if name == "far away" {
			is(t, math.Sqrt(2.0/3), s.Std, name)
		}
	}
}
