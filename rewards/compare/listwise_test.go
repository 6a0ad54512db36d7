package compare_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestAListIsPutInOrderInBothDirections(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: orders}
	got, err := build(t, j, "listwise", `{}`).ScoreGroup(t.Context(), group(4, 9, 1, 7, 2))
	require.NoError(t, err)
	for i, want := range []float64{0, 1, -1, 0.5, -0.5} {
		require.NoError(t, got[i].Err)
		assert.InDelta(t, want, got[i].Score.Value, 1e-12)
		assert.InDelta(t, 2-2*want, got[i].Score.Extra["position"], 1e-12)
	}
	require.Len(t, j.questions(), 2)
	one, other := j.questions()[0].list, slices.Clone(j.questions()[1].list)
	slices.Reverse(other)
	assert.Equal(t, one, other)
	assert.Contains(t, j.questions()[0].text, "5 candidates")
}

func TestAListThatIsOnlyEverReadFromItsTopSaysNothing(t *testing.T) {
	t.Parallel()
	lazy := func(q question) (string, error) { return "<ranking>1,2,3,4</ranking>", nil }
	assert.InDeltaSlice(t, []float64{0, 0, 0, 0}, scores(t, build(t, &judge{verdict: lazy}, "listwise", `{}`), group(1, 2, 3, 4)), 1e-12)
	once := scores(t, build(t, &judge{verdict: lazy}, "listwise", `{"debias":false}`), group(1, 2, 3, 4))
	slices.Sort(once)
	assert.InDeltaSlice(t, []float64{-1, -1. / 3, 1. / 3, 1}, once, 1e-12)
}

func TestTheSequenceOfAListIsDrawnByTheMembersAndNotByTheirPlaces(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	want := map[string]float64{}
	for round := range 4 {
		g := group(0, 1, 2, 3, 4, 5)
		r.Shuffle(6, func(i, j int) { g.Members[i], g.Members[j] = g.Members[j], g.Members[i] })
		lazy := &judge{verdict: func(question) (string, error) { return "<ranking>1,2,3,4,5,6</ranking>", nil }}
		for i, v := range scores(t, build(t, lazy, "listwise", `{"debias":false}`), g) {
			id := g.Members[i].Sample.ID
			if round > 0 {
				assert.InDelta(t, want[id], v, 0)
			}
			want[id] = v
		}
	}
}

func TestAListWithoutAReadableOrderFailsTheGroup(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(question) (string, error) { return "<ranking>1,2,2</ranking>", nil }}
	_, err := build(t, j, "listwise", `{"answer_retries":3,"debias":false}`).ScoreGroup(t.Context(), group(1, 2, 3))
	require.ErrorIs(t, err, rewards.InvalidScore)
	assert.Contains(t, err.Error(), "1,2,2")
	require.Len(t, j.questions(), 4)
	for i, q := range j.questions() {
		assert.Equal(t, i, q.attempt, "past the cache")
	}

	j = &judge{verdict: func(question) (string, error) { return "", fmt.Errorf("%w: away", rewards.Unavailable) }}
	_, err = build(t, j, "listwise", `{}`).ScoreGroup(t.Context(), group(1, 2, 3))
	require.ErrorIs(t, err, rewards.Unavailable)
}

func TestAMemberThatCannotBeShownIsNotInTheList(t *testing.T) {
	t.Parallel()
	g := group(3, 1, 2)
	g.Members[1].Sample.Response = strings.Repeat("x", 1<<20)
	got, err := build(t, &judge{verdict: orders}, "listwise", `{}`).ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	assert.InDelta(t, 1, got[0].Score.Value, 0)
	require.ErrorIs(t, got[1].Err, rewards.BadInput)
	assert.InDelta(t, -1, got[2].Score.Value, 0)

	g.Members[0].Sample.Response = g.Members[1].Sample.Response
	got, err = build(t, &judge{verdict: orders}, "listwise", `{}`).ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	require.ErrorIs(t, got[2].Err, rewards.NoScore)

	_, err = build(t, &judge{verdict: orders}, "listwise", `{}`).ScoreGroup(t.Context(), group(make([]float64, 65)...))
	require.ErrorIs(t, err, rewards.BadInput)
}

func TestAListOfPicturesNumbersThem(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(q question) (string, error) {
		first := 1 // of the pictures that are not named yet
		for _, said := range q.list {
			many := fmt.Sprintf("Pictures %d to %d, frames of a video in their order.", first, first+3)
			switch said {
			case fmt.Sprintf("Picture %d.", first):
				first++
			case many:
				first += 4
			default:
				return "", fmt.Errorf("%w: %q of %q", rewards.Internal, said, q.list)
			}
		}
		if len(q.pictures) != 6 || first != 7 {
			return "", fmt.Errorf("%w: %d pictures, %q", rewards.Internal, len(q.pictures), q.list)
		}
		return "<ranking>1,2,3</ranking>", nil
	}}
	g := shown(shade{grey: 1, frames: 1}, shade{grey: 50, frames: 9}, shade{grey: 100, frames: 1})
	assert.InDeltaSlice(t, []float64{0, 0, 0}, scores(t, build(t, j, "listwise", `{}`), g), 1e-12)
}

func TestTheReferenceStandsInTheListOfValidation(t *testing.T) {
	t.Parallel()
	g := group(2, 4, 6)
	g.Split = rewards.Val
	g.Members[1].Sample.GroundTruth = json.RawMessage(`"answer 5"`)
	got, err := build(t, &judge{verdict: orders}, "listwise", `{"reference":"ground_truth"}`).ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	require.Len(t, got, 3)
	for i, want := range []struct{ value, win float64 }{{-1, 0}, {-1. / 3, 0}, {1, 1}} {
		assert.InDelta(t, want.value, got[i].Score.Value, 1e-12)
		assert.InDelta(t, want.win, got[i].Score.Extra["win"], 0)
		assert.InDelta(t, want.win, got[i].Score.Extra["win_and"], 0)
	}
}
