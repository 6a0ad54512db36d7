package rewards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// ledger watches the components of one pass: which of them execute, and which have ended.
type ledger struct {
	t *testing.T

	mu      sync.Mutex
	running map[int]int
	ended   map[int]int
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	return &ledger{t: t, running: map[int]int{}, ended: map[int]int{}}
}

// executes counts a call of a component until the returned function is called.
func (l *ledger) executes(component int) (returned func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Zero(l.t, l.ended[component], "component %d is called after it has ended", component)
	l.running[component]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running[component]--
	}
}

// end is what OnEnd is told.
func (l *ledger) end(component int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Zero(l.t, l.running[component], "component %d has ended and still executes", component)
	l.ended[component]++
}

// over checks, when Done is closed, that every component has ended once.
func (l *ledger) over(components int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := map[int]int{}
	for i := range components {
		want[i] = 1
	}
	assert.Equal(l.t, want, l.ended)
}

// now are the components that have ended so far.
func (l *ledger) now() (out []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.ended {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// drawn is a profile of drawn components whose calls are written into the ledger of the pass.
type drawn struct {
	rand   *rand.Rand
	ledger *ledger // of the pass that runs
}

// behave is what a drawn component does: it answers, fails, panics, ends its goroutine or
// hangs, at once or later, with an eye on its context or without.
func (d *drawn) behave(kind int, pause time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		switch kind {
		case 0:
			return nil
		case 1:
			panic("drawn")
		case 2:
			runtime.Goexit()
		case 3: // it ignores its context
			<-time.After(pause)
			return nil
		case 4:
			select {
			case <-time.After(pause):
				return nil
			case <-ctx.Done():
				return fmt.Errorf("drawn: %w", ctx.Err())
			}
		case 5:
			<-time.After(pause / 1000)
			return rewards.Blamed(rewards.BlameReward, errors.New("drawn"))
		}
		return fmt.Errorf("%w: drawn", rewards.NoScore)
	}
}

func (d *drawn) action() func(context.Context) error {
	return d.behave(d.rand.IntN(7), time.Duration(d.rand.IntN(5000))*time.Millisecond)
}

func (d *drawn) component(i int) rewards.Component {
	do := d.action()
	t := rewards.Component{
		Key: fmt.Sprint("t", i), Weight: 1, Required: d.rand.IntN(4) == 0, Retries: d.rand.IntN(3),
		Timeout: time.Duration(1+d.rand.IntN(3000)) * time.Millisecond,
	}
	if d.rand.IntN(4) == 0 {
		t.When = []string{[]string{"here", "elsewhere"}[d.rand.IntN(2)]}
	}
	if d.rand.IntN(3) > 0 {
		t.Scorer = rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
			defer d.ledger.executes(i)()
			return rewards.Score{Value: 1}, do(ctx)
		})
		return t
	}
	t.MinMembers = d.rand.IntN(3)
	t.Group = rewards.GroupScorerFunc(func(ctx context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
		defer d.ledger.executes(i)()
		return make([]rewards.MemberScore, len(g.Members)), do(ctx)
	})
	return t
}

func (d *drawn) config() rewards.ManagerConfig {
	cfg := rewards.ManagerConfig{Backoff: time.Millisecond}
	for i := range 1 + d.rand.IntN(6) {
		cfg.Components = append(cfg.Components, d.component(i))
	}
	if d.rand.IntN(2) == 0 {
		do, at := d.behave([]int{0, 1, 3, 4, 5}[d.rand.IntN(5)], time.Second), len(cfg.Components)
		cfg.Prepare = rewards.PreparerFunc(func(ctx context.Context, s *rewards.Sample) (*rewards.Sample, error) {
			defer d.ledger.executes(at)()
			return s, do(ctx)
		})
	}
	return cfg
}

// context is one that may end before the pass does.
func (d *drawn) context(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	if d.rand.IntN(3) > 0 {
		return context.WithCancel(t.Context())
	}
	return context.WithTimeout(t.Context(), time.Duration(d.rand.IntN(2000))*time.Millisecond)
}

// end waits for the pass, and longer than anything lasts, and looks at the ledger.
func (d *drawn) end(done <-chan struct{}, components int) {
	<-done
	d.ledger.over(components)
	<-time.After(time.Minute)
	synctest.Wait()
	d.ledger.over(components)
}

func TestEveryComponentEndsOnceBeforeDoneWhateverHappens(t *testing.T) {
	t.Parallel()
	groups := 0
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			d := &drawn{rand: rand.New(rand.NewPCG(seed, 1)), ledger: newLedger(t)}
			m := newManager(t, d.config())
			components := len(m.Concurrencies())
			s := rewards.Sample{ID: "s", DataSource: "here"}
			if d.rand.IntN(2) == 0 {
				s.UID, s.GroupSize = "u", 2
			}
			ctx, cancel := d.context(t)
			run := m.Run(ctx, &s, rewards.OnEnd(d.ledger.end))
			cancel()
			d.end(run.Done(), components)
			if run.Result.Partial == nil {
				return
			}
			groups++
			d.ledger = newLedger(t)
			ctx, cancel = d.context(t)
			other := s
			other.ID = "other"
			members := []rewards.GroupMember{{Sample: &s, Components: run.Result.Partial}, {Sample: &other, Components: run.Result.Partial}}
			group := m.RunGroup(ctx, members[:1+d.rand.IntN(2)], 2, nil, rewards.OnEnd(d.ledger.end))
			cancel()
			d.end(group.Done(), components)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	require.Greater(t, groups, 50, "group passes were drawn")
}

func TestAnAbandonedScorerIsUnfinishedUntilItReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{
			{Key: "hangs", Weight: 1, Scorer: uncancellable(time.Hour, 1), Timeout: time.Second, OnFailure: rewards.ComponentPolicy{Policy: rewards.PolicyZero}},
			component("quick", constant(1)),
		}})
		run := m.Run(t.Context(), &alone, rewards.OnEnd(l.end))
		assert.Equal(t, rewards.Scored, run.Result.Outcome, "the sample has its answer")
		assert.Equal(t, []int{1}, l.now(), "what hangs still takes its place")
		<-run.Done()
		assert.Equal(t, []int{0, 1}, l.now())
	})
}

func TestWhatAPassDoesNotRunEndsBeforeItsPreparation(t *testing.T) {
	t.Parallel()
	l, atPreparation := newLedger(t), []int(nil)
	group := rewards.GroupScorerFunc(func(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
		return make([]rewards.MemberScore, len(g.Members)), nil
	})
	m := newManager(t, rewards.ManagerConfig{
		Components: []rewards.Component{component("own", constant(1)), {Key: "group", Weight: 1, Group: group, MinMembers: 1}},
		Prepare: rewards.PreparerFunc(func(_ context.Context, s *rewards.Sample) (*rewards.Sample, error) {
			atPreparation = l.now()
			return s, nil
		}),
	})
	run := m.Run(t.Context(), &member, rewards.OnEnd(l.end))
	assert.Equal(t, []int{1}, atPreparation, "the group's turn comes later")
	<-run.Done()

	l = newLedger(t)
	run = m.Run(t.Context(), &alone, rewards.OnEnd(l.end))
	assert.Empty(t, atPreparation, "a sample that is a group of its own has its turn in this pass")
	assert.Equal(t, rewards.Scored, run.Result.Outcome)
	<-run.Done()
	l.over(3)
}

func TestAPreparerThatEndsItsGoroutineEndsAllComponents(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	m := newManager(t, rewards.ManagerConfig{
		Components: []rewards.Component{component("own", constant(1)), {Key: "group", Weight: 1, Group: rewards.GroupScorerFunc(best)}},
		Prepare: rewards.PreparerFunc(func(context.Context, *rewards.Sample) (*rewards.Sample, error) {
			runtime.Goexit()
			return nil, nil //nolint:nilnil // it does not return
		}),
	})
	var all sync.WaitGroup
	all.Go(func() { m.Run(t.Context(), &alone, rewards.OnEnd(l.end)) })
	all.Wait()
	l.over(3)
}
