package fair_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// load is a tenant with calls of a cost, of which so many wait at a time.
type load struct {
	tenant fair.Tenant
	cost   func() time.Duration
	ahead  int
	from   time.Duration // when it comes
	had    time.Duration // what it was served
	served int
}

func steady(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func run(name string, weight float64) fair.Tenant {
	return fair.Tenant{Profile: "p", Run: name, Weight: weight}
}

// serve lets executors serve the loads for a time, and adds up what each had.
func serve(executors int, lasting time.Duration, loads ...*load) *fair.Queue[*load] {
	type busy struct {
		until time.Time
		call  *fair.Call[*load]
		cost  time.Duration
	}
	q, start := fair.NewQueue[*load](), time.Unix(1e9, 0)
	var running []busy
	waits := map[*load]int{}
	for now := start; now.Before(start.Add(lasting)); {
		for _, l := range loads {
			for now.Sub(start) >= l.from && waits[l] < l.ahead {
				q.Push(l.tenant, l, now)
				waits[l]++
			}
		}
		for len(running) < executors && q.Len() > 0 {
			c := q.First(executors, now)
			q.Take(c, now)
			q.Begin(c, now)
			waits[c.Value]--
			cost := c.Value.cost()
			running = append(running, busy{now.Add(cost), c, cost})
			for waits[c.Value] < c.Value.ahead {
				q.Push(c.Value.tenant, c.Value, now)
				waits[c.Value]++
			}
		}
		first := 0
		for i := range running {
			if running[i].until.Before(running[first].until) {
				first = i
			}
		}
		b := running[first]
		running = append(running[:first], running[first+1:]...)
		now = b.until
		q.End(b.call, now)
		b.call.Value.had += b.cost
		b.call.Value.served++
	}
	return q
}

func TestTenantsAreServedInProportionToTheirWeightsWhateverTheirCallsCost(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	noisy := func(mean time.Duration) func() time.Duration {
		return func() time.Duration { return time.Duration(float64(mean) * r.ExpFloat64()) }
	}
	for name, tt := range map[string]struct {
		executors int
		costs     [2]func() time.Duration
	}{
		"the same cost":            {1, [2]func() time.Duration{steady(time.Second), steady(time.Second)}},
		"a hundred times the cost": {1, [2]func() time.Duration{steady(10 * time.Millisecond), steady(time.Second)}},
		"on four executors":        {4, [2]func() time.Duration{steady(time.Second), steady(30 * time.Millisecond)}},
		"on sixteen executors":     {16, [2]func() time.Duration{steady(300 * time.Millisecond), steady(time.Second)}},
		"of costs that vary":       {3, [2]func() time.Duration{noisy(time.Second), noisy(100 * time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := &load{tenant: run("one", 1), cost: tt.costs[0], ahead: 50}
			three := &load{tenant: run("three", 3), cost: tt.costs[1], ahead: 50}
			serve(tt.executors, 20*time.Minute, one, three)
			assert.InEpsilon(t, 3, three.had.Seconds()/one.had.Seconds(), .05)
		})
	}
}

func TestProfilesAreTenantsOfTheirOwn(t *testing.T) {
	t.Parallel()
	a := &load{tenant: fair.Tenant{Profile: "a", Run: "r", Weight: 1}, cost: steady(time.Second), ahead: 50}
	b := &load{tenant: fair.Tenant{Profile: "b", Run: "r", Weight: 3}, cost: steady(time.Second), ahead: 50}
	serve(2, time.Hour, a, b)
	assert.InEpsilon(t, 3, b.had.Seconds()/a.had.Seconds(), .05)
}

func TestATenantThatWasIdleHasSavedUpNothing(t *testing.T) {
	t.Parallel()
	busy := &load{tenant: run("busy", 1), cost: steady(time.Second), ahead: 5}
	late := &load{tenant: run("late", 1), cost: steady(time.Second), ahead: 5, from: 50 * time.Minute}
	serve(1, time.Hour, busy, late)
	assert.InDelta(t, 5*60, late.served, 3, "half of the ten minutes since it came")
}

func TestATenantWithOneCallAtATimeHasItsShareBesideAFlood(t *testing.T) {
	t.Parallel()
	flood := &load{tenant: run("flood", 1), cost: steady(100 * time.Millisecond), ahead: 1000}
	modest := &load{tenant: run("modest", 1), cost: steady(100 * time.Millisecond), ahead: 1}
	serve(1, time.Hour, flood, modest)
	assert.InEpsilon(t, 1, modest.had.Seconds()/flood.had.Seconds(), .05)
}

func TestATenantWhoseCallsHangHasNoMoreThanItsShareOfTheExecutors(t *testing.T) {
	t.Parallel()
	hangs := &load{tenant: run("hangs", 1), cost: steady(24 * time.Hour), ahead: 100}
	fine := &load{tenant: run("fine", 1), cost: steady(10 * time.Millisecond), ahead: 100}
	serve(4, 10*time.Minute, hangs, fine)
	assert.InEpsilon(t, 20*time.Minute.Seconds(), fine.had.Seconds(), .05, "two of the four executors")
}

func TestWithinATenantCallsAreServedInTheOrderTheyCame(t *testing.T) {
	t.Parallel()
	q, now := fair.NewQueue[int](), time.Now()
	for i := range 10 {
		q.Push(run(strconv.Itoa(i%2), 1), i, now)
	}
	var got [2][]int
	for q.Len() > 0 {
		now = now.Add(time.Second)
		c := q.First(1, now)
		q.Take(c, now)
		q.Begin(c, now)
		got[c.Value%2] = append(got[c.Value%2], c.Value)
		q.End(c, now.Add(time.Second))
	}
	assert.Equal(t, [2][]int{{0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}}, got)
}

func TestACallCanBeTakenOutOfTheMiddleAndOnlyWhileItWaits(t *testing.T) {
	t.Parallel()
	q, now := fair.NewQueue[int](), time.Now()
	var all []*fair.Call[int]
	for i := range 5 {
		all = append(all, q.Push(run("r", 1), i, now))
	}
	for _, i := range []int{2, 0, 4} {
		assert.True(t, q.Remove(all[i]))
		assert.False(t, q.Remove(all[i]))
	}
	c := q.First(1, now)
	q.Take(c, now)
	assert.False(t, q.Remove(c))
	q.Begin(c, now)
	q.End(c, now)
	q.End(c, now)
	require.Equal(t, 1, q.First(1, now).Value+c.Value-3, "1 and 3 are left")
	assert.True(t, q.Remove(all[3]))
	assert.Zero(t, q.Len())
	assert.Nil(t, q.First(1, now))
	assert.Zero(t, q.Tenants(), "nothing is left of the tenant")
}

func TestTenantsAreForgottenWithTheirDebts(t *testing.T) {
	t.Parallel()
	q, now := fair.NewQueue[int](), time.Now()
	other := q.Start(run("other", 1), 0, now) // keeps the queue busy
	for i := range 20_000 {                   // each has had more than the other
		c := q.Start(run(strconv.Itoa(i), 1), i, now)
		now = now.Add(time.Microsecond)
		q.End(c, now)
	}
	assert.LessOrEqual(t, q.Tenants(), 4097, "those with the least debt are forgotten")
	q.End(other, now.Add(time.Hour))
	assert.Zero(t, q.Tenants())

	held := q.Start(run("held", 1), 0, now)
	brief := q.Start(run("brief", 1), 0, now)
	q.End(brief, now.Add(time.Second))
	assert.Equal(t, 2, q.Tenants())
	now = now.Add(time.Minute)
	next := q.Start(run("held", 1), 0, now)
	assert.Equal(t, 1, q.Tenants(), "the others have had as much")
	q.End(next, now)
	q.End(held, now)
}

func TestAWeightThatIsNoneCountsAsOneAndExtremesAreBounded(t *testing.T) {
	t.Parallel()
	for weight, ratio := range map[float64]float64{0: 1, -1: 1, math.Inf(1): 1, 2: 2} {
		one := &load{tenant: run("one", 1), cost: steady(time.Second), ahead: 3}
		odd := &load{tenant: run("odd", weight), cost: steady(time.Second), ahead: 3}
		serve(1, 10*time.Minute, one, odd)
		assert.InEpsilon(t, ratio, odd.had.Seconds()/one.had.Seconds(), .05, "weight %v", weight)
	}
	for _, weight := range []float64{math.MaxFloat64, math.SmallestNonzeroFloat64, math.NaN()} {
		q := serve(1, time.Minute, &load{tenant: run("odd", weight), cost: steady(time.Second), ahead: 3})
		assert.Equal(t, 1, q.Tenants())
	}
}

func TestANewWeightHoldsFromTheNextCallOn(t *testing.T) {
	t.Parallel()
	a := &load{tenant: run("a", 1), cost: steady(100 * time.Millisecond), ahead: 2}
	b := &load{tenant: run("b", 1), cost: steady(100 * time.Millisecond), ahead: 2}
	n := 0
	b.cost = func() time.Duration {
		if n++; n == 9000 { // a quarter of an hour
			b.tenant.Weight, b.had, a.had = 3, 0, 0
		}
		return 100 * time.Millisecond
	}
	serve(1, time.Hour, a, b)
	assert.InEpsilon(t, 3, b.had.Seconds()/a.had.Seconds(), .05)
}

// TestATenantsLagIsBoundedByTheLongestCalls holds random histories to the paper's theorem 1:
// while two tenants wait, what they have had by weight differs by no more than a call of each,
// here one for each executor.
func TestATenantsLagIsBoundedByTheLongestCalls(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		executors := 1 + r.IntN(6)
		longest := 0.0
		var loads []*load
		for i := range 2 + r.IntN(6) {
			mean := time.Duration(1+r.IntN(1000)) * time.Millisecond
			loads = append(loads, &load{tenant: run(strconv.Itoa(i), float64(1+r.IntN(5))), ahead: 1 + executors, cost: func() time.Duration {
				d := mean/2 + time.Duration(r.Int64N(int64(mean)))
				longest = max(longest, d.Seconds())
				return d
			}})
		}
		serve(executors, 3*time.Minute, loads...)
		least, most := math.Inf(1), 0.0
		for _, l := range loads {
			least, most = min(least, l.had.Seconds()/l.tenant.Weight), max(most, l.had.Seconds()/l.tenant.Weight)
		}
		require.LessOrEqual(t, most-least, 2*longest*float64(executors+1), "seed %d", seed)
	}
}

func TestATenantHearsThatAnotherProfileHasCallsOrHadAtTheCallBefore(t *testing.T) {
	t.Parallel()
	q, now := fair.NewQueue[int](), time.Now()
	heard := 0
	who := func(profile, run string) fair.Tenant {
		return fair.Tenant{Profile: profile, Run: run, Contended: func() { heard++ }}
	}
	serve := func(t fair.Tenant) *fair.Call[int] {
		c := q.Start(t, 0, now)
		now = now.Add(time.Second)
		return c
	}
	one := serve(who("a", "r"))
	two := serve(who("a", "s"))
	assert.Zero(t, heard, "two runs of one profile")
	other := serve(who("b", "r"))
	assert.Equal(t, 1, heard)
	q.End(other, now)
	three := serve(who("a", "r"))
	assert.Equal(t, 2, heard, "it has ended since")
	four := serve(who("a", "r"))
	assert.Equal(t, 2, heard, "it has not come back")
	waits := q.Push(who("b", "r"), 0, now)
	five := serve(who("a", "r"))
	assert.Equal(t, 3, heard, "one that waits")
	q.Remove(waits)
	for _, c := range []*fair.Call[int]{one, two, three, four, five} {
		q.End(c, now)
	}
	q.End(serve(who("a", "r")), now)
	assert.Equal(t, 3, heard, "nobody was there for a time")
	serve(fair.Tenant{Profile: "c"})
	q.Push(fair.Tenant{Profile: "d"}, 0, now)
	serve(fair.Tenant{Profile: "c"}) // and one that does not want to hear
}
