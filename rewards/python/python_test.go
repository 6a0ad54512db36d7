package python_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

func TestAPlainFunctionScoresText(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "length")
	warm(t, s)
	got, err := score(t, s, &rewards.Sample{ID: "a", Response: "four"})
	require.NoError(t, err)
	assert.InDelta(t, 4.0, got.Value, 0)
}

func TestAFunctionGetsTheArgumentsItsSignatureNames(t *testing.T) {
	t.Parallel()
	s := scorer(t, python.Config{}, python.Options{
		Path: "testdata/rewards.py", Name: "filtered", Kwargs: map[string]any{"threshold": 0.75, "unwanted": 1},
	})
	got, err := score(t, s, &rewards.Sample{
		ID: "a", DataSource: "gsm8k", Prompt: "say <b> ", GroundTruth: json.RawMessage(`{"a":[1,null]}`),
		ExtraInfo: json.RawMessage(`{"n":3}`),
	})
	require.NoError(t, err)
	assert.InDelta(t, 0.75, got.Value, 0)
	assert.Equal(t, map[string]any{"source": "gsm8k", "truth": `{"a": [1, null]}`, "prompt": "say <b> ", "n": int64(3)}, got.Extra)
}

func TestAFunctionWithKeywordArgumentsGetsEverything(t *testing.T) {
	t.Parallel()
	s := scorer(t, python.Config{}, python.Options{
		Path: "file://testdata/rewards.py", Name: "everything", Kwargs: map[string]any{"model_name": "m"},
	})
	got, err := score(t, s, &rewards.Sample{ID: "a", Response: "é\u2028", GroundTruth: json.RawMessage(`"7"`)})
	require.NoError(t, err)
	assert.JSONEq(t, `{"data_source":"","extra_info":{},"ground_truth":"7","model_name":"m","solution_str":"é\u2028"}`, got.Extra["got"].(string))
}

func TestResultsAreNumbersDictsAndTuples(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "truth")
	warm(t, s)
	got, err := score(t, s, asks("0.1"))
	require.NoError(t, err)
	assert.Equal(t, rewards.Score{Value: 0.1, Extra: map[string]any{}, Details: map[string]any{}}, got)

	got, err = score(t, s, asks("dict"))
	require.NoError(t, err)
	assert.InDelta(t, 0.5, got.Value, 0)
	assert.Equal(t, map[string]any{"acc": false, "pred": "42", "n": int64(1) << 40, "bad": nil}, got.Extra)
	assert.Equal(t, map[string]any{"lines": []any{"a", "b"}}, got.Details)

	got, err = score(t, s, asks("tuple"))
	require.NoError(t, err)
	assert.InDelta(t, 0.25, got.Value, 0)
	assert.Equal(t, map[string]any{"acc": true}, got.Extra)
	assert.Equal(t, map[string]any{"query": "what was asked", "answer": "what was said"}, got.Details)
}

// TestAFunctionMayScoreEveryStep: the score of a list is its sum, since verl takes the
// sum of a response's token-level scores for its own (compute_grpo_outcome_advantage).
func TestAFunctionMayScoreEveryStep(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "truth")
	warm(t, s)
	for word, want := range map[string]rewards.Score{
		"list":        {Value: 1.75, Steps: []float64{1, -0.25, 1}},
		"steps":       {Value: 0.5, Steps: []float64{0.1, 2}, Extra: map[string]any{"acc": true}},
		"steps_alone": {Value: 0.75, Steps: []float64{0.5, 0.25}, Details: map[string]any{"query": "q", "answer": "a"}},
		"steps_none":  {Value: 0.5},
		"steps_array": {Value: 2, Steps: []float64{0.5, 1.5}},
	} {
		got, err := score(t, s, asks(word))
		require.NoError(t, err, word)
		if want.Extra == nil {
			want.Extra = map[string]any{}
		}
		if want.Details == nil {
			want.Details = map[string]any{}
		}
		assert.Equal(t, want, got, word)
	}
	got, err := score(t, s, asks("steps_most"))
	require.NoError(t, err)
	assert.Len(t, got.Steps, rewards.MaxSteps)
}

// TestAFaultIsAFailedSampleByName holds every way to fail that leaves the process
// alive: same process, next sample fine.
func TestAFaultIsAFailedSampleByName(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "truth")
	warm(t, s)
	pids := stats(s).PIDs
	tests := map[string]struct {
		class rewards.Class
		says  []string
	}{
		"raise":        {rewards.Internal, []string{"rewards.py:truth", "ValueError: no such answer", "line ", "in truth"}},
		"exit":         {rewards.Panicked, []string{"sys.exit(7)"}},
		"none":         {rewards.InvalidScore, []string{"returned None"}},
		"nan":          {rewards.InvalidScore, []string{"nan"}},
		"empty":        {rewards.InvalidScore, []string{"empty list; want a score for each step"}},
		"word":         {rewards.InvalidScore, []string{"str"}},
		"huge":         {rewards.InvalidScore, []string{"over the limit of 1048576"}},
		"score_list":   {rewards.InvalidScore, []string{"the score is a list", "'step_scores'"}},
		"steps_nan":    {rewards.InvalidScore, []string{"the score of step 2 of 3 is nan"}},
		"steps_word":   {rewards.InvalidScore, []string{"the score of step 2 of 2 is NoneType; want a finite number"}},
		"steps_number": {rewards.InvalidScore, []string{"the step scores are a float; want a list"}},
		"steps_many":   {rewards.InvalidScore, []string{"4097 step scores, want at most 4096"}},
		"no_score":     {rewards.InvalidScore, []string{"no 'score'", "acc"}},
		"refused":      {rewards.Unavailable, []string{"ConnectionRefusedError: judge is away"}},
		"alarm":        {rewards.Unavailable, []string{"TimeoutError: own limit"}}, // signals reach plain functions
	}
	for word, want := range tests {
		_, err := score(t, s, asks(word))
		require.Error(t, err, word)
		assert.Equal(t, want.class, rewards.ClassOf(err), "%s: %v", word, err)
		for _, part := range want.says {
			require.ErrorContains(t, err, part, word)
		}
		assert.Less(t, len(err.Error()), 4096, word)
		got, err := score(t, s, asks("2"))
		require.NoError(t, err, "after %s", word)
		assert.InDelta(t, 2.0, got.Value, 0)
	}
	assert.Equal(t, pids, stats(s).PIDs, "none of these costs a process")
}

func TestWhatAFunctionPrintsBelongsToItsSampleAndIsCut(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "truth")
	got, err := score(t, s, asks("print"))
	require.NoError(t, err)
	printed := got.Details["printed"].(string)
	assert.True(t, strings.HasPrefix(printed, "seen\nxxx"), printed)
	assert.Less(t, len(printed), 2100)
	got, err = score(t, s, asks("1"))
	require.NoError(t, err)
	assert.NotContains(t, got.Details, "printed")
	_, err = score(t, s, asks("flood"))
	require.NoError(t, err, "2 MB of output block nobody")
}

func TestAClassIsMadeOnceAndItsLogIsCalled(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "Grader")
	for i := range 3 {
		got, err := score(t, s, &rewards.Sample{ID: fmt.Sprint(i), Response: "x"})
		require.NoError(t, err)
		assert.InDelta(t, float64(i+1), got.Value, 0)
		assert.Equal(t, map[string]any{"made": int64(1), "logged": int64(i)}, got.Extra)
	}
}

func TestWhatCannotBeUsedIsRefusedAtTheStartByName(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		opts python.Options
		says string
	}{
		"import error":       {python.Options{Path: "testdata/broken.py"}, "No module named 'a_module_that_nobody_has'"},
		"no such module":     {python.Options{Path: "pkg://nobody_has_this.module"}, "No module named 'nobody_has_this'"},
		"no such function":   {python.Options{Path: "testdata/rewards.py", Name: "absent"}, "has no 'absent'"},
		"no function":        {python.Options{Path: "testdata/rewards.py", Name: "not_callable"}, "want a function or a class"},
		"argument":           {python.Options{Path: "testdata/rewards.py", Name: "needs_tokenizer"}, "needs reward_model_tokenizer, which nobody gives"},
		"post_process_score": {python.Options{Path: "testdata/rewards.py", Name: "Grouped"}, "Grouped.post_process_scores works on finished groups, and no component calls it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scorer(t, python.Config{}, tt.opts)
			err := s.(rewards.Warmer).Warm(t.Context())
			require.ErrorContains(t, err, tt.says)
			_, err = score(t, s, asks("1"))
			assert.Equal(t, rewards.Unavailable, rewards.ClassOf(err))
			assert.ErrorContains(t, err, tt.says, "a sample learns the reason as well")
		})
	}
}

func TestOptionsAreCheckedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	_, err := python.New(python.Config{Processes: -1, Files: 1}, python.Options{
		Path: "testdata/absent.py", Pixels: "jax", ExtraKeys: map[string]rewards.FieldKind{"a": "float"},
	})
	for _, part := range []string{"processes: want 0…1024, got -1", "files: want 16…1048576, got 1", "absent.py", "jax", "a is \"float\""} {
		require.ErrorContains(t, err, part)
	}
	var reg rewards.Registry
	reg.Register(python.NewFunctions(python.Config{}, nil).Spec())
	_, err = reg.Build("python", json.RawMessage(`{"path":"testdata/rewards.py","naming":"length"}`))
	require.ErrorContains(t, err, "naming")
	built, err := reg.Build("python", json.RawMessage(`{"path":"pkg://m","extra_keys":{"pred":"string","acc":"bool"}}`))
	require.NoError(t, err)
	fields := built.(rewards.ExtraFielder).ExtraFields()
	assert.Equal(t, []rewards.Field{{Name: "acc", Kind: rewards.Bool}, {Name: "pred", Kind: rewards.String}}, fields)
}

func TestAModuleOnThePathIsFoundByItsName(t *testing.T) {
	t.Parallel()
	s := scorer(t, python.Config{}, python.Options{Path: "pkg://math", Name: "fsum"})
	require.ErrorContains(t, s.(rewards.Warmer).Warm(t.Context()), "positional-only")
}
