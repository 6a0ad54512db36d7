package compare_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/compare"
)

func TestAFairJudgePutsMembersInTheOrderOfTheirQuality(t *testing.T) {
	t.Parallel()
	for method, want := range map[string][]float64{
		"dgr": {-1. / 3, 1, -1, 1. / 3}, "copeland": {-1. / 3, 1, -1, 1. / 3}, "winrate": {-1. / 3, 1, -1, 1. / 3},
		"tournament": {-1. / 3, 1, -1, 1. / 3}, "elo": nil,
	} {
		j := &judge{verdict: fair}
		got := scores(t, build(t, j, "pairwise", `{"method":"`+method+`"}`), group(3, 9, 1, 5))
		if want != nil {
			assert.InDeltaSlice(t, want, got, 1e-12, method)
		}
		assert.True(t, got[2] < got[0] && got[0] < got[3] && got[3] < got[1], "%s %v", method, got)
		assert.Len(t, j.questions(), 12, "both orders of six pairs")
	}
}

// inversions counts the pairs that a score puts the wrong way round.

func inversions(qualities, scores []float64) int {
	wrong := 0
	for i := range qualities {
		for j := range qualities {
			if qualities[i] > qualities[j] && scores[i] < scores[j]-1e-9 {
				wrong++
			}
		}
	}
	return wrong
}

func TestBothOrdersRemoveTheBiasOfAPlace(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var wrong, biased int
	for range 10 {
		qualities := make([]float64, 8)
		for i, q := range r.Perm(8) {
			qualities[i] = float64(q)
		}
		g := group(qualities...)
		g.UID = fmt.Sprint("u", r.Uint64())
		// Four points for the first place: half of the single orders are wrong.
		both := inversions(qualities, scores(t, build(t, &judge{verdict: noisy(4, 0)}, "pairwise", `{"method":"copeland"}`), g))
		one := inversions(qualities, scores(t, build(t, &judge{verdict: noisy(4, 0)}, "pairwise", `{"method":"copeland","debias":false}`), g))
		wrong, biased = wrong+both, biased+one
	}
	assert.Zero(t, wrong, "what both orders say is never wrong without noise")
	assert.Greater(t, biased, 10)
}

func TestNoiseIsAveragedOutOverAGroup(t *testing.T) {
	t.Parallel()
	qualities := []float64{0, 1, 2, 3, 4, 5, 6, 7}
	for _, method := range []string{"dgr", "copeland", "winrate", "elo", "tournament"} {
		wrong := 0
		for i := range 6 {
			g := group(qualities...)
			for k := range g.Members {
				g.Members[k].Sample.Response = fmt.Sprintf("draw %d answer %v", i, qualities[k])
			}
			w := inversions(qualities, scores(t, build(t, &judge{verdict: noisy(1, 1.5)}, "pairwise", `{"method":"`+method+`"}`), g))
			wrong += w
		}
		assert.Less(t, float64(wrong)/(6*28), 0.12, method)
		t.Logf("%s: %.1f %% of pairs the wrong way round", method, 100*float64(wrong)/(6*28))
	}
}

func TestTheOrderOfMembersAndOfAnswersDoesNotMatter(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for _, options := range []string{
		`{"method":"dgr"}`, `{"method":"elo"}`, `{"method":"dgr","debias":false}`, `{"method":"winrate","pairs":3}`, `{"method":"elo","debias":false,"pairs":2}`,
	} {
		// A judge who goes in circles: there is much to be drawn.
		circles := func(q question) (string, error) {
			return prefers(float64(int(quality(q.a)-quality(q.b)+7)%7 - 3)), nil
		}
		want := map[string]rewards.Score{}
		for round := range 4 {
			g := group(0, 1, 2, 3, 4, 5, 6)
			r.Shuffle(len(g.Members), func(i, j int) { g.Members[i], g.Members[j] = g.Members[j], g.Members[i] })
			got, err := build(t, &judge{verdict: circles}, "pairwise", options).ScoreGroup(t.Context(), g)
			require.NoError(t, err)
			for i, m := range g.Members {
				if round > 0 {
					assert.InDelta(t, want[m.Sample.ID].Value, got[i].Score.Value, 0, options)
					assert.Equal(t, want[m.Sample.ID].Extra, got[i].Score.Extra, options)
				}
				want[m.Sample.ID] = got[i].Score
			}
		}
	}
}

func TestAnEngineThatFailsFailsTheGroupWithItsClass(t *testing.T) {
	t.Parallel()
	for _, class := range []rewards.Class{rewards.Unavailable, rewards.Timeout, rewards.Internal, rewards.Crashed} {
		j := &judge{verdict: func(q question) (string, error) {
			if strings.Contains(q.text, "answer 2") {
				return "", fmt.Errorf("%w: http://judge: no", class)
			}
			return fair(q)
		}}
		got, err := build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), group(1, 2, 3))
		require.ErrorIs(t, err, class)
		assert.Equal(t, class, rewards.ClassOf(err))
		assert.Contains(t, err.Error(), `"u1"`)
		assert.Nil(t, got)
	}
}

func TestAPanicOfAClientFailsTheGroupAndNotTheProcess(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(question) (string, error) { panic("no") }}
	_, err := build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), group(1, 2, 3))
	require.ErrorIs(t, err, rewards.Panicked)
}

func TestAnAnswerThatCannotBeReadIsAskedForAgainPastTheCache(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(q question) (string, error) {
		if q.attempt < 2 {
			return "Both are fine.", nil
		}
		return fair(q)
	}}
	got := scores(t, build(t, j, "pairwise", `{"answer_retries":2,"debias":false,"seed":40}`), group(1, 2))
	assert.Equal(t, []float64{-1, 1}, got)
	var attempts, seeds []int
	for _, q := range j.questions() {
		attempts, seeds = append(attempts, q.attempt), append(seeds, int(*q.request.Seed))
	}
	assert.Equal(t, []int{0, 1, 2}, attempts)
	assert.Equal(t, 42, seeds[2], "the request is one, and its seed goes up")
}

// mute is a judge without a word for the pairs of two members.

func mute(pairs ...[2]string) func(question) (string, error) {
	return func(q question) (string, error) {
		for _, p := range pairs {
			if (strings.HasSuffix(q.a, p[0]) || p[0] == "") && strings.HasSuffix(q.b, p[1]) ||
				(strings.HasSuffix(q.b, p[0]) || p[0] == "") && strings.HasSuffix(q.a, p[1]) {
				return "I would rather not say.", nil
			}
		}
		return fair(q)
	}
}

func TestAnUnknownComparisonIsNoTieAndNoLoss(t *testing.T) {
	t.Parallel()
	g := group(0, 1, 2, 3, 4, 5)
	s := build(t, &judge{verdict: mute([2]string{"0", "1"})}, "pairwise", `{"method":"tournament"}`)
	got, err := s.ScoreGroup(t.Context(), g) // one of five: a share of 0.2, which may be
	require.NoError(t, err)
	for i, want := range []float64{-1, -1, -0.2, 0.2, 0.6, 1} {
		require.NoError(t, got[i].Err)
		assert.InDelta(t, want, got[i].Score.Value, 1e-12, "member %d", i)
		assert.InDelta(t, 0, got[i].Score.Extra["ties"], 0)
		unknown := 0.0
		if i < 2 {
			unknown = 1
		}
		assert.InDelta(t, unknown, got[i].Score.Extra["unknown"], 0)
	}
	told, ok := got[0].Score.Details["comparisons"].([]compare.Comparison)
	require.True(t, ok)
	js, err := json.Marshal(told)
	require.NoError(t, err)
	assert.Contains(t, string(js), "I would rather not say")
}

func TestOneOrderAloneIsNoComparisonWhereBothAreAskedFor(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"0", "1"} {
		j := &judge{verdict: func(q question) (string, error) {
			if strings.HasSuffix(q.a, first) && (strings.HasSuffix(q.b, "0") || strings.HasSuffix(q.b, "1")) {
				return "I would rather not say.", nil
			}
			return fair(q)
		}}
		got, err := build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), group(0, 1, 2, 3, 4, 5))
		require.NoError(t, err)
		for _, m := range got[:2] {
			require.NoError(t, m.Err)
			assert.InDelta(t, 1, m.Score.Extra["unknown"], 0)
			assert.InDelta(t, 0, m.Score.Extra["ties"], 0)
		}
	}
}

func TestWhereOneOrderIsAskedForNobodyIsAlwaysFirst(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(question) (string, error) { return "<result>A</result>", nil }}
	got, err := build(t, j, "pairwise", `{"debias":false}`).ScoreGroup(t.Context(), group(0, 1, 2, 3, 4, 5, 6, 7))
	require.NoError(t, err)
	for _, m := range got {
		assert.Greater(t, m.Score.Extra["wins"], 0.0)
		assert.Greater(t, m.Score.Extra["losses"], 0.0)
	}
}

func TestTooManyUnknownComparisonsFailAMember(t *testing.T) {
	t.Parallel()
	s := build(t, &judge{verdict: mute([2]string{"0", "1"})}, "pairwise", `{"method":"tournament"}`)
	got, err := s.ScoreGroup(t.Context(), group(0, 1, 2, 3, 4)) // one of four is above 0.2
	require.NoError(t, err)
	for i, m := range got {
		if i > 1 {
			require.NoError(t, m.Err)
			assert.InDelta(t, float64(i-3), m.Score.Value, 1e-12, "as if the two had never been there")
			continue
		}
		require.ErrorIs(t, m.Err, rewards.InvalidScore)
		assert.Contains(t, m.Err.Error(), "1 of 4 comparisons")
		assert.Contains(t, m.Err.Error(), "I would rather not say")
	}
}

func TestAMemberThatNoJudgeCanReadFailsAlone(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 4, 6} {
		g := group([]float64{0, 1, 2, 3, 4, 5}[:n]...)
		got, err := build(t, &judge{verdict: mute([2]string{"", "0"})}, "pairwise", `{}`).ScoreGroup(t.Context(), g)
		require.NoError(t, err)
		require.ErrorIs(t, got[0].Err, rewards.InvalidScore)
		for i := 1; i < n; i++ {
			require.NoError(t, got[i].Err)
			assert.InDelta(t, 0, got[i].Score.Extra["unknown"], 0)
		}
	}
	// Of two there is nobody left; they fail together.
	got, err := build(t, &judge{verdict: mute([2]string{"", "0"})}, "pairwise", `{}`).ScoreGroup(t.Context(), group(0, 1))
	require.NoError(t, err)
	require.ErrorIs(t, got[0].Err, rewards.InvalidScore)
	require.ErrorIs(t, got[1].Err, rewards.InvalidScore)
}

func TestAMemberThatTheEngineRefusesFailsAlone(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(q question) (string, error) {
		if strings.Contains(q.text, "answer 0") {
			return "", fmt.Errorf("%w: http://judge: status 400: too long", rewards.BadInput)
		}
		return fair(q)
	}}
	got, err := build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), group(0, 1, 2))
	require.NoError(t, err)
	require.ErrorIs(t, got[0].Err, rewards.BadInput)
	assert.Contains(t, got[0].Err.Error(), "too long")
	require.NoError(t, got[1].Err)
	assert.InDelta(t, -1, got[1].Score.Value, 0)
	assert.Len(t, j.questions(), 6, "a refusal is not asked about again")
}

func TestAResponseBeyondAllBoundsFailsAlone(t *testing.T) {
	t.Parallel()
	g := group(0, 1, 2)
	g.Members[0].Sample.Response = strings.Repeat("x", 1<<20)
	got, err := build(t, &judge{verdict: fair}, "pairwise", `{}`).ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	require.ErrorIs(t, got[0].Err, rewards.BadInput)
	require.NoError(t, got[1].Err)

	got, err = build(t, &judge{verdict: fair}, "pairwise", `{"show":"media"}`).ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	for _, m := range got {
		require.ErrorIs(t, m.Err, rewards.BadInput)
	}
}

func TestWhoIsLeftAloneHasNoScore(t *testing.T) {
	t.Parallel()
	g := group(0, 1)
	g.Members[0].Sample.Response = strings.Repeat("x", 1<<20)
	got, err := build(t, &judge{verdict: fair}, "pairwise", `{}`).ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	require.ErrorIs(t, got[0].Err, rewards.BadInput)
	require.ErrorIs(t, got[1].Err, rewards.NoScore)
}

func TestMembersThatShowTheSameAreATieThatNobodyIsAskedAbout(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: fair}
	got, err := build(t, j, "pairwise", `{"method":"copeland"}`).ScoreGroup(t.Context(), group(5, 5, 7))
	require.NoError(t, err)
	assert.Len(t, j.questions(), 4)
	assert.InDelta(t, got[0].Score.Value, got[1].Score.Value, 0)
	assert.Equal(t, map[string]any{"wins": 0.0, "losses": 1.0, "ties": 1.0, "unknown": 0.0}, got[0].Score.Extra)
}

func TestSomePairsAreAskedAboutWhereSomeAreWanted(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: fair}
	qualities := []float64{0, 1, 2, 3, 4, 5, 6, 7}
	got := scores(t, build(t, j, "pairwise", `{"method":"tournament","pairs":4,"debias":false}`), group(qualities...))
	assert.Len(t, j.questions(), 16)
	assert.InDelta(t, 1, got[7], 0)
	assert.InDelta(t, -1, got[0], 0)

	_, err := build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), group(make([]float64, 200)...))
	require.NoError(t, err, "all show the same")
	many := make([]float64, 200)
	for i := range many {
		many[i] = float64(i)
	}
	_, err = build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), group(many...))
	require.ErrorIs(t, err, rewards.BadInput)
	assert.Contains(t, err.Error(), "set pairs")
}

func TestNoMoreQuestionsAreUnderWayThanAllowed(t *testing.T) {
	t.Parallel()
	var at sync.WaitGroup
	at.Add(3)
	j := &judge{}
	first := make(chan struct{}, 3)
	j.verdict = func(q question) (string, error) {
		select {
		case first <- struct{}{}: // the first three wait for one another
			at.Done()
			at.Wait()
		default:
		}
		return fair(q)
	}
	scores(t, build(t, j, "pairwise", `{"concurrency":3}`), group(0, 1, 2, 3, 4, 5))
	assert.Equal(t, 3, j.top)
	assert.Len(t, j.questions(), 30)
}

func TestAGroupEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := build(t, waiting{cancel}, "pairwise", `{}`)
	got, err := s.ScoreGroup(ctx, group(0, 1, 2, 3))
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, rewards.Cancelled, rewards.ClassOf(err))
	assert.Nil(t, got)
	_, err = s.ScoreGroup(ctx, group(0, 1, 2, 3))
	require.ErrorIs(t, err, context.Canceled)
	_, err = build(t, waiting{cancel}, "listwise", `{}`).ScoreGroup(ctx, group(0, 1))
	require.ErrorIs(t, err, context.Canceled)
}

// waiting is an engine that never answers, and ends its caller's patience.

type waiting struct{ cancel context.CancelFunc }

func (w waiting) Chat(ctx context.Context, _ *chat.Request) (*chat.Reply, error) {
	w.cancel()
	<-ctx.Done()
	return nil, fmt.Errorf("waiting: %w", ctx.Err())
}

func TestAnAnswerBeyondAllBoundsIsNoAnswer(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(question) (string, error) {
		return strings.Repeat("é", 1<<19) + "<result>A</result>", nil
	}}
	got, err := build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), group(1, 2))
	require.NoError(t, err)
	require.ErrorIs(t, got[0].Err, rewards.InvalidScore)
	assert.Less(t, len(got[0].Err.Error()), 2000)

	j = &judge{verdict: func(question) (string, error) { return strings.Repeat("é", 1<<10) + "<result>A</result>", nil }}
	got, err = build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), group(1, 2))
	require.NoError(t, err)
	js, err := json.Marshal(got[0].Score.Details)
	require.NoError(t, err)
	assert.Less(t, len(js), 2000)
	assert.Contains(t, string(js), `"disagreed":true`)
}

func TestAnEmptyResponseIsAResponse(t *testing.T) {
	t.Parallel()
	g := group(1, 2)
	g.Members[0].Sample.Response = ""
	j := &judge{verdict: func(q question) (string, error) {
		if q.a == "(nothing)" {
			return "<result>B</result>", nil
		}
		return "<result>A</result>", nil
	}}
	assert.Equal(t, []float64{-1, 1}, scores(t, build(t, j, "pairwise", `{"show":"text"}`), g))
}

// doer is an engine below a real chat client.
