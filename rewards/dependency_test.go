package rewards_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// asking is a scorer that asks an engine, which may be down.
type asking struct {
	now   rewards.Dependency
	calls atomic.Int32
}

func (a *asking) Score(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
	a.calls.Add(1)
	if !a.now.Down {
		return rewards.Score{Value: 4}, nil
	}
	if !rewards.Returns(ctx) {
		<-ctx.Done()
	}
	return rewards.Score{}, rewards.Blamed(rewards.BlameDependency, rewards.WaitsFor(a.now.Name, fmt.Errorf("%w: connection refused", rewards.Unavailable)))
}

func (a *asking) Dependency() rewards.Dependency { return a.now }

func engine(down bool) *asking { return &asking{now: rewards.Dependency{Name: "e", Down: down}} }

// give runs s to its result as a worker does, which returns what waits.
func give(t *testing.T, m *rewards.Manager, s rewards.Sample, opts ...rewards.RunOption) rewards.Result {
	t.Helper()
	run := m.Run(t.Context(), &s, append(opts, rewards.Return())...)
	<-run.Done()
	return run.Result
}

func TestASampleIsReturnedWhileWhatARequiredComponentAsksIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := engine(true)
		var read atomic.Int32
		ocr := bySample(func(*rewards.Sample) (rewards.Score, error) {
			read.Add(1)
			time.Sleep(3 * time.Second)
			return rewards.Score{Value: 1, Extra: map[string]any{"text": "GO"}}, nil
		})
		judge := required("judge", e)
		judge.Retries = 3
		m := manager(t, component("ocr", ocr), judge, on("zero", "broken", broken(rewards.Internal)))
		r := give(t, m, alone)
		assert.Equal(t, rewards.OutcomeCancelled, r.Outcome)
		assert.Equal(t, "e", r.Waits)
		require.Len(t, r.Errors, 1)
		assert.Equal(t, rewards.Unavailable, r.Errors[0].Class)
		assert.Equal(t, rewards.BlameDependency, r.Errors[0].Blame)
		assert.EqualValues(t, 1, e.calls.Load(), "retries would meet the same")
		require.Len(t, r.Partial, 3)
		assert.Equal(t, rewards.StatusOK, r.Partial[0].Status, "it was waited for")
		assert.Equal(t, rewards.StatusWaiting, r.Partial[1].Status)
		assert.Equal(t, rewards.StatusFailed, r.Partial[2].Status)

		e.now.Down = false
		r = give(t, m, alone, rewards.Kept(r.Partial))
		require.Equal(t, rewards.Scored, r.Outcome)
		assert.InDelta(t, 5, r.Score, 0)
		assert.EqualValues(t, 1, read.Load(), "what was finished is kept")
		assert.Equal(t, "GO", r.Extra["reward/ocr/text"])
		assert.Equal(t, rewards.StatusImputed, componentOf(t, r, "broken").Status)
	})
}

func TestWithoutReturnASampleWaitsForItsDependency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		judge := required("judge", engine(true))
		judge.Timeout = 10 * time.Second
		r := score(t, manager(t, judge), alone)
		assert.Equal(t, rewards.Failed, r.Outcome)
		assert.Empty(t, r.Waits)
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestAnOptionalComponentWhoseDependencyIsDownIsImputedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := manager(t, component("ocr", constant(1)), on("value:0.5", "judge", engine(true)))
		r := give(t, m, alone)
		assert.Equal(t, rewards.Scored, r.Outcome)
		assert.InDelta(t, 1.5, r.Score, 0)
		assert.Zero(t, time.Since(start))
		_, always := m.Waits()
		assert.False(t, always)
	})
}

func TestAComponentWhosePolicyIsFailReturnsTheSample(t *testing.T) {
	t.Parallel()
	r := give(t, manager(t, component("ocr", constant(1)), on("fail", "judge", engine(true))), member)
	assert.Equal(t, "e", r.Waits)
}

func TestAFailureThatDecidesIsNotReturned(t *testing.T) {
	t.Parallel()
	key := required("key", failing(rewards.Permanent(rewards.BlameDependency, fmt.Errorf("%w: 401", rewards.Internal))))
	r := give(t, manager(t, required("judge", engine(true)), key), alone)
	assert.Equal(t, rewards.Failed, r.Outcome)
	assert.Equal(t, "key", r.Errors[0].Component)
}

func TestAGroupWaitsAsOne(t *testing.T) {
	t.Parallel()
	e := engine(true)
	m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{
		component("own", constant(1)),
		{Key: "best", Weight: 10, Required: true, Group: groupAsking{e}},
	}})
	run := func(kept [][]rewards.ComponentResult) []rewards.Result {
		members := make([]rewards.GroupMember, 3)
		for i := range members {
			members[i] = rewards.GroupMember{Sample: &rewards.Sample{ID: fmt.Sprint(i), UID: "u", GroupSize: 3}}
			if kept != nil {
				members[i].Components = kept[i]
				continue
			}
			members[i].Components = give(t, m, *members[i].Sample).Partial
		}
		g := m.RunGroup(t.Context(), members, 3, nil, rewards.Return())
		<-g.Done()
		return g.Results
	}
	var kept [][]rewards.ComponentResult
	for _, r := range run(nil) {
		assert.Equal(t, "e", r.Waits)
		assert.Equal(t, rewards.OutcomeCancelled, r.Outcome)
		kept = append(kept, r.Partial)
	}
	e.now.Down = false
	for _, r := range run(kept) {
		assert.Equal(t, rewards.Scored, r.Outcome)
		assert.InDelta(t, 41, r.Score, 0)
	}
}

// groupAsking asks an engine about whole groups.
type groupAsking struct{ *asking }

func (g groupAsking) ScoreGroup(ctx context.Context, group *rewards.Group) ([]rewards.MemberScore, error) {
	s, err := g.Score(ctx, nil)
	out := make([]rewards.MemberScore, len(group.Members))
	for i := range out {
		out[i].Score = s
	}
	return out, err
}

func TestAPreparationWhoseDependencyIsDownReturnsTheSample(t *testing.T) {
	t.Parallel()
	e := engine(true)
	m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("ocr", constant(1))}, Prepare: preparing{e}})
	r := give(t, m, alone)
	assert.Equal(t, "e", r.Waits)
	require.Len(t, r.Partial, 1)
	assert.Equal(t, rewards.StatusWaiting, r.Partial[0].Status)
	_, always := m.Waits()
	assert.True(t, always)
	e.now.Down = false
	assert.Equal(t, rewards.Scored, give(t, m, alone, rewards.Kept(r.Partial)).Outcome)
}

type preparing struct{ *asking }

func (p preparing) Prepare(ctx context.Context, s *rewards.Sample) (*rewards.Sample, error) {
	_, err := p.Score(ctx, s)
	return s, err
}

func TestAProfileWaitsForWhatEverySampleNeeds(t *testing.T) {
	t.Parallel()
	up, silent := engine(false), engine(false)
	silent.now.Unanswered = 7 * time.Second
	when := required("judge", engine(true))
	when.When = []string{"math"}
	now := time.Now()
	for name, c := range map[string]struct {
		components []rewards.Component
		name       string
		always     bool
	}{
		"nothing is asked":         {components: []rewards.Component{component("a", constant(1))}},
		"the engine is up":         {components: []rewards.Component{required("judge", up)}},
		"it is down":               {components: []rewards.Component{required("judge", engine(true)), component("a", constant(1))}, name: "e", always: true},
		"only some samples ask it": {components: []rewards.Component{when}, name: "e"},
		"it answers nothing":       {components: []rewards.Component{required("judge", silent)}, name: "e"},
		"of two that which is probed last": {components: []rewards.Component{
			required("a", &asking{now: rewards.Dependency{Name: "soon", Down: true, Probe: true, Due: now}}),
			required("b", &asking{now: rewards.Dependency{Name: "late", Down: true, Due: now.Add(time.Hour)}}),
			required("c", &asking{now: rewards.Dependency{Name: "later", Down: true, Probe: true, Due: now.Add(-time.Hour)}}),
		}, name: "late", always: true},
	} {
		d, always := manager(t, c.components...).Waits()
		assert.Equal(t, c.name, d.Name, name)
		assert.Equal(t, c.always, always, name)
	}
}
