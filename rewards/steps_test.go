package rewards_test

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// stepping answers v and step scores.
func stepping(v float64, steps ...float64) rewards.Scorer {
	return bySample(func(*rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: v, Steps: steps}, nil })
}

// sum adds step scores from the first to the last, as a reader does.
func sum(steps []float64) (s float64) {
	for _, v := range steps {
		s += v
	}
	return s
}

func weighed(key string, weight float64, sc rewards.Scorer) rewards.Component {
	return rewards.Component{Key: key, Weight: weight, Scorer: sc}
}

func TestStepScoresCarryWhatTheOtherComponentsGive(t *testing.T) {
	t.Parallel()
	process, outcome := weighed("process", 0.5, stepping(3.3, 0.1, 0.2, 3)), weighed("outcome", 1, constant(2))
	r := score(t, manager(t, process, outcome), alone)
	assert.InDelta(t, 3.65, r.Score, 1e-12)
	assert.InDeltaSlice(t, []float64{0.05, 0.1, 3.5}, r.Steps, 1e-12, "1.5 of the process, 2 of the outcome")
	assert.InDelta(t, r.Score, sum(r.Steps), 1e-12)
	assert.Empty(t, r.Errors)

	process.Scale = 10
	r = score(t, manager(t, process, outcome), alone)
	assert.InDelta(t, 18.5, r.Score, 1e-12)
	assert.InDeltaSlice(t, []float64{0.5, 1, 17}, r.Steps, 1e-12)
	r = score(t, manager(t, weighed("process", 1, process.Scorer), weighed("none", 0, outcome.Scorer)), alone)
	assert.InDeltaSlice(t, []float64{0.1, 0.2, 3}, r.Steps, 1e-12, "nothing is left to the last step")
	process.Weight = 1
	r = score(t, manager(t, process), alone)
	assert.InDelta(t, 33, r.Score, 1e-12)
	assert.InDeltaSlice(t, []float64{1, 2, 30}, r.Steps, 1e-12)
}

func TestStepScoresCombineStepByStep(t *testing.T) {
	t.Parallel()
	components := []rewards.Component{
		weighed("a", 0.5, stepping(10, 1, 2)), weighed("b", 2, stepping(20, 0.25, -0.5)), weighed("whole", 1, constant(3)),
	}
	for aggregation, want := range map[rewards.Aggregation][]float64{
		rewards.WeightedSum:  {1, 47},
		rewards.WeightedMean: {1 / 3.5, 47 / 3.5},
		rewards.Min:          {0, 3},
		rewards.Max:          {0, 20},
		rewards.Product:      {0, 600},
	} {
		r := score(t, newManager(t, rewards.ManagerConfig{Components: components, Aggregation: aggregation}), alone)
		assert.Equal(t, rewards.Scored, r.Outcome)
		assert.InDeltaSlice(t, want, r.Steps, 1e-12, aggregation)
		assert.InDelta(t, r.Score, sum(r.Steps), 1e-12, aggregation)
		assert.Empty(t, r.Errors)
	}
	r := score(t, manager(t, components[2]), alone)
	assert.Nil(t, r.Steps, "absence is not a list")
	r = score(t, newManager(t, rewards.ManagerConfig{Components: []rewards.Component{weighed("a", 0.5, stepping(3, 1, 2))}, Single: true}), alone)
	assert.Equal(t, []float64{0.5, 1}, r.Steps)
}

func TestWhatClipTakesAwayIsOnTheLastStep(t *testing.T) {
	t.Parallel()
	clipped := weighed("a", 2, stepping(6, 1, 2, 3))
	clipped.Clip, clipped.Scale = &[2]float64{-1, 1}, 10
	r := score(t, manager(t, clipped), alone)
	assert.InDelta(t, 20, r.Score, 0)
	assert.Equal(t, []float64{20, 40, -40}, r.Steps)
}

func TestAComponentThatOnlyReportsHasNoSayInTheSteps(t *testing.T) {
	t.Parallel()
	metric := rewards.Component{Key: "metric", Scorer: stepping(0, 1, 2, 3)}
	r := score(t, manager(t, component("a", stepping(1, 0.5)), metric), alone)
	assert.Equal(t, []float64{1}, r.Steps)
	r = score(t, manager(t, component("whole", constant(3)), metric), alone)
	assert.Nil(t, r.Steps)
	r = score(t, newManager(t, rewards.ManagerConfig{Components: []rewards.Component{metric}, Aggregation: rewards.Min}), alone)
	assert.Equal(t, []float64{0, 0, 0}, r.Steps, "weights do not matter to the smallest value")
}

func TestComponentsThatCountOtherStepsPutTheWholeRewardOnTheLast(t *testing.T) {
	t.Parallel()
	r := score(t, manager(t, component("a", stepping(1, 0.5)), component("b", stepping(2, 1, 2)), component("whole", constant(3))), alone)
	assert.Equal(t, rewards.Scored, r.Outcome)
	assert.InDelta(t, 6, r.Score, 0)
	assert.Equal(t, []float64{0, 6}, r.Steps, "as many as the component with the most has")
	require.Len(t, r.Errors, 1)
	assert.Equal(t, rewards.InvalidScore, r.Errors[0].Class)
	assert.Equal(t, rewards.BlameReward, r.Errors[0].Blame)
	assert.Equal(t, `"a" gives 1 step scores and "b" 2: the whole reward is on the last step`, r.Errors[0].Message)
}

func TestStepScoresTooLargeToAddUpPutTheWholeRewardOnTheLast(t *testing.T) {
	t.Parallel()
	for words, components := range map[string][]rewards.Component{
		"weight · scale · score of step 2 is +Inf": {
			component("a", stepping(1, 0, math.MaxFloat64)), component("b", stepping(1, 0, math.MaxFloat64)),
		},
		"the first 2 steps sum to +Inf": {component("a", stepping(2, math.MaxFloat64, math.MaxFloat64, 0))},
		"the first 2 steps sum to 1e+17, too large to keep the sum with the reward 2.1": {component("a", stepping(2.1, 1e17, 3, 0))},
	} {
		r := score(t, manager(t, components...), alone)
		assert.Equal(t, rewards.Scored, r.Outcome)
		assert.InDelta(t, r.Score, sum(r.Steps), 0)
		assert.InDelta(t, r.Score, r.Steps[len(r.Steps)-1], 0)
		require.Len(t, r.Errors, 1)
		assert.Equal(t, rewards.InvalidScore, r.Errors[0].Class)
		assert.Contains(t, r.Errors[0].Message, words)
	}
}

func TestAFailedComponentTakesItsStepsWithIt(t *testing.T) {
	t.Parallel()
	both := func(policy string) *rewards.Manager {
		return manager(t, component("a", stepping(1, 0.5, 0.5)), on(policy, "b", stepping(1, math.NaN())))
	}
	r := score(t, both("zero"), alone)
	assert.Equal(t, []float64{0.5, 0.5}, r.Steps)
	r = score(t, both("value:0.25"), alone)
	assert.Equal(t, []float64{0.5, 0.75}, r.Steps, "what is imputed is on the last step")
	r = score(t, both("fail"), alone)
	assert.Equal(t, rewards.Failed, r.Outcome)
	assert.Nil(t, r.Steps)
	r = score(t, both("group_mean"), member)
	require.NotNil(t, r.Pending)
	assert.Nil(t, r.Steps, "the reward is not known yet")
	assert.Equal(t, []float64{0.5, 0.5}, r.Pending.Steps)
	done, ok := r.Pending.Resolve(r.Extra, means(map[string]float64{"b": 2}))
	require.True(t, ok)
	assert.InDelta(t, 3, done.Score, 0)
	assert.Equal(t, []float64{0.5, 2.5}, done.Steps)
	done, ok = r.Pending.Resolve(r.Extra, means(nil))
	require.True(t, ok)
	assert.Equal(t, []float64{0.5, 0.5}, done.Steps, "nothing stands in where all members failed")
	r = score(t, manager(t, component("whole", constant(2)), on("value:1", "b", stepping(1, math.NaN()))), alone)
	assert.InDelta(t, 3, r.Score, 0)
	assert.Nil(t, r.Steps, "nobody knows how many there are")
}

func TestAMeanAtTheGroupsEndDividesTheStepsByTheWeightsFinallyUsed(t *testing.T) {
	t.Parallel()
	b := on("group_mean", "b", stepping(1, math.NaN()))
	b.Weight = 3
	m := newManager(t, rewards.ManagerConfig{Aggregation: rewards.WeightedMean, Components: []rewards.Component{component("a", stepping(1, 0.5, 0.5)), b}})
	r := score(t, m, member)
	require.NotNil(t, r.Pending)
	done, ok := r.Pending.Resolve(r.Extra, means(map[string]float64{"b": 2}))
	require.True(t, ok)
	assert.InDelta(t, 7.0/4, done.Score, 1e-15)
	assert.InDeltaSlice(t, []float64{0.125, 1.625}, done.Steps, 1e-15)
	done, ok = r.Pending.Resolve(r.Extra, means(nil))
	require.True(t, ok)
	assert.Equal(t, []float64{0.5, 0.5}, done.Steps)
}

func TestStepScoresThatAreNoneFailTheComponent(t *testing.T) {
	t.Parallel()
	for message, steps := range map[string][]float64{
		"step 2 of 3 has the score NaN":       {0, math.NaN(), 1},
		"step 1 of 1 has the score +Inf":      {math.Inf(1)},
		"4097 step scores, want at most 4096": make([]float64, rewards.MaxSteps+1),
	} {
		r := score(t, manager(t, required("a", stepping(1, steps...))), alone)
		assert.Equal(t, rewards.Failed, r.Outcome)
		assert.Equal(t, rewards.InvalidScore, r.Class())
		assert.Equal(t, message, r.Errors[0].Message)
	}
	r := score(t, manager(t, required("a", stepping(1, make([]float64, rewards.MaxSteps)...))), alone)
	assert.Len(t, r.Steps, rewards.MaxSteps)
}

// TestSegmentsAreThoseOfRLFactory compares with what its judge is shown; the file names
// the source. Of a response that was cut short RL-Factory leaves the last token out.
func TestSegmentsAreThoseOfRLFactory(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../client/testdata/rlfactory_steps.json")
	require.NoError(t, err)
	var f struct {
		Stop int
		Rows []struct {
			Tokens   []int
			Process  []int
			Segments []string
		}
	}
	require.NoError(t, json.Unmarshal(b, &f))
	require.Len(t, f.Rows, 8)
	for i, row := range f.Rows {
		var text []string
		for _, n := range row.Tokens {
			text = append(text, strconv.Itoa(n))
		}
		got := rewards.Segments(strings.Join(text, " "), []string{strconv.Itoa(f.Stop)})
		require.Len(t, got, len(row.Process), "row %d", i)
		if row.Segments == nil { // RL-Factory stops with an AssertionError
			continue
		}
		last := row.Tokens[len(row.Tokens)-1]
		for k, s := range got {
			words := strings.Fields(s)
			if k == len(got)-1 && last != f.Stop {
				words = words[:len(words)-1]
			}
			assert.Equal(t, row.Segments[k], strings.Join(words, " "), "row %d, segment %d", i, k)
		}
	}
}

func TestSegmentsOfAwkwardTexts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		stops []string
		want  []string
	}{
		{"", nil, []string{""}},
		{"", []string{"|"}, []string{""}},
		{"a", []string{""}, []string{"a"}},
		{"|", []string{"|"}, []string{""}},
		{"||", []string{"|"}, []string{"", ""}},
		{"a|tool|b|rest", []string{"|"}, []string{"a", "toolb"}},
		{"a<end>tool<e>b", []string{"<e>", "<end>"}, []string{"a", "toolb"}},
		{"a||b", []string{"|", "||"}, []string{"a"}},
	} {
		assert.Equal(t, tt.want, rewards.Segments(tt.text, tt.stops), "%q by %q", tt.text, tt.stops)
	}
}
