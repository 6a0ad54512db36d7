package text_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/text"
)

// recipe is the penalty of DAPO's published run: 20,480 tokens, the last 4,096 of them.
func recipe() text.Overlong {
	return text.Overlong{MaxRespLen: 20480, BufferLen: 4096, PenaltyFactor: 1, Columns: true}
}

func constant(value float64, extra map[string]any) rewards.Scorer {
	return rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: value, Extra: extra}, nil
	})
}

// 16,384 tokens are free; at 18,000 the penalty is (18000-16384)/4096 = 0.39453125; beyond
// the limit it goes on growing, as in verl.
func TestThePenaltyOfDAPOGrowsOverTheLastTokens(t *testing.T) {
	t.Parallel()
	for tokens, want := range map[string]float64{"0": 1, "16384": 1, "18000": 1 - 0.39453125, "20480": 0, "24576": -1} {
		got, err := text.WithOverlong(constant(1, nil), recipe()).Score(t.Context(), sample("x", "", `{"response_length": `+tokens+`}`))
		require.NoError(t, err)
		assert.InDelta(t, want, got.Value, 0, tokens)
		assert.Equal(t, map[string]any{"acc": 1.0, "overlong_reward": want - 1, "overlong": want < 1}, got.Extra, tokens)
	}
}

func TestTheColumnsOfTheScorerStay(t *testing.T) {
	t.Parallel()
	own := map[string]any{"acc": true, "pred": "7"}
	o := recipe()
	o.Columns = false
	got, err := text.WithOverlong(constant(-1, own), o).Score(t.Context(), sample("x", "", `{"response_length": 20480}`))
	require.NoError(t, err)
	assert.InDelta(t, -2, got.Value, 0)
	assert.Equal(t, own, got.Extra)

	declared, ok := text.WithOverlong(newScorer(t, "math_dapo", "{}"), recipe()).(rewards.ExtraFielder)
	require.True(t, ok)
	var names []string
	for _, f := range declared.ExtraFields() {
		names = append(names, f.Name)
	}
	assert.Equal(t, []string{"acc", "pred", "overlong_reward", "overlong"}, names)
	_, ok = text.WithOverlong(constant(1, nil), recipe()).(rewards.ExtraFielder)
	assert.False(t, ok, "what a scorer does not declare its first success does")
}

// A response too short for an n-gram has no repetition_rate, and no acc in its place.
func TestOnlyDeclaredColumnsAreReturned(t *testing.T) {
	t.Parallel()
	made := text.WithOverlong(newScorer(t, "ngram_repetition", "{}"), recipe())
	declared, ok := made.(rewards.ExtraFielder)
	require.True(t, ok)
	got, err := made.Score(t.Context(), sample("x", "", `{"response_length": 1}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"overlong_reward": 0.0, "overlong": false}, got.Extra)
	for name := range got.Extra {
		assert.True(t, slices.ContainsFunc(declared.ExtraFields(), func(f rewards.Field) bool { return f.Name == name }), name)
	}
}

func TestWithoutTheNumberOfTokensThereIsNoScore(t *testing.T) {
	t.Parallel()
	_, err := text.WithOverlong(constant(1, nil), recipe()).Score(t.Context(), sample("x", "", `{}`))
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "extra_info.response_length")
	broken := rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{}, rewards.Unavailable
	})
	_, err = text.WithOverlong(broken, recipe()).Score(t.Context(), sample("x", "", `{"response_length": 1}`))
	require.ErrorIs(t, err, rewards.Unavailable)
}

// lived counts what is done to it.
type lived struct {
	rewards.Scorer

	warmed, closed int
}

func (l *lived) Warm(context.Context) error { l.warmed++; return nil }
func (l *lived) Close() error               { l.closed++; return errors.New("closed") }

func TestTheScorerWithinIsWarmedAndClosed(t *testing.T) {
	t.Parallel()
	inner := &lived{Scorer: constant(1, nil)}
	made := text.WithOverlong(inner, recipe())
	warmer, ok := made.(rewards.Warmer)
	require.True(t, ok)
	require.NoError(t, warmer.Warm(t.Context()))
	closer, ok := made.(rewards.Closer)
	require.True(t, ok)
	require.EqualError(t, closer.Close(), "closed")
	assert.Equal(t, [2]int{1, 1}, [2]int{inner.warmed, inner.closed})
}
