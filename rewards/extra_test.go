package rewards_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// byID answers by the sample's ID: ok, fail or skip.
func byID(extra map[string]any) rewards.Scorer {
	return bySample(func(s *rewards.Sample) (rewards.Score, error) {
		switch s.ID {
		case "fail":
			return rewards.Score{Extra: extra}, errBroken
		case "skip":
			return rewards.Score{}, rewards.Skip("as told")
		}
		return rewards.Score{Value: 1, Extra: extra}, nil
	})
}

func keys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

var threeKinds = []rewards.Field{{"n", rewards.Number}, {"b", rewards.Bool}, {"s", rewards.String}}

func TestEverySampleHasTheSameColumnsWhateverBecomesOfIt(t *testing.T) {
	t.Parallel()
	sc := declaring{byID(map[string]any{"n": 2.5, "b": true, "s": "text"}), threeKinds}
	m := manager(t, component("t", sc), component("other", constant(1)))

	failed := score(t, m, rewards.Sample{ID: "fail"}) // first: nothing is learned from a success
	ok := score(t, m, rewards.Sample{ID: "ok"})
	skipped := score(t, m, rewards.Sample{ID: "skip"})
	waiting := score(t, m, rewards.Sample{ID: "fail", UID: "u", GroupSize: 2})
	require.NotNil(t, waiting.Pending)

	assert.Equal(t, map[string]any{
		"reward/t": 1.0, "reward/t/imputed": false, "reward/t/n": 2.5, "reward/t/b": true, "reward/t/s": "text",
		"reward/other": 1.0, "reward/other/imputed": false, "reward/combined": 2.0,
	}, ok.Extra)
	for _, r := range []rewards.Result{failed, skipped, waiting} {
		assert.Equal(t, keys(ok.Extra), keys(r.Extra))
		assert.Nil(t, r.Extra["reward/t"])
		assert.Nil(t, r.Extra["reward/t/n"], "an absent number is null")
		assert.Nil(t, r.Extra["reward/t/b"])
		assert.Empty(t, r.Extra["reward/t/s"], "an absent string is empty")
		assert.NotNil(t, r.Extra["reward/t/s"])
	}
	assert.Zero(t, m.DroppedExtra())
}

func TestColumnsAreTheKeysOfEveryResultBeforeThereIsOne(t *testing.T) {
	t.Parallel()
	sc := declaring{byID(nil), threeKinds}
	m := manager(t, component("t", sc), component("other", declaring{constant(1), nil}))
	assert.Equal(t, []rewards.Field{
		{"reward/combined", rewards.Number},
		{"reward/other", rewards.Number},
		{"reward/other/imputed", rewards.Bool},
		{"reward/t", rewards.Number},
		{"reward/t/b", rewards.Bool},
		{"reward/t/imputed", rewards.Bool},
		{"reward/t/n", rewards.Number},
		{"reward/t/s", rewards.String},
	}, m.Columns())
	single := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("t", sc)}, Single: true})
	for _, m := range []*rewards.Manager{m, single} {
		var names []string
		for _, f := range m.Columns() {
			names = append(names, f.Name)
		}
		for _, id := range []string{"ok", "fail", "skip"} {
			assert.Equal(t, names, keys(score(t, m, rewards.Sample{ID: id}).Extra))
		}
	}
}

func TestUndeclaredFieldsAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	sc := declaring{byID(map[string]any{"n": 1.0, "surprise": 2.0, "another": 3.0}), threeKinds}
	m := manager(t, component("t", sc), component("none", declaring{byID(map[string]any{"x": 1.0}), nil}))
	for range 3 {
		r := score(t, m, alone)
		assert.NotContains(t, r.Extra, "reward/t/surprise")
		assert.NotContains(t, r.Extra, "reward/none/x", "a declaration of no fields is one")
	}
	assert.EqualValues(t, 9, m.DroppedExtra())
}

func TestAScorerThatDeclaresNothingIsHeldToItsFirstSuccess(t *testing.T) {
	t.Parallel()
	now := map[string]any{"first": 1.0, "word": "a", "list": []int{1}}
	m := manager(t, component("t", bySample(func(s *rewards.Sample) (rewards.Score, error) {
		if s.ID == "fail" {
			return rewards.Score{}, errBroken
		}
		return rewards.Score{Value: 1, Extra: now}, nil
	})))
	before := score(t, m, rewards.Sample{ID: "fail"})
	assert.NotContains(t, before.Extra, "reward/t/first", "nothing is known yet")

	assert.InDelta(t, 1, score(t, m, alone).Extra["reward/t/first"], 0)
	assert.EqualValues(t, 1, m.DroppedExtra(), "a list is no scalar")

	now = map[string]any{"first": "no longer a number", "second": 2.0}
	r := score(t, m, alone)
	assert.Equal(t, []string{"reward/combined", "reward/t", "reward/t/first", "reward/t/imputed", "reward/t/word"}, keys(r.Extra))
	assert.Nil(t, r.Extra["reward/t/first"], "a value of another kind is absent")
	assert.Equal(t, keys(r.Extra), keys(score(t, m, rewards.Sample{ID: "fail"}).Extra))
	assert.EqualValues(t, 2, m.DroppedExtra())
}

func TestALearnedFieldNeverOverwritesATrainersColumn(t *testing.T) {
	t.Parallel()
	sc := byID(map[string]any{"uid": "x", "acc": 7.0, "rewardloop/valid": true, "fine": true})
	m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("t", sc)}, Single: true})
	r := score(t, m, alone)
	assert.Equal(t, map[string]any{"score": 1.0, "acc": 7.0, "rewardloop/imputed": false, "fine": true}, r.Extra)
	assert.EqualValues(t, 2, m.DroppedExtra())
}

func TestFieldsThatWouldOverwriteAColumnAreRefusedAtLoad(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		single bool
		fields []string
		says   []string
	}{
		{"trainer's", true, []string{"uid", "rm_scores", "fine"}, []string{`"uid" would overwrite`, `"rm_scores" would overwrite`}},
		{"ours", true, []string{"rewardloop/valid"}, []string{`"rewardloop/valid" would overwrite`}},
		{"the reward", true, []string{"score"}, []string{`"score" is the column of the reward; give the field another name`}},
		{"the flag", false, []string{"imputed"}, []string{`"reward/t/imputed" is the column that marks`}},
		{"nameless", false, []string{""}, []string{"without a name"}},
		{"twice", false, []string{"x", "x"}, []string{`"x" twice`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var fields []rewards.Field
			for _, name := range tt.fields {
				fields = append(fields, rewards.Field{Name: name, Kind: rewards.Number})
			}
			_, err := rewards.NewManager(rewards.ManagerConfig{
				Components: []rewards.Component{component("t", declaring{constant(1), fields})}, Single: tt.single,
			})
			require.Error(t, err)
			for _, text := range tt.says {
				require.ErrorContains(t, err, text, "all of them at once")
			}
			assert.ErrorContains(t, err, `component "t"`)
		})
	}
}

func TestTheNameOfATrainersColumnIsFineBelowAComponent(t *testing.T) {
	t.Parallel()
	m := manager(t, component("t", declaring{byID(map[string]any{"uid": "x"}), []rewards.Field{{"uid", rewards.String}}}))
	assert.Equal(t, "x", score(t, m, alone).Extra["reward/t/uid"])
}

func TestASingleRewardIsAccOrScoreBesideItsFields(t *testing.T) {
	t.Parallel()
	single := func(sc rewards.Scorer) rewards.Result {
		tm := on("value:0.5", "t", sc)
		return score(t, newManager(t, rewards.ManagerConfig{Components: []rewards.Component{tm}, Single: true}), alone)
	}
	assert.Equal(t, map[string]any{"acc": 0.75, "rewardloop/imputed": false}, single(constant(0.75)).Extra)
	assert.Equal(t, map[string]any{"acc": 0.75, "rewardloop/imputed": false}, single(declaring{constant(0.75), nil}).Extra)
	assert.Equal(t, map[string]any{"acc": 0.5, "rewardloop/imputed": true}, single(failing(errBroken)).Extra)
	withField := declaring{byID(map[string]any{"n": int64(3)}), threeKinds[:1]}
	assert.Equal(t, map[string]any{"score": 1.0, "n": int64(3), "rewardloop/imputed": false}, single(withField).Extra)
}

func TestValuesAreBroughtToTheDeclaredKind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind     rewards.FieldKind
		in, want any
	}{
		{rewards.Number, 1.5, 1.5},
		{rewards.Number, float32(0.5), 0.5},
		{rewards.Number, 7, int64(7)},
		{rewards.Number, int64(-7), int64(-7)},
		{rewards.Number, math.NaN(), nil},
		{rewards.Number, math.Inf(1), nil},
		{rewards.Number, float32(math.Inf(-1)), nil},
		{rewards.Number, true, nil},
		{rewards.Number, "1", nil},
		{rewards.Number, []float64{1}, nil},
		{rewards.Number, nil, nil},
		{rewards.Bool, true, true},
		{rewards.Bool, 1, nil},
		{rewards.String, "x", "x"},
		{rewards.String, 1, ""},
	}
	for _, tt := range tests {
		sc := declaring{byID(map[string]any{"f": tt.in}), []rewards.Field{{"f", tt.kind}}}
		assert.Equal(t, tt.want, score(t, manager(t, component("t", sc)), alone).Extra["reward/t/f"], "%s of %T %v", tt.kind, tt.in, tt.in)
	}
	for in, want := range map[any]any{2.5: 2.5, 3: int64(3), true: true, "x": "x", nil: nil} {
		m := manager(t, component("t", byID(map[string]any{"f": in})))
		assert.Equal(t, want, score(t, m, alone).Extra["reward/t/f"], "learned from %T", in)
	}
}
