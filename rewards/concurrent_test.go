package rewards_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/rewards"
)

// places is a scorer that executes so many calls at a time.
type places int

func (places) Score(context.Context, *rewards.Sample) (rewards.Score, error) {
	return rewards.Score{Value: 1}, nil
}
func (p places) Concurrency() int          { return int(p) }
func (p places) ConcurrencyReason() string { return rewards.Count(int(p), "place") }

// mute does not say why.
type mute struct{ rewards.Scorer }

func (mute) Concurrency() int { return 7 }

// faulty panics when it is asked.
type faulty struct{ rewards.Scorer }

func (faulty) Concurrency() int          { panic("no idea") }
func (faulty) ConcurrencyReason() string { panic("no idea either") }

func TestAScorerThatDoesNotSayExecutesOneCallForEachCPU(t *testing.T) {
	t.Parallel()
	n := runtime.GOMAXPROCS(0)
	assert.Equal(t, n, rewards.ConcurrencyOf(constant(1)))
	assert.Equal(t, rewards.Count(n, "CPU"), rewards.ConcurrencyReason(constant(1)))
	assert.Equal(t, "1 CPU", rewards.Count(1, "CPU"))
	assert.Equal(t, "3 CPUs", rewards.Count(3, "CPU"))
	assert.Equal(t, "2 processes", rewards.Count(2, "process"))
}

func TestAScorerSaysHowManyCallsItExecutesAndWhy(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 5, rewards.ConcurrencyOf(places(5)))
	assert.Equal(t, "5 places", rewards.ConcurrencyReason(places(5)))
	assert.Equal(t, 1, rewards.ConcurrencyOf(places(0)), "never less than one")
	assert.Equal(t, 7, rewards.ConcurrencyOf(mute{}))
	assert.Equal(t, "set by the scorer", rewards.ConcurrencyReason(mute{}))
}

func TestAScorerThatPanicsWhenItIsAskedExecutesOneCall(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 1, rewards.ConcurrencyOf(faulty{}))
	assert.Contains(t, rewards.ConcurrencyReason(faulty{}), "no idea either")
}

func TestAScorerThatNeedsAllItsPartsExecutesAsManyCallsAsTheNarrowest(t *testing.T) {
	t.Parallel()
	assert.Equal(t, places(2), rewards.Narrowest(places(4), places(2), places(3)))
	assert.Equal(t, "2 places", rewards.ConcurrencyReason(rewards.Narrowest[any](places(4), places(2))))
}

func TestAProfileNamesItsComponentsAndTheirConcurrency(t *testing.T) {
	t.Parallel()
	entry := component("entry", places(4))
	entry.Concurrency = 64
	group := rewards.Component{Key: "group", Weight: 1, Group: rewards.GroupScorerFunc(best)}
	m := newManager(t, rewards.ManagerConfig{
		Components: []rewards.Component{component("own", places(3)), entry, group},
		Prepare: rewards.PreparerFunc(func(_ context.Context, s *rewards.Sample) (*rewards.Sample, error) {
			return s, nil
		}),
	})
	cpus := runtime.GOMAXPROCS(0)
	assert.Equal(t, []rewards.ComponentConcurrency{
		{Key: "own", Concurrency: 3, Reason: "3 places"},
		{Key: "entry", Concurrency: 64, Reason: "the concurrency of its entry"},
		{Key: "group", Group: true, Concurrency: cpus, Reason: rewards.Count(cpus, "CPU")},
		{Key: "verify", Prepares: true, Concurrency: cpus, Reason: rewards.Count(cpus, "CPU")},
	}, m.Concurrencies())
	assert.Equal(t, max(64, cpus), m.Capacity(), "that of the component that has the most")
}

func TestAProfilesOwnConcurrencyIsItsCapacity(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5, 500} {
		m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("a", places(3)), component("b", places(9))}, Concurrency: n})
		assert.Equal(t, n, m.Capacity(), strconv.Itoa(n))
	}
	m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("a", places(3)), component("b", places(9))}})
	assert.Equal(t, 9, m.Capacity())
}
