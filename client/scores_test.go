package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// rlFactory is what RL-Factory says of some responses; the file names the source. The
// Python client reads it too.
type rlFactory struct {
	Source string
	Stop   int64
	Length int
	Rows   []struct {
		Tokens        []int64
		ToolUseScores []*float64 `json:"tool_use_scores"`
		Score         float64
		Process       []int
		Outcome       []int
		Rewards       []float32
	}
}

func readRLFactory(t *testing.T) rlFactory {
	t.Helper()
	b, err := os.ReadFile("testdata/rlfactory_steps.json")
	require.NoError(t, err)
	var f rlFactory
	require.NoError(t, json.Unmarshal(b, &f))
	require.Len(t, f.Rows, 8)
	return f
}

func places(mask []bool) []int {
	var at []int
	for i, set := range mask {
		if set {
			at = append(at, i)
		}
	}
	return at
}

func scored(id string, v float64, steps ...float64) *wire.Result {
	return &wire.Result{Type: "result", ID: id, Outcome: rewards.Scored, RewardScore: &v, StepScores: steps}
}

func failed(id string, fallback *float64) *wire.Result {
	r := &wire.Result{Type: "result", ID: id, Outcome: rewards.Failed, Errors: []rewards.ComponentError{{Class: rewards.Timeout, Message: "too slow"}}}
	if fallback != nil {
		r.Fallback = &wire.Fallback{Policy: "group_mean", Value: fallback}
	}
	return r
}

func TestStepScoresStandWhereRLFactoryPutsThem(t *testing.T) {
	t.Parallel()
	f := readRLFactory(t)
	var results, whole []*wire.Result
	o := client.ScoreOptions{Length: f.Length}
	for i, row := range f.Rows {
		mask, err := client.StepMask(row.Tokens, []int64{f.Stop}, client.Process)
		require.NoError(t, err)
		require.Len(t, mask, len(row.Tokens))
		assert.Equal(t, row.Process, places(mask), "row %d", i)
		last, err := client.StepMask(row.Tokens, []int64{f.Stop}, client.Outcome)
		require.NoError(t, err)
		assert.Equal(t, row.Outcome, places(last), "row %d", i)
		var tool, steps []float64
		for _, v := range row.ToolUseScores {
			if v == nil {
				tool = append(tool, math.NaN())
				continue
			}
			tool, steps = append(tool, *v), append(steps, *v)
		}
		o.StepMasks, o.ToolUseScores = append(o.StepMasks, mask), append(o.ToolUseScores, tool)
		results = append(results, scored("a", row.Score))
		whole = append(whole, scored("a", 7, append(steps, row.Score)...))
	}
	got, err := client.RMScores(results, o)
	require.NoError(t, err)
	o.ToolUseScores = nil
	same, err := client.RMScores(whole, o)
	require.NoError(t, err)
	assert.Equal(t, got, same, "the loop's step scores go where those of the rollout go")
	for i, row := range f.Rows {
		assert.Equal(t, row.Rewards, got.Row(i), "row %d", i)
		assert.True(t, got.Valid[i])
	}
}

// TestStepScoresComeWithTheScoreAndNeverWithoutOne sends a group whose second member
// loses a component for good: without its weight the mean has none to divide by.
func TestStepScoresComeWithTheScoreAndNeverWithoutOne(t *testing.T) {
	t.Parallel()
	answer := func(f func(id string) (rewards.Score, error)) rewards.Scorer {
		return rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) { return f(s.ID) })
	}
	m, err := rewards.NewManager(rewards.ManagerConfig{Aggregation: rewards.WeightedMean, Timeout: 2 * time.Second, Components: []rewards.Component{
		{Key: "steps", Weight: 1, Scorer: answer(func(string) (rewards.Score, error) {
			return rewards.Score{Value: 0.5, Steps: []float64{0.25, -1, 1e-9}}, nil
		})},
		{Key: "penalty", Weight: -2, Scorer: answer(func(string) (rewards.Score, error) { return rewards.Score{Value: 0}, nil })},
		{Key: "flaky", Weight: 3, Scorer: answer(func(id string) (rewards.Score, error) {
			if id == "alone" {
				return rewards.Score{Value: 1}, nil
			}
			return rewards.Score{}, fmt.Errorf("%w: as told", rewards.Internal)
		})},
	}})
	require.NoError(t, err)
	n := newNode(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 2}, Profiles: map[string]*rewards.Manager{"": m}})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	get := func(id, uid string) *client.Future {
		s := rig.Sample(id, 30)
		if uid != "" {
			s.UID, s.GroupSize = uid, 2
		}
		f, err := c.Submit(t.Context(), s, 0)
		require.NoError(t, err)
		return f
	}
	var results []*wire.Result
	for _, f := range []*client.Future{get("alone", ""), get("a", "u"), get("b", "u")} {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		results = append(results, res)
	}
	assert.Equal(t, []float64{0.125, -0.5, 2.125}, results[0].StepScores, "their sum is the reward")
	assert.InDelta(t, (0.5+3)/2, *results[0].RewardScore, 1e-12)
	for _, res := range results[1:] {
		assert.Equal(t, rewards.Failed, res.Outcome)
		assert.Nil(t, res.StepScores)
	}
	got, err := client.RMScores(results[:1], client.ScoreOptions{StepMasks: [][]bool{{true, true, false, true}}})
	require.NoError(t, err)
	assert.Equal(t, []float32{0.125, -0.5, 0, 2.125}, got.Values)
	require.NoError(t, c.Close())
}

func TestARewardWithoutStepScoresStandsAtTheLastPlace(t *testing.T) {
	t.Parallel()
	mean := 0.25
	mask := []bool{false, true, false, true, true, false} // tokens follow the last place
	batch := []*wire.Result{scored("steps", 1, 0.5, -1, 1.5), scored("none", 2), failed("bad", &mean)}
	masks := [][]bool{mask, mask, mask}
	got, err := client.RMScores(batch, client.ScoreOptions{StepMasks: masks})
	require.NoError(t, err)
	assert.Equal(t, []float32{0, 0.5, 0, -1, 1.5, 0}, got.Row(0))
	assert.Equal(t, []float32{0, 0, 0, 0, 2, 0}, got.Row(1))
	assert.Equal(t, []float32{0, 0, 0, 0, 0.25, 0}, got.Row(2))
	got, err = client.RMScores(batch[1:2], client.ScoreOptions{StepMasks: masks[1:2], ToolUseScores: [][]float64{{7, math.NaN()}}})
	require.NoError(t, err)
	assert.Equal(t, []float32{0, 7, 0, 0, 2, 0}, got.Row(0), "the rollout's own come before it")
	_, err = client.RMScores(batch[1:2], client.ScoreOptions{StepMasks: masks[1:2], ToolUseScores: [][]float64{{7, 7, 7}}})
	require.ErrorContains(t, err, `sample "none" (row 0) has 4 scores for the 3 positions that are set`)
}

func TestSeveralStopTokensCountAsOne(t *testing.T) {
	t.Parallel()
	mask, err := client.StepMask([]int32{1, 9, 2, 8, 3, 9}, []int32{8, 9}, client.Process)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 5}, places(mask))
	_, err = client.StepMask(nil, []int{9}, client.Process)
	require.ErrorIs(t, err, client.ErrScores)
	_, err = client.StepMask([]int{1}, []int{9}, "steps")
	require.ErrorContains(t, err, `mode "steps", want outcome or process`)
}

func TestAFailedSampleHasNoScoreInAnyForm(t *testing.T) {
	t.Parallel()
	mean := 0.25
	batch := []*wire.Result{scored("a", 0.5, 0.125, 0.375), failed("b", &mean), failed("c", nil), scored("d", 0)}
	got, err := client.RMScores(batch, client.ScoreOptions{})
	require.NoError(t, err)
	assert.Equal(t, []float32{0.5, 0.25}, got.Values[:2])
	assert.True(t, math.IsNaN(float64(got.Values[2])))
	assert.Equal(t, []bool{true, false, false, true}, got.Valid)
	assert.Equal(t, [2]int{4, 1}, [2]int{got.Rows, got.Columns})

	got, err = client.RMScores(batch, client.ScoreOptions{Lengths: []int{1, 2, 3, 1}, OnFailed: "value:-1"})
	require.NoError(t, err)
	assert.Equal(t, []float32{0.5, 0, 0, 0, -1, 0, 0, 0, -1, 0, 0, 0}, got.Values)

	got, err = client.RMScores(batch[:2], client.ScoreOptions{StepMasks: [][]bool{{true, false, true}, {true, true}}, Length: 4})
	require.NoError(t, err)
	assert.Equal(t, []float32{0.125, 0, 0.375, 0, 0, 0.25, 0, 0}, got.Values)

	_, err = client.RMScores(batch, client.ScoreOptions{OnFailed: "raise"})
	require.ErrorContains(t, err, `sample "b" has no score: failed (timeout: too slow)`)
	got, err = client.RMScores(batch[:2], client.ScoreOptions{OnFailed: "nan"})
	require.NoError(t, err)
	assert.True(t, math.IsNaN(float64(got.Values[1])))
	got, err = client.RMScores(nil, client.ScoreOptions{})
	require.NoError(t, err)
	assert.Empty(t, got.Values)
}

func TestScoresThatDoNotFitTheirPlacesAreRefusedByName(t *testing.T) {
	t.Parallel()
	one := []*wire.Result{scored("s7", 1, 0.5, 0.25)}
	mask := [][]bool{{true, false, true, true}}
	for words, o := range map[string]client.ScoreOptions{
		`sample "s7" (row 0) has 2 scores for the 3 positions that are set`:    {StepMasks: mask},
		`has 4 scores for the 3 positions that are set`:                        {StepMasks: mask, ToolUseScores: [][]float64{{1, math.NaN(), 2}}},
		`sample "s7" (row 0): +Inf is not a finite float32`:                    {StepMasks: mask, ToolUseScores: [][]float64{{math.Inf(1)}}},
		`has 2 scores for the 0 positions that are set`:                        {StepMasks: [][]bool{{false}}},
		`give Lengths or StepMasks`:                                            {StepMasks: mask, Lengths: []int{1}},
		`ToolUseScores needs StepMasks`:                                        {ToolUseScores: [][]float64{{1}}, Lengths: []int{1}},
		`0 lengths, 2 step masks and 0 rows of tool use scores for 1 results`:  {StepMasks: [][]bool{{true}, {true}}},
		`row 0 has 4 tokens, want at most 3`:                                   {StepMasks: mask, Length: 3},
		`row 0 has 0 tokens and no position`:                                   {Lengths: []int{0}},
		`Length needs Lengths or StepMasks`:                                    {Length: 3},
		`OnFailed "zero", want fallback, nan, raise or value:<x>`:              {OnFailed: "zero"},
		`OnFailed: policy "value:x": want value:<number> with a finite number`: {OnFailed: "value:x"},
	} {
		_, err := client.RMScores(one, o)
		require.ErrorIs(t, err, client.ErrScores, words)
		require.ErrorContains(t, err, words)
	}
	_, err := client.RMScores([]*wire.Result{scored("big", 1e39)}, client.ScoreOptions{})
	require.ErrorContains(t, err, `sample "big" (row 0): 1e+39 is not a finite float32`)
}
