package rewards_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// best is a group scorer that gives 1 to the members with the largest value of the
// component "own", 0 to the others.
func best(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
	out := make([]rewards.MemberScore, len(g.Members))
	most := 0.0
	for _, m := range g.Members {
		most = max(most, m.Values["own"])
	}
	for i, m := range g.Members {
		if m.Values["own"] == most {
			out[i].Score.Value = 1
		}
	}
	return out, nil
}

func grouped(t *testing.T, group rewards.Component) *rewards.Manager {
	t.Helper()
	own := component("own", rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: float64(len(s.Response))}, nil
	}))
	if group.Key == "" {
		group.Key, group.Weight = "best", 10
	}
	return newManager(t, rewards.ManagerConfig{Components: []rewards.Component{own, group}})
}

// whole runs members through both halves, in the order given.
func whole(t *testing.T, m *rewards.Manager, size int, responses ...string) []rewards.Result {
	t.Helper()
	members := make([]rewards.GroupMember, len(responses))
	for i, text := range responses {
		s := &rewards.Sample{ID: fmt.Sprint("m", i), UID: "u", GroupSize: size, Response: text}
		run := m.Run(t.Context(), s)
		require.NotNil(t, run.Result.Partial, "it waits for its group")
		require.Empty(t, run.Result.Outcome)
		members[i] = rewards.GroupMember{Sample: s, Components: run.Result.Partial}
	}
	run := m.RunGroup(t.Context(), members, size, nil)
	<-run.Done()
	return run.Results
}

func TestAGroupIsScoredAfterItsMembers(t *testing.T) {
	t.Parallel()
	m := grouped(t, rewards.Component{Group: rewards.GroupScorerFunc(best)})
	require.True(t, m.Grouped())
	got := whole(t, m, 3, "a", "ccc", "bb")
	for i, want := range []float64{1, 13, 2} {
		require.Equal(t, rewards.Scored, got[i].Outcome)
		assert.InDelta(t, want, got[i].Score, 1e-12)
		assert.InDelta(t, want-10*got[i].Extra["reward/best"].(float64), got[i].Extra["reward/own"], 1e-12) // a number
	}
}

func TestMembersComeToTheScorerByIndexThenByID(t *testing.T) {
	t.Parallel()
	var seen []string
	m := grouped(t, rewards.Component{Group: rewards.GroupScorerFunc(func(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
		for _, member := range g.Members {
			seen = append(seen, member.Sample.ID)
		}
		assert.Equal(t, 5, g.Size)
		assert.Equal(t, 1, g.Missing)
		return make([]rewards.MemberScore, len(g.Members)), nil
	})})
	two, one := int64(2), int64(1)
	var members []rewards.GroupMember
	for _, s := range []*rewards.Sample{{ID: "z", Index: &two}, {ID: "b"}, {ID: "y", Index: &one}, {ID: "a"}} {
		s.UID, s.GroupSize = "u", 5
		members = append(members, rewards.GroupMember{Sample: s, Components: m.Run(t.Context(), s).Result.Partial})
	}
	<-m.RunGroup(t.Context(), members, 5, nil).Done()
	assert.Equal(t, []string{"y", "z", "a", "b"}, seen)
}

func TestASampleIsAGroupOfItsOwnWhereAComponentAllowsIt(t *testing.T) {
	t.Parallel()
	reference := rewards.GroupScorerFunc(func(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
		return make([]rewards.MemberScore, len(g.Members)), nil
	})
	m := grouped(t, rewards.Component{Group: reference, MinMembers: 1})
	r := score(t, m, rewards.Sample{ID: "x", Response: "four"})
	require.Equal(t, rewards.Scored, r.Outcome)
	assert.InDelta(t, 4, r.Score, 1e-12)
	r = score(t, grouped(t, rewards.Component{Group: reference}), rewards.Sample{ID: "x", Response: "four"})
	require.Equal(t, rewards.Failed, r.Outcome)
	require.Equal(t, rewards.BadInput, r.Class())
}

func TestAMembersFailureInAGroupIsItsOwn(t *testing.T) {
	t.Parallel()
	m := grouped(t, rewards.Component{Key: "best", Weight: 1, Required: true, Group: rewards.GroupScorerFunc(
		func(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
			out := make([]rewards.MemberScore, len(g.Members))
			out[0].Err = fmt.Errorf("%w: as planned", rewards.InvalidScore)
			out[1].Err = rewards.Skip("not for it")
			return out, nil
		})})
	got := whole(t, m, 3, "a", "b", "c")
	require.Equal(t, rewards.Failed, got[0].Outcome)
	require.Equal(t, rewards.InvalidScore, got[0].Class())
	for _, r := range got[1:] {
		require.Equal(t, rewards.Scored, r.Outcome)
		assert.InDelta(t, 1, r.Score, 1e-12)
	}
}

func TestAGroupsFailureThatMayPassIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		flaky := rewards.Component{Key: "best", Weight: 1, Required: true, Retries: 2, Group: rewards.GroupScorerFunc(
			func(ctx context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
				if calls++; calls < 3 {
					return nil, rewards.Unavailable
				}
				return best(ctx, g)
			})}
		got := whole(t, grouped(t, flaky), 2, "a", "bb")
		require.Equal(t, rewards.Scored, got[0].Outcome)
		assert.Equal(t, 3, componentOf(t, got[0], "best").Attempts)
	})
}

func TestAGroupScorerThatOverrunsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		uncancellable := rewards.Component{Key: "best", Weight: 1, Required: true, Timeout: time.Second, Group: rewards.GroupScorerFunc(
			func(context.Context, *rewards.Group) ([]rewards.MemberScore, error) {
				time.Sleep(time.Minute)
				return nil, errors.New("late")
			})}
		begun := time.Now()
		m := grouped(t, uncancellable)
		s := &rewards.Sample{ID: "a", UID: "u", GroupSize: 2}
		partial := m.Run(t.Context(), s).Result.Partial
		run := m.RunGroup(t.Context(), []rewards.GroupMember{{Sample: s, Components: partial}, {Sample: s, Components: partial}}, 2, nil)
		require.Equal(t, rewards.Timeout, run.Results[0].Class())
		assert.InDelta(t, 1.1, time.Since(begun).Seconds(), 0.01)
		<-run.Done()
		assert.InDelta(t, 60, time.Since(begun).Seconds(), 0.01, "the samples stay as they are until it has returned")
	})
}

func TestAComponentThatLooksAtAnotherNeedsIt(t *testing.T) {
	t.Parallel()
	ranks := rewards.Component{Key: "ranks", Weight: 1, Group: dependent{}}
	_, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component("own", constant(1)), ranks}})
	require.NoError(t, err)
	_, err = rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component("other", constant(1)), ranks}})
	require.ErrorContains(t, err, `component "ranks" uses the value of the component "own"`)
}

type dependent struct{ rewards.GroupScorerFunc }

func (dependent) DependsOn() []string { return []string{"own"} }
