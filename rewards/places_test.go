package rewards_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// moving is a scorer whose concurrency changes.
type moving struct {
	rewards.Scorer
	n *atomic.Int64
}

func (m moving) Concurrency() int { return int(m.n.Load()) }

func TestASampleOccupiesEachComponentUntilThatEnds(t *testing.T) {
	t.Parallel()
	p := rewards.NewPlaces(manager(t, component("ocr", places(2)), component("judge", places(5))), 0, 1)
	assert.Equal(t, 5, p.Capacity())
	assert.Equal(t, 2, p.Free())
	a, b := p.Begin(), p.Begin()
	assert.Zero(t, p.Free(), "the reader is taken, although the judge has three places more")
	a.End(0)
	a.End(0)
	assert.Equal(t, 1, p.Free(), "a second end of the same component counts for nothing")
	a.Leave()
	b.Leave()
	assert.Equal(t, 2, p.Free())
	b.End(1)
	assert.Equal(t, 2, p.Free())
}

func TestTheConcurrencyOfAProcessIsDividedAmongItsWorkers(t *testing.T) {
	t.Parallel()
	m := manager(t, component("ocr", places(2)), component("judge", places(11)))
	var free, capacity []int
	for i := range 4 {
		p := rewards.NewPlaces(m, i, 4)
		free, capacity = append(free, p.Free()), append(capacity, p.Capacity())
	}
	assert.Equal(t, []int{3, 3, 3, 2}, capacity)
	assert.Equal(t, []int{1, 1, 0, 0}, free, "those that have a reader are the first, which have the most places at the judge")
}

func TestAProfilesOwnConcurrencyBoundsTheSamplesUnderWay(t *testing.T) {
	t.Parallel()
	m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("a", places(9)), component("b", places(9))}, Concurrency: 2})
	p := rewards.NewPlaces(m, 0, 1)
	a, b := p.Begin(), p.Begin()
	a.End(0)
	b.End(1)
	assert.Zero(t, p.Free(), "each has a component that is unfinished")
	a.End(1)
	assert.Equal(t, 1, p.Free())

	m = newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("a", places(3))}, Concurrency: 64})
	p = rewards.NewPlaces(m, 0, 1)
	assert.Equal(t, 64, p.Capacity())
	assert.Equal(t, 3, p.Free(), "a larger one does not make the component faster")
}

func TestAConcurrencyThatFallsBelowWhatIsUnderWayLeavesNothingFree(t *testing.T) {
	t.Parallel()
	n := new(atomic.Int64)
	n.Store(4)
	p := rewards.NewPlaces(manager(t, component("service", moving{constant(1), n})), 0, 1)
	var held []*rewards.Place
	for range 4 {
		held = append(held, p.Begin())
	}
	n.Store(2)
	assert.Zero(t, p.Free())
	held[0].Leave()
	held[1].Leave()
	assert.Zero(t, p.Free())
	held[2].Leave()
	assert.Equal(t, 1, p.Free())
	n.Store(10)
	assert.Equal(t, 9, p.Free())
}

// TestPlacesAgreeWithAModelThatCountsSampleBySample draws what happens, and holds Free against
// a model that keeps each sample's unfinished components.
func TestPlacesAgreeWithAModelThatCountsSampleBySample(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var components []rewards.Component
		var now []*atomic.Int64
		for i := range 1 + r.IntN(4) {
			n := new(atomic.Int64)
			n.Store(int64(1 + r.IntN(40)))
			now = append(now, n)
			components = append(components, component(string(rune('a'+i)), moving{constant(1), n}))
		}
		cfg := rewards.ManagerConfig{Components: components}
		if r.IntN(2) == 0 {
			cfg.Concurrency = 1 + r.IntN(40)
		}
		m, workers := newManager(t, cfg), 1+r.IntN(5)
		worker := r.IntN(workers)
		p := rewards.NewPlaces(m, worker, workers)
		share := func(n int) int {
			own := 0
			for i := range n { // dealt out one by one
				if i%workers == worker {
					own++
				}
			}
			return own
		}
		var under []map[int]bool // the unfinished components of the samples that have begun
		var held []*rewards.Place
		for range 300 {
			switch r.IntN(5) {
			case 0, 1:
				if p.Free() > 0 {
					held = append(held, p.Begin())
					all := map[int]bool{}
					for i := range components {
						all[i] = true
					}
					under = append(under, all)
				}
			case 2, 3:
				if len(held) > 0 {
					i, c := r.IntN(len(held)), r.IntN(len(components))
					held[i].End(c)
					delete(under[i], c)
				}
			default:
				now[r.IntN(len(now))].Store(int64(1 + r.IntN(40)))
			}
			want := 1 << 30
			for c := range components {
				n := share(int(now[c].Load()))
				for _, open := range under {
					if open[c] {
						n--
					}
				}
				want = min(want, n)
			}
			if cfg.Concurrency > 0 {
				n := share(cfg.Concurrency)
				for _, open := range under {
					if len(open) > 0 {
						n--
					}
				}
				want = min(want, n)
			}
			require.Equal(t, max(want, 0), p.Free(), "seed %d", seed)
		}
	}
}

func TestOneSampleAheadIsOfComponentsThatComputeHereAndAreJustTaken(t *testing.T) {
	t.Parallel()
	two := &atomic.Int64{}
	two.Store(2)
	p := rewards.NewPlaces(manager(t, component("ocr", moving{places(1), two}), component("judge", places(5))), 0, 1)
	assert.True(t, p.Ahead())
	p.Begin()
	p.Begin()
	assert.Zero(t, p.Free())
	assert.True(t, p.Ahead(), "as many as there are executors")
	two.Store(1)
	assert.False(t, p.Ahead(), "one more than that already")
	two.Store(2)
	p.Begin()
	assert.False(t, p.Ahead())

	set := component("ocr", places(1))
	set.Concurrency = 1
	p = rewards.NewPlaces(manager(t, set), 0, 1)
	p.Begin()
	assert.False(t, p.Ahead(), "somebody has said how many")
	p = rewards.FixedPlaces(manager(t, component("ocr", places(1))), 1)
	p.Begin()
	assert.False(t, p.Ahead())
	p = rewards.NewPlaces(manager(t, component("judge", one{engine(false)})), 0, 1)
	p.Begin()
	assert.False(t, p.Ahead(), "an engine is nobody's executor here")
	p = rewards.NewPlaces(manager(t, component("ocr", places(1))), 1, 2)
	assert.False(t, p.Ahead(), "a worker without a place")
}

// one asks an engine once at a time.
type one struct{ *asking }

func (one) Concurrency() int { return 1 }

func TestPlacesComeBackFromManyGoroutines(t *testing.T) {
	t.Parallel()
	p := rewards.NewPlaces(manager(t, component("a", places(100)), component("b", places(50))), 0, 1)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 100 {
				place := p.Begin()
				var ends sync.WaitGroup
				ends.Go(func() { place.End(0) })
				ends.Go(func() { place.End(1) })
				ends.Go(place.Leave)
				ends.Wait()
			}
		})
	}
	all.Wait()
	assert.Equal(t, 50, p.Free())
}
