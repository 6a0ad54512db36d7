package sim_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// policies are all simulated schedules under one signature.
func policies() map[string]func(g, r []float64, servers int) (sim.Schedule, error) {
	return map[string]func(g, r []float64, servers int) (sim.Schedule, error){
		"ideal queue":         sim.IdealQueue,
		"batch after rollout": sim.BatchAfterRollout,
		"random blind": func(g, r []float64, servers int) (sim.Schedule, error) {
			return blind(g, r, servers, 17)
		},
	}
}

// blind is what verl does.
func blind(g, r []float64, servers int, seed uint64) (sim.Schedule, error) {
	return sim.Dispatch(g, r, sim.DispatchConfig{Servers: servers, Policy: sim.PolicyRandomBlind, Seed: seed})
}

// load draws up to 60 samples whose times are multiples of 1/64 s below 2¹⁰, so
// that all sums are exact and schedules may be compared without a tolerance.
func load(rng *rand.Rand) (g, r []float64, servers int) {
	n := 1 + rng.IntN(60)
	for range n {
		g = append(g, float64(rng.IntN(1<<12))/64)
		r = append(r, float64(rng.IntN(1<<rng.IntN(12)))/64)
	}
	return g, r, 1 << rng.IntN(5)
}

func TestNoPolicyBeatsTheBound(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		g, r, servers := load(rng)
		bound, err := sim.LowerBound(g, r, servers)
		require.NoError(t, err)
		for name, policy := range policies() {
			s, err := policy(g, r, servers)
			require.NoError(t, err)
			require.GreaterOrEqual(t, s.Makespan, bound, "%s, %d servers, g=%v r=%v", name, servers, g, r)
		}
	}
}

func TestOneServerMeetsTheBoundExactly(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		g, r, _ := load(rng)
		bound, err := sim.LowerBound(g, r, 1)
		require.NoError(t, err)
		ideal, err := sim.IdealQueue(g, r, 1)
		require.NoError(t, err)
		random, err := blind(g, r, 1, 5)
		require.NoError(t, err)
		require.Equal(t, bound, ideal.Makespan) //nolint:testifylint // the sums are exact
		require.Equal(t, ideal.Finished, random.Finished)
	}
}

// The rules every schedule keeps: nothing starts before its release, each takes
// its service time, and no server does two things at once.
func TestEveryScheduleIsPossible(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		g, r, servers := load(rng)
		for name, policy := range policies() {
			s, err := policy(g, r, servers)
			require.NoError(t, err)
			require.Equal(t, g, s.Released, name)
			busy := make([][]int, servers)
			for i := range g {
				require.GreaterOrEqual(t, s.Started[i], g[i], name)
				require.InDelta(t, s.Started[i]+r[i], s.Finished[i], 0, name)
				require.LessOrEqual(t, s.Finished[i], s.Makespan, name)
				if r[i] > 0 {
					busy[s.Server[i]] = append(busy[s.Server[i]], i)
				}
			}
			for _, mine := range busy {
				slices.SortFunc(mine, func(a, b int) int { return int(64 * (s.Started[a] - s.Started[b])) })
				for k := 1; k < len(mine); k++ {
					require.LessOrEqual(t, s.Finished[mine[k-1]], s.Started[mine[k]], name)
				}
			}
		}
	}
}

// A pull queue never leaves a server free beside a waiting sample; this is what
// tells it from the other two.
func TestTheIdealQueueStartsInOrderOfReleaseAndNeverIdles(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		g, r, servers := load(rng)
		s, err := sim.IdealQueue(g, r, servers)
		require.NoError(t, err)
		for i := range g {
			inService := 0
			for j := range g {
				if g[i] < g[j] {
					require.LessOrEqual(t, s.Started[i], s.Started[j])
				}
				// Just before i starts, who is being scored?
				if s.Started[j] < s.Started[i] && s.Finished[j] >= s.Started[i] {
					inService++
				}
			}
			if s.Started[i] > g[i] {
				require.GreaterOrEqual(t, inService, servers, "sample %d waited beside a free server", i)
			}
		}
	}
}

func TestClosedForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		g, r                []float64
		servers             int
		bound, ideal, batch float64
	}{
		{"one sample: release plus service", []float64{3}, []float64{2}, 4, 5, 5, 5},
		{"a trickle slower than the service: last release plus last service", []float64{1, 2, 3, 4}, []float64{.5, .5, .5, .5}, 1, 4.5, 4.5, 6},
		{"everything at once on two servers: half the work", []float64{0, 0, 0, 0}, []float64{1, 1, 1, 1}, 2, 2, 2, 2},
		{"one long sample: no server can split it", []float64{0, 0, 0}, []float64{1, 1, 6}, 3, 6, 6, 6},
		{"the long one last: the queue cannot know", []float64{0, 0, 0}, []float64{2, 2, 4}, 2, 4, 6, 6},
		{"backlog of the last two", []float64{0, 10, 10}, []float64{1, 4, 4}, 1, 18, 18, 19},
		{"more servers than samples: after the rollout, the longest", []float64{0, 5}, []float64{7, 1}, 9, 7, 7, 12},
		{"no work at all", []float64{2, 8}, []float64{0, 0}, 1, 8, 8, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bound, err := sim.LowerBound(c.g, c.r, c.servers)
			require.NoError(t, err)
			assert.InDelta(t, c.bound, bound, 0)
			ideal, err := sim.IdealQueue(c.g, c.r, c.servers)
			require.NoError(t, err)
			assert.InDelta(t, c.ideal, ideal.Makespan, 0)
			batch, err := sim.BatchAfterRollout(c.g, c.r, c.servers)
			require.NoError(t, err)
			assert.InDelta(t, c.batch, batch.Makespan, 0)
			assert.InDelta(t, c.batch-slices.Max(c.g), batch.Exposed(), 0)
			least, err := sim.LowerBound(make([]float64, len(c.r)), c.r, c.servers)
			require.NoError(t, err)
			assert.LessOrEqual(t, least, batch.Exposed())
		})
	}
}

// The order of the caller's slices carries no meaning beyond ties.
func TestTheBoundDoesNotDependOnTheOrderOfTheBatch(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	for range 100 {
		g, r, servers := load(rng)
		before, err := sim.LowerBound(g, r, servers)
		require.NoError(t, err)
		rng.Shuffle(len(g), func(i, j int) { g[i], g[j] = g[j], g[i]; r[i], r[j] = r[j], r[i] })
		after, err := sim.LowerBound(g, r, servers)
		require.NoError(t, err)
		require.InDelta(t, before, after, 0)
	}
}

// The dispatch experiment: 512 samples trickle out over 200 s, services
// U(0.8, 1.2) scaled to 90 % load of 8 servers. Reference (an independent
// simulation, 200 repetitions): bound 2.90 s exposed, pull 2.92, random 26.75.
func TestBlindRandomChoiceCostsTenTimesThePullQueueAtHighLoad(t *testing.T) {
	t.Parallel()
	const (
		samples, servers = 512, 8
		rollout, rho     = 200.0, 0.9
		repetitions      = 200
	)
	g := make([]float64, samples)
	for i := range g {
		g[i] = rollout * float64(i+1) / samples
	}
	var bound, pull, random float64
	for rep := range uint64(repetitions) {
		rng := rand.New(rand.NewPCG(rep, 99))
		r, work := make([]float64, samples), 0.0
		for i := range r {
			r[i] = 0.8 + 0.4*rng.Float64()
			work += r[i]
		}
		for i := range r {
			r[i] *= rho * servers * rollout / work
		}
		b, err := sim.LowerBound(g, r, servers)
		require.NoError(t, err)
		q, err := sim.IdealQueue(g, r, servers)
		require.NoError(t, err)
		z, err := blind(g, r, servers, rep)
		require.NoError(t, err)
		bound += (b - rollout) / repetitions
		pull += q.Exposed() / repetitions
		random += z.Exposed() / repetitions
	}
	t.Logf("exposed seconds: bound %.2f, pull %.2f, random %.2f", bound, pull, random)
	assert.InDelta(t, 2.90, bound, 0.1)
	assert.InDelta(t, 2.92, pull, 0.1)
	assert.InDelta(t, 26.75, random, 3) // standard error 0.8 s
}

func TestTheSameSeedGivesTheSameDraw(t *testing.T) {
	t.Parallel()
	g, r, _ := load(rand.New(rand.NewPCG(11, 12)))
	a, err := blind(g, r, 4, 7)
	require.NoError(t, err)
	b, err := blind(g, r, 4, 7)
	require.NoError(t, err)
	assert.Equal(t, a, b)
}

func TestALoadThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		g, r    []float64
		servers int
		says    string
	}{
		{[]float64{1}, []float64{1}, 0, "0 servers"},
		{[]float64{1}, []float64{1, 2}, 1, "1 release times but 2 service times"},
		{nil, nil, 1, "no samples"},
		{[]float64{0, -1}, []float64{1, 1}, 1, "sample 1"},
		{[]float64{nan}, []float64{1}, 1, "NaN"},
		{[]float64{1}, []float64{inf}, 1, "Inf"},
		{[]float64{1}, []float64{1e300}, 1, "sample 0"},
	} {
		_, err := sim.LowerBound(c.g, c.r, c.servers)
		require.ErrorIs(t, err, sim.ErrLoad)
		require.ErrorContains(t, err, c.says)
		for name, policy := range policies() {
			_, err := policy(c.g, c.r, c.servers)
			require.ErrorIs(t, err, sim.ErrLoad, name)
		}
	}
}

func TestSchedulesDoNotChangeTheCallersTimes(t *testing.T) {
	t.Parallel()
	g, r := []float64{3, 1, 2}, []float64{1, 1, 1}
	for _, policy := range policies() {
		s, err := policy(g, r, 2)
		require.NoError(t, err)
		s.Released[0] = 99
	}
	assert.Equal(t, []float64{3, 1, 2}, g)
	assert.Equal(t, []float64{1, 1, 1}, r)
}

// 5120 samples on 256 servers, the size of the largest step we replay.
func BenchmarkIdealQueue(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	g, r := make([]float64, 5120), make([]float64, 5120)
	for i := range g {
		g[i], r[i] = 50*rng.Float64(), 1+39*rng.Float64()
	}
	for b.Loop() {
		if _, err := sim.IdealQueue(g, r, 256); err != nil {
			b.Fatal(err)
		}
	}
}
