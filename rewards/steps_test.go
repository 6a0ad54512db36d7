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

func TestStepScoresCombineStepByStep(t *testing.T) {
	t.Parallel()
	weighed := func(key string, weight float64, sc rewards.Scorer) rewards.Term {
		return rewards.Term{Key: key, Weight: weight, Scorer: sc}
	}
	terms := []rewards.Term{
		weighed("a", 0.5, stepping(10, 1, 2)), weighed("b", 2, stepping(20, 0.25, -0.5)), weighed("whole", 1, constant(3)),
	}
	for aggregation, want := range map[rewards.Aggregation][]float64{
		rewards.WeightedSum:  {1, 0},
		rewards.WeightedMean: {0.4, 0}, // of the weights that have steps: 1/2.5
		rewards.Min:          {0.25, -0.5},
		rewards.Max:          {1, 2},
		rewards.Product:      {0.25, -1},
	} {
		r := score(t, newManager(t, rewards.ManagerConfig{Terms: terms, Aggregation: aggregation}), alone)
		assert.Equal(t, rewards.Scored, r.Outcome)
		assert.InDeltaSlice(t, want, r.Steps, 1e-12, aggregation)
		assert.Empty(t, r.Errors)
	}
	r := score(t, manager(t, terms...), alone)
	assert.InDelta(t, 48, r.Score, 0, "a value is the term's own word")
	r = score(t, manager(t, terms[2]), alone)
	assert.Nil(t, r.Steps, "absence is not a list")
	r = score(t, newManager(t, rewards.ManagerConfig{Terms: []rewards.Term{weighed("a", 0.5, stepping(3, 1, 2))}, Single: true}), alone)
	assert.Equal(t, []float64{0.5, 1}, r.Steps)
}

func TestATermThatOnlyReportsHasNoSayInTheSteps(t *testing.T) {
	t.Parallel()
	metric := rewards.Term{Key: "metric", Scorer: stepping(0, 1, 2, 3)}
	r := score(t, manager(t, term("a", stepping(1, 0.5)), metric), alone)
	assert.Equal(t, []float64{0.5}, r.Steps)
	r = score(t, manager(t, term("whole", constant(3)), metric), alone)
	assert.Nil(t, r.Steps)
	r = score(t, newManager(t, rewards.ManagerConfig{Terms: []rewards.Term{metric}, Aggregation: rewards.Min}), alone)
	assert.Equal(t, []float64{1, 2, 3}, r.Steps, "weights do not matter to the smallest value")
}

func TestTermsThatCountOtherStepsGiveNone(t *testing.T) {
	t.Parallel()
	r := score(t, manager(t, term("a", stepping(1, 0.5)), term("b", stepping(2, 1, 2))), alone)
	assert.Equal(t, rewards.Scored, r.Outcome)
	assert.InDelta(t, 3, r.Score, 0)
	assert.Nil(t, r.Steps)
	require.Len(t, r.Errors, 1)
	assert.Equal(t, rewards.InvalidScore, r.Errors[0].Class)
	assert.Equal(t, `"a" gives 1 step scores and "b" 2; without as many from each there are none`, r.Errors[0].Message)

	huge := stepping(0, 0, math.MaxFloat64)
	r = score(t, manager(t, term("a", huge), term("b", huge)), alone)
	assert.Nil(t, r.Steps)
	require.Len(t, r.Errors, 1)
	assert.Contains(t, r.Errors[0].Message, "weighted_sum over the scores of step 2 gives no finite number")
}

func TestAFailedTermTakesItsStepsWithIt(t *testing.T) {
	t.Parallel()
	both := func(policy string) *rewards.Manager {
		return manager(t, term("a", stepping(1, 0.5, 0.5)), on(policy, "b", stepping(1, math.NaN())))
	}
	r := score(t, both("zero"), alone)
	assert.Equal(t, []float64{0.5, 0.5}, r.Steps)
	r = score(t, both("fail"), alone)
	assert.Equal(t, rewards.Failed, r.Outcome)
	assert.Nil(t, r.Steps)
	r = score(t, both("group_mean"), member)
	require.NotNil(t, r.Pending)
	assert.Equal(t, []float64{0.5, 0.5}, r.Steps)
}

func TestStepScoresThatAreNoneFailTheTerm(t *testing.T) {
	t.Parallel()
	for message, steps := range map[string][]float64{
		"step 2 of 3 has the score NaN":  {0, math.NaN(), 1},
		"step 1 of 1 has the score +Inf": {math.Inf(1)},
		"4097 step scores, at most 4096": make([]float64, rewards.MaxSteps+1),
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
