package compare_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

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
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{
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
		members = append(members, rewards.GroupMember{Sample: gm.Sample, Components: []rewards.ComponentResult{
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
