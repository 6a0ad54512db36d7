package python_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// grouped makes the scorer of a class and what calls its post_process_scores.
func grouped(t *testing.T, cfg python.Config, name string) (rewards.Scorer, rewards.GroupScorer) {
	t.Helper()
	s := function(t, cfg, name)
	g, err := s.(interface {
		PostProcess(of string) (rewards.GroupScorer, error)
	}).PostProcess("mine")
	require.NoError(t, err)
	return s, g
}

// members is a group whose members have these values of the component mine; nil: none.
func members(values ...any) *rewards.Group {
	g := &rewards.Group{UID: "g", Size: len(values)}
	for i, v := range values {
		m := rewards.Member{Sample: &rewards.Sample{ID: fmt.Sprint(i)}, Values: map[string]float64{"other": 7}}
		if v, ok := v.(float64); ok {
			m.Values["mine"] = v
		}
		g.Members = append(g.Members, m)
	}
	return g
}

func scoreGroup(t *testing.T, s rewards.GroupScorer, g *rewards.Group, limit time.Duration) ([]rewards.MemberScore, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return s.ScoreGroup(ctx, g)
}

func valuesOf(t *testing.T, scores []rewards.MemberScore) (out []float64) {
	t.Helper()
	for i, s := range scores {
		require.NoError(t, s.Err, "member %d", i)
		out = append(out, s.Score.Value)
	}
	return out
}

// TestAClassWorksOnItsFinishedGroups is the way of a group through a manager: one
// member says -1, one NaN, and both get the mean of the others.
func TestAClassWorksOnItsFinishedGroups(t *testing.T) {
	t.Parallel()
	s, g := grouped(t, python.Config{}, "Grouped")
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{
		{Key: "mine", Scorer: s, Timeout: 20 * time.Second},
		{Key: "mine_group", Weight: 1, Required: true, Group: g, Timeout: 20 * time.Second},
	}})
	require.NoError(t, err)
	require.NoError(t, m.Warm(t.Context()))
	var group []rewards.GroupMember
	for i, word := range []string{"1", "-1", "nan", "0.25", "0.25"} {
		sample := asks(word)
		sample.ID, sample.UID, sample.GroupSize = strconv.Itoa(i), "g", 5
		run := m.Run(t.Context(), sample)
		require.NotNil(t, run.Result.Partial, "member %d waits for its group", i)
		group = append(group, rewards.GroupMember{Sample: sample, Components: run.Result.Partial})
	}
	run := m.RunGroup(t.Context(), group, 5, nil)
	for i, want := range []float64{1, 0.5, 0.5, 0.25, 0.25} {
		r := run.Results[i]
		require.Equal(t, rewards.Scored, r.Outcome, "%+v", r.Errors)
		assert.InDelta(t, want, r.Extra["reward/mine_group"], 1e-12, "member %d", i)
	}
	assert.Nil(t, run.Results[2].Extra["reward/mine"], "its own component failed, and says so")
	require.Len(t, run.Results[2].Errors, 1)
	assert.Equal(t, rewards.InvalidScore, run.Results[2].Errors[0].Class)
	printed := run.Results[0].Details["mine_group"].(map[string]any)["printed"]
	assert.Equal(t, "filling 5 after 5\n", printed, "the object that scored them")
	<-run.Done()
}

func TestAMemberThatGetsNoNumberHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	_, g := grouped(t, python.Config{}, "Grouped")
	got, err := scoreGroup(t, g, members(105.0, 1.0, 1.0, 1.0, nil, 1.0, 1.0), time.Minute)
	require.NoError(t, err)
	require.Len(t, got, 7)
	for i, want := range []rewards.Class{rewards.NoScore, rewards.NoScore, rewards.InvalidScore, rewards.InvalidScore, rewards.InvalidScore} {
		assert.Equal(t, want, rewards.ClassOf(got[i].Err), "member %d: %v", i, got[i].Err)
	}
	require.ErrorContains(t, got[2].Err, "the score is inf")
	require.ErrorContains(t, got[3].Err, "rewards.py:Grouped: post_process_scores: the score is a str")
	assert.Equal(t, []float64{1, 0.25}, valuesOf(t, got[5:]))
	got, err = scoreGroup(t, g, members(106.0, 1.0), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []float64{0.5, 1.5}, valuesOf(t, got), "an array is a list")
}

func TestAGroupThatFailsIsAFailureByName(t *testing.T) {
	t.Parallel()
	s, g := grouped(t, python.Config{}, "Grouped")
	warm(t, s)
	tests := []struct {
		first any
		class rewards.Class
		says  string
	}{
		{100.0, rewards.Internal, "rewards.py:Grouped: ValueError: no such group"},
		{101.0, rewards.Timeout, "rewards.py:Grouped did not answer within"},
		{102.0, rewards.Crashed, "exit status 9"},
		{103.0, rewards.InvalidScore, "post_process_scores returned 1 scores for 2 members"},
		{104.0, rewards.InvalidScore, "post_process_scores returned a float; want a list"},
		{107.0, rewards.Panicked, "sys.exit(3)"},
	}
	for _, tt := range tests {
		limit := time.Minute
		if tt.class == rewards.Timeout {
			limit = 300 * time.Millisecond
		}
		_, err := scoreGroup(t, g, members(tt.first, 0.0), limit)
		require.Error(t, err, "%v", tt.first)
		assert.Equal(t, tt.class, rewards.ClassOf(err), "%v: %v", tt.first, err)
		require.ErrorContains(t, err, tt.says)
		got, err := scoreGroup(t, g, members(1.0, nil, -1.0), time.Minute)
		require.NoError(t, err, "after %v", tt.first)
		assert.Equal(t, []float64{1, 1, 1}, valuesOf(t, got))
	}
	_, err := scoreGroup(t, g, members(nil, nil), time.Minute)
	assert.Equal(t, rewards.NoScore, rewards.ClassOf(err), "%v", err)
	require.ErrorContains(t, err, `none of the 2 members of group "g" has a value of "mine"`)
	assert.Equal(t, uint64(1), stats(s).Timeouts)
	assert.Equal(t, uint64(2), stats(s).Crashes, "once more, alone in a fresh process")
}

func TestAnAsyncClassWorksOnGroupsBesideItsCalls(t *testing.T) {
	t.Parallel()
	s, g := grouped(t, python.Config{CancelGrace: time.Second}, "AsyncGrouped")
	warm(t, s)
	pid := stats(s).PIDs[0]
	_, err := scoreGroup(t, g, members(101.0, 0.0), 300*time.Millisecond)
	assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	got, err := scoreGroup(t, g, members(1.0, 3.0), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []float64{0, 2}, valuesOf(t, got))
	one, err := score(t, s, asks("2"))
	require.NoError(t, err)
	assert.InDelta(t, 2.0, one.Value, 0)
	assert.Equal(t, []int{pid}, stats(s).PIDs, "it was cancelled, not killed")
}

func TestAGroupComponentWithoutWhatItNeedsIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Grader", "length"} {
		s, g := grouped(t, python.Config{}, name)
		require.ErrorContains(t, s.(rewards.Warmer).Warm(t.Context()), name+" is not a class with a method post_process_scores")
		_, err := scoreGroup(t, g, members(1.0, 2.0), time.Minute)
		assert.Equal(t, rewards.Unavailable, rewards.ClassOf(err), "%v", err)
	}
	_, g := grouped(t, python.Config{}, "Grouped")
	_, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "mine_group", Weight: 1, Group: g}}})
	require.ErrorContains(t, err, `the component "mine"`)
	s := function(t, python.Config{}, "length")
	warm(t, s)
	_, err = s.(*python.Scorer).PostProcess("mine")
	require.ErrorContains(t, err, "before Warm")
}
