package compare_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
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
		assert.Contains(t, m.Err.Error(), "1 of its 4 comparisons")
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

func TestPicturesComeBeforeTheTextAndInTheOrderOfTheCandidates(t *testing.T) {
	t.Parallel()
	brighter := func(q question) (string, error) {
		if len(q.pictures) != 2 || q.a != "Picture 1." || q.b != "Picture 2." {
			return "", fmt.Errorf("%w: %d pictures, %q, %q", rewards.Internal, len(q.pictures), q.a, q.b)
		}
		return prefers(grey(q.pictures[0]) - grey(q.pictures[1])), nil
	}
	g := shown(shade{grey: 40, frames: 1}, shade{grey: 200, frames: 1}, shade{grey: 120, frames: 1})
	for _, format := range []string{"png", "jpeg", "as_is"} {
		j := &judge{verdict: brighter}
		got := scores(t, build(t, j, "pairwise", `{"image_format":"`+format+`"}`), g)
		assert.Equal(t, []float64{-1, 1, 0}, got)
		for _, q := range j.questions() {
			mime := "image/png"
			if format == "jpeg" {
				mime = "image/jpeg"
			}
			assert.Equal(t, mime, q.request.Messages[0].Parts[0].MIME)
		}
	}
}

func TestAPictureCanBeSentInTheBytesItCameIn(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, image.NewGray(image.Rect(0, 0, 3, 3))))
	g := shown(shade{grey: 1, frames: 1}, shade{grey: 2, frames: 1})
	g.Members[0].Sample.Media[0].Encoding, g.Members[0].Sample.Media[0].Data = rewards.PNG, file.Bytes()
	j := &judge{verdict: func(question) (string, error) { return "<result>tie</result>", nil }}
	scores(t, build(t, j, "pairwise", `{"image_format":"as_is"}`), g)
	for _, q := range j.questions() {
		sides := []int{q.pictures[0].Bounds().Dx(), q.pictures[1].Bounds().Dx()}
		assert.ElementsMatch(t, []int{3, 8}, sides, "the other came raw, and goes as PNG")
	}
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

func TestAVideoIsShownInFrames(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(q question) (string, error) {
		if len(q.pictures) != 8 || !strings.HasPrefix(q.b, "Pictures 5 to 8, frames") {
			return "", fmt.Errorf("%w: %d pictures, %q", rewards.Internal, len(q.pictures), q.b)
		}
		for i := range 4 { // of 10 frames: 0, 2, 5, 7
			assert.InDelta(t, []float64{0, 2, 5, 7}[i], grey(q.pictures[i])-grey(q.pictures[0]), 1)
		}
		return prefers(grey(q.pictures[0]) - grey(q.pictures[4])), nil
	}}
	got := scores(t, build(t, j, "pairwise", `{"resize":16}`), shown(shade{grey: 60, frames: 10}, shade{grey: 20, frames: 10}))
	assert.Equal(t, []float64{1, -1}, got)
	assert.Equal(t, 16, j.questions()[0].pictures[0].Bounds().Dx())
}

func TestAPictureThatCannotBeShownFailsAlone(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(q question) (string, error) {
		return prefers(grey(q.pictures[0]) - grey(q.pictures[1])), nil
	}}
	g := shown(
		shade{grey: 40, frames: 1}, shade{err: fmt.Errorf("%w: no JPEG", rewards.BadInput)}, shade{grey: 120, frames: 1},
		shade{panics: true}, shade{frames: 0},
	)
	got, err := build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	assert.InDelta(t, -1, got[0].Score.Value, 0)
	require.ErrorIs(t, got[1].Err, rewards.BadInput)
	assert.InDelta(t, 1, got[2].Score.Value, 0)
	require.ErrorIs(t, got[3].Err, rewards.Panicked)
	require.ErrorIs(t, got[4].Err, rewards.BadInput)
	assert.InDelta(t, 1, got[0].Score.Extra["losses"], 0)
}

func TestTheReferenceTakesPartInValidationOnly(t *testing.T) {
	t.Parallel()
	for path, set := range map[string]func(*rewards.Sample){
		"ground_truth":           func(s *rewards.Sample) { s.GroundTruth = json.RawMessage(`"answer 4"`) },
		"ground_truth.best":      func(s *rewards.Sample) { s.GroundTruth = json.RawMessage(`{"best":"answer 4"}`) },
		"extra_info.y.0.content": func(s *rewards.Sample) { s.ExtraInfo = json.RawMessage(`{"y":[{"content":"answer 4"}]}`) },
	} {
		g := group(2, 4, 6)
		for _, m := range g.Members {
			set(m.Sample)
		}
		j := &judge{verdict: fair}
		s := build(t, j, "pairwise", `{"method":"tournament","reference":"`+path+`"}`)
		assert.Equal(t, []float64{-1, 0, 1}, scores(t, s, g), "training")
		assert.Len(t, j.questions(), 6)

		g.Split = rewards.Val
		got, err := s.ScoreGroup(t.Context(), g)
		require.NoError(t, err)
		for i, want := range []struct{ value, win, and float64 }{{-1, 0, 0}, {0, 0, 1}, {1, 1, 1}} {
			assert.InDelta(t, want.value, got[i].Score.Value, 1e-12)
			assert.InDelta(t, want.win, got[i].Score.Extra["win"], 0)
			assert.InDelta(t, want.and, got[i].Score.Extra["win_and"], 0)
			assert.Equal(t, 4, got[i].Score.Details["participants"])
		}
		assert.Len(t, j.questions(), 6+10, "the one that equals the reference is not asked about")
	}
}

func TestAValidationGroupWithoutReferenceFailsLoudly(t *testing.T) {
	t.Parallel()
	g := group(1, 2)
	g.Split = rewards.Val
	_, err := build(t, &judge{verdict: fair}, "pairwise", `{"reference":"extra_info.best"}`).ScoreGroup(t.Context(), g)
	require.ErrorIs(t, err, rewards.BadInput)
	assert.Contains(t, err.Error(), "extra_info.best")

	g = shown(shade{frames: 1}, shade{frames: 1, grey: 9})
	g.Split, g.Members[0].Sample.GroundTruth = rewards.Val, json.RawMessage(`"a cat"`)
	_, err = build(t, &judge{verdict: fair}, "pairwise", `{"reference":"ground_truth"}`).ScoreGroup(t.Context(), g)
	require.ErrorIs(t, err, rewards.BadInput)
	assert.Contains(t, err.Error(), "picture")
}

func TestAGroupWithoutPromptFailsWhereTheTemplateWantsIt(t *testing.T) {
	t.Parallel()
	g := group(1, 2)
	g.Members[0].Sample.Prompt, g.Members[1].Sample.Prompt = "", ""
	_, err := build(t, &judge{verdict: fair}, "pairwise", `{}`).ScoreGroup(t.Context(), g)
	require.ErrorIs(t, err, rewards.BadInput)

	g.Members[1].Sample.ExtraInfo = json.RawMessage(`{"prompt":"from {response_a} extra"}`)
	j := &judge{verdict: fair}
	scores(t, build(t, j, "pairwise", `{}`), g)
	assert.Contains(t, j.questions()[0].text, "from {response_a} extra", "braces in a prompt are no placeholders")
}

func TestOwnTemplatesAndParametersAreSent(t *testing.T) {
	t.Parallel()
	g := group(1, 2)
	g.Members[0].Sample.GroundTruth, g.Members[0].Sample.DataSource = json.RawMessage(`{"n":3}`), "set"
	j := &judge{verdict: func(q question) (string, error) { return "<result>tie</result>", nil }}
	scores(t, build(t, j, "pairwise", `{"template":"{data_source}|{ground_truth}|{response_a}|{response_b}", "model":"m", "system":"Be brief.",
		"max_tokens":5, "temperature":null, "top_p":0.5, "extra_body":{"x":1}, "debias":false}`), g)
	q := j.questions()[0]
	assert.Contains(t, []string{`set|{"n":3}|answer 1|answer 2`, `set|{"n":3}|answer 2|answer 1`}, q.text)
	assert.Equal(t, "Be brief.", q.request.Messages[0].Parts[0].Text)
	assert.Equal(t, "m", q.request.Model)
	assert.Nil(t, q.request.Temperature)
	assert.Equal(t, 5, q.request.MaxTokens)
	assert.InDelta(t, 0.5, *q.request.TopP, 0)
	assert.Equal(t, map[string]any{"x": 1.0}, q.request.Extra)
}

// doer is an engine below a real chat client.
type doer func(text string) string

func (d doer) Do(_ context.Context, c *outbound.Call) (*outbound.Answer, error) {
	var body struct {
		Messages []struct{ Content string }
	}
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return nil, err
	}
	js, err := json.Marshal(d(body.Messages[0].Content))
	if err != nil {
		return nil, err
	}
	a := &outbound.Answer{Status: 200, Body: []byte(`{"choices":[{"message":{"content":` + string(js) + `}}]}`)}
	return a, c.Check(a)
}

func TestAnswersAreRememberedAndUnreadableOnesAreNot(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	c, err := chat.New(chat.Config{Model: "m"}, doer(func(text string) string {
		mu.Lock()
		defer mu.Unlock()
		if asked[text]++; asked[text] == 1 && strings.Contains(text, "answer 3") {
			return "hm"
		}
		m := sideA.FindStringSubmatch(text)
		return prefers(quality(m[1]) - quality(m[2]))
	}))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	s := build(t, c, "pairwise", `{}`)
	for range 2 {
		assert.Equal(t, []float64{-1, 0, 1}, scores(t, s, group(1, 2, 3)))
	}
	assert.EqualValues(t, 6+4, c.Stats().Requests)
	assert.EqualValues(t, 6, c.Stats().Hits, "the second time nobody is asked")
}

func TestManagersRunThemAndHaveTheirColumns(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: fair}
	m, err := rewards.NewManager(rewards.ManagerConfig{Terms: []rewards.Term{
		{Key: "number", Weight: 1, Scorer: rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: quality(s.Response)}, nil
		})},
		{Key: "pairs", Weight: 1, Group: build(t, j, "pairwise", `{"reference":"ground_truth"}`)},
		{Key: "rank", Weight: 1, Group: build(t, j, "rank", `{"of":"number"}`)},
	}})
	require.NoError(t, err)
	var names []string
	for _, f := range m.Columns() {
		names = append(names, f.Name)
	}
	assert.Subset(t, names, []string{"reward/pairs", "reward/pairs/wins", "reward/pairs/unknown", "reward/pairs/win", "reward/pairs/win_and"})

	g := group(7, 5, 9)
	var members []rewards.GroupMember
	for i, gm := range g.Members {
		gm.Sample.Index, gm.Sample.GroupSize = new(int64(i)), 3
		members = append(members, rewards.GroupMember{Sample: gm.Sample, Terms: []rewards.TermResult{
			{Key: "number", Status: rewards.StatusOK, Value: quality(gm.Sample.Response)},
			{Key: "pairs", Status: rewards.StatusWaiting},
			{Key: "rank", Status: rewards.StatusWaiting},
		}})
	}
	run := m.RunGroup(t.Context(), members, 3, nil)
	<-run.Done()
	for i, want := range []float64{7 + 0 + 0.5, 5 - 1 + 0, 9 + 1 + 1} {
		assert.Equal(t, rewards.Scored, run.Results[i].Outcome)
		assert.InDelta(t, want, run.Results[i].Score, 1e-12)
		assert.Nil(t, run.Results[i].Extra["reward/pairs/win"], "null in training")
		assert.Contains(t, run.Results[i].Extra, "reward/pairs/win")
		_, err := json.Marshal(run.Results[i].Details)
		require.NoError(t, err)
	}
}

func TestOptionsThatCannotBeMeantAreAllNamed(t *testing.T) {
	t.Parallel()
	reg := registry(clients(&judge{}))
	for _, tt := range []struct {
		scorer, options string
		says            []string
	}{
		{"pairwise", `{"wins":1}`, []string{"wins"}},
		{"pairwise", `{"method":"vote","pairs":1,"max_unknown":1.5,"reference":"gold","frames":0,"show":"all"}`, []string{"method", "pairs", "max_unknown", "reference", "frames", "show"}},
		{"pairwise", `{"concurrency":0,"answer_retries":-1,"temperature":-1,"top_p":0,"max_tokens":-1}`, []string{"concurrency", "answer_retries", "temperature", "top_p", "max_tokens"}},
		{"pairwise", `{"template":"{prompt} {response_a} {answer}"}`, []string{"{answer} is no placeholder", "no {response_b}"}},
		{"pairwise", `{"image_format":"as_is","resize":5,"jpeg_quality":0}`, []string{"resize", "jpeg_quality"}},
		{"pairwise", `{"image_format":"gif","resize":-1,"reference":"extra_info"}`, []string{"image_format", "resize", "reference"}},
		{"listwise", `{"template":"{prompt}"}`, []string{"no {responses}"}},
		{"listwise", `{"method":"dgr"}`, []string{"method"}},
		{"rank", `{}`, []string{"of"}},
		{"rank", `{"of":"x","scale":"n"}`, []string{"scale"}},
		{"rank", `{"of":"x","ddof":1}`, []string{"ddof"}},
		{"zscore", `{"ddof":2,"min_spread":-1}`, []string{"of", "ddof", "min_spread"}},
		{"minmax", `{"of":"x","min_spread":-1}`, []string{"min_spread"}},
	} {
		_, err := reg.BuildGroup(tt.scorer, json.RawMessage(tt.options))
		require.Error(t, err, tt.options)
		for _, s := range tt.says {
			assert.Contains(t, err.Error(), s, tt.options)
		}
	}
	_, err := reg.Build("pairwise", nil)
	require.Error(t, err)
}

func TestWhatIsMissingIsSaidWhenItIsMissed(t *testing.T) {
	t.Parallel()
	reg := registry(nil)
	_, err := reg.BuildGroup("pairwise", nil)
	require.ErrorContains(t, err, "no engine")
	_, err = reg.BuildGroup("rank", json.RawMessage(`{"of":"x"}`))
	require.NoError(t, err)

	none := errors.New("there is no engine taste")
	reg = registry(compare.ClientsFunc(func(engine, model string) (compare.Chatter, error) {
		assert.Equal(t, "taste/m", engine+"/"+model)
		return nil, none
	}))
	for _, name := range []string{"pairwise", "listwise"} {
		_, err = reg.BuildGroup(name, json.RawMessage(`{"engine":"taste","model":"m"}`))
		require.ErrorIs(t, err, none)
	}
}
