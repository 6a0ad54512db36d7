package rewards_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// mixed is a profile whose components are for different samples.
func mixed(t *testing.T, routeBy string) *rewards.Manager {
	t.Helper()
	components := []rewards.Component{
		{Key: "words", Weight: 1, Required: true, Scorer: constant(2), When: []string{"math", "code"}},
		{Key: "picture", Weight: 1, Required: true, Scorer: constant(3), When: []string{"ocr"}},
		{Key: "all", Weight: 0.5, Scorer: constant(10)},
	}
	return newManager(t, rewards.ManagerConfig{Components: components, RouteBy: routeBy})
}

func TestSamplesOfOneBatchMeetTheComponentsThatAreForThem(t *testing.T) {
	t.Parallel()
	m := mixed(t, "")
	keys := map[string]bool{}
	for source, want := range map[string]float64{"math": 7, "code": 7, "ocr": 8, "audio": 5} {
		r := score(t, m, rewards.Sample{ID: source, DataSource: source})
		require.Equal(t, rewards.Scored, r.Outcome)
		assert.InDelta(t, want, r.Score, 1e-12, source)
		assert.Equal(t, source == "ocr", r.Extra["reward/picture"] != nil, "null where it is not for the sample")
		assert.Equal(t, source == "math" || source == "code", r.Extra["reward/words"] != nil)
		for k := range r.Extra {
			keys[k] = true
		}
		assert.Len(t, r.Extra, len(keys), "one key set for all")
	}
}

func TestAFieldOfExtraInfoChoosesAmongComponents(t *testing.T) {
	t.Parallel()
	m := mixed(t, "extra_info.kind")
	for extra, want := range map[string]float64{`{"kind": "ocr"}`: 8, `{"kind": 7}`: 5, `{}`: 5, ``: 5} {
		r := score(t, m, rewards.Sample{ID: "x", DataSource: "math", ExtraInfo: json.RawMessage(extra)})
		assert.InDelta(t, want, r.Score, 1e-12, extra)
	}
	_, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component("a", constant(1))}, RouteBy: "prompt"})
	require.ErrorContains(t, err, "got \"prompt\"")
}

func TestASampleThatNoComponentIsForSaysForWhichThereAreSome(t *testing.T) {
	t.Parallel()
	only := component("a", constant(1))
	only.When = []string{"ocr", "math"}
	m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{only}})
	r := score(t, m, rewards.Sample{ID: "x", DataSource: "geneval"})
	require.Equal(t, rewards.Failed, r.Outcome)
	require.Equal(t, rewards.BadInput, r.Class())
	require.Contains(t, r.Errors[0].Message, `no component is for data_source "geneval"; there are components for ["math" "ocr"]`)
}

func TestWhatAScorerSaysIsClippedThenScaledAndReportedAsItWas(t *testing.T) {
	t.Parallel()
	for said, want := range map[float64]float64{5: 1, -5: -2, 0.5: 0.5} { // clip to -4…2, scale by 0.5; 0.5 → 0.25
		if said == 0.5 {
			want = 0.25
		}
		loud := component("loud", constant(said))
		loud.Clip, loud.Scale = &[2]float64{-4, 2}, 0.5
		r := score(t, newManager(t, rewards.ManagerConfig{Components: []rewards.Component{loud}}), alone)
		assert.InDelta(t, want, r.Score, 1e-12)
		assert.InDelta(t, want, r.Extra["reward/loud"], 1e-12)
		assert.InDelta(t, said, r.Extra["reward/loud/raw"], 1e-12)
		r = score(t, newManager(t, rewards.ManagerConfig{Components: []rewards.Component{loud}, Single: true}), alone)
		assert.InDelta(t, said, r.Extra["rewardloop/raw"], 1e-12)
	}
	bad := component("bad", constant(1))
	bad.Clip = &[2]float64{2, 1}
	_, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{bad}})
	require.ErrorContains(t, err, "the smaller first")
}

func TestASampleIsPreparedBeforeItsScorersSeeIt(t *testing.T) {
	t.Parallel()
	seen := rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: float64(len(s.ExtraInfo))}, nil
	})
	m := newManager(t, rewards.ManagerConfig{
		Components: []rewards.Component{component("a", seen)},
		Prepare: rewards.PreparerFunc(func(_ context.Context, s *rewards.Sample) (*rewards.Sample, error) {
			own := *s
			own.ExtraInfo = json.RawMessage(`{"verified_results": {}}`)
			return &own, nil
		}),
	})
	s := rewards.Sample{ID: "x"}
	assert.InDelta(t, 24, score(t, m, s).Score, 1e-12)
	assert.Empty(t, s.ExtraInfo, "the sample itself stays as it is")
}

func TestASampleWhosePreparationFailsIsNotScored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare   rewards.PreparerFunc
		class     rewards.Class
		blame     rewards.Blame
		permanent bool
	}{
		"an error": {func(context.Context, *rewards.Sample) (*rewards.Sample, error) {
			return nil, fmt.Errorf("%w: the database is away", rewards.Unavailable)
		}, rewards.Unavailable, rewards.BlameDependency, false},
		"a worker that lacks the tool": {func(context.Context, *rewards.Sample) (*rewards.Sample, error) {
			return nil, rewards.Permanent(rewards.BlameWorker, fmt.Errorf("%w: no program sqlite3", rewards.Internal))
		}, rewards.Internal, rewards.BlameWorker, true},
		"no class": {func(context.Context, *rewards.Sample) (*rewards.Sample, error) { return nil, errors.New("why not") }, rewards.Internal, rewards.BlameReward, false},
		"a panic":  {func(context.Context, *rewards.Sample) (*rewards.Sample, error) { panic("at the disco") }, rewards.Panicked, rewards.BlameReward, false},
	} {
		called := false
		m := newManager(t, rewards.ManagerConfig{Prepare: c.prepare, Components: []rewards.Component{component("a", rewards.ScorerFunc(
			func(context.Context, *rewards.Sample) (rewards.Score, error) {
				called = true
				return rewards.Score{}, nil
			}))}})
		r := score(t, m, alone)
		require.Equal(t, rewards.Failed, r.Outcome, name)
		require.Equal(t, c.class, r.Class(), name)
		require.Equal(t, c.blame, r.Errors[0].Blame, name)
		require.Equal(t, c.permanent, r.Errors[0].Permanent, name)
		require.Contains(t, r.Extra, "reward/a", "the columns are there all the same")
		require.False(t, called, name)
	}
}
