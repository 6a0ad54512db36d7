package pool

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// simulation feeds a policy with the steps of an RL run: generators that give micro
// batches of pictures, slots that take a + c·b per batch, all in fake time.
type simulation struct {
	generators, micro, total int
	period, spread, jitter   float64 // seconds, share, seconds
	slots, top               int
	a, c, noise              float64
	cards                    int // with so many slots each; 0: one
}

// figures are what a step showed: seconds from the last arrival to the last answer,
// and the mean of an item's.
type figures struct {
	tail, mean, batch float64
}

func (s simulation) arrivals(r *rand.Rand) []float64 {
	next := make([]float64, s.generators)
	draw := func() float64 {
		return s.period * math.Exp(s.spread*r.NormFloat64()-s.spread*s.spread/2)
	}
	for i := range next {
		next[i] = draw()
	}
	var out []float64
	for len(out) < s.total {
		k := slices.Index(next, slices.Min(next))
		for range s.micro {
			out = append(out, next[k]+r.Float64()*s.jitter)
		}
		next[k] += draw()
	}
	slices.Sort(out)
	return out
}

// run simulates 33 steps and returns the means over all but the first three, in which
// the policy learns what a batch costs.
func (s simulation) run(t *testing.T) figures {
	t.Helper()
	cfg := Config{}.WithDefaults()
	cfg.MaxBatch = s.top
	r := rand.New(rand.NewPCG(7, 7))
	cards := make([]*simCard, max(1, s.cards))
	for i := range cards {
		cards[i] = &simCard{policy: newPolicy(cfg, "cuda:0"), acct: &account{}}
		cards[i].policy.slots = s.slots
	}
	base := time.Unix(1e9, 0)
	at := func(x float64) time.Time { return base.Add(time.Duration(x * 1e9)) }
	var sum figures
	start, counted := 0.0, 0.0
	for step := range 33 {
		arr := s.arrivals(r)
		for i := range arr {
			arr[i] += start
		}
		f := s.step(t, cards, arr, at, r)
		start = arr[len(arr)-1] + f.tail + 1
		if step >= 3 {
			counted++
			sum.tail, sum.mean, sum.batch = sum.tail+f.tail, sum.mean+f.mean, sum.batch+f.batch
		}
	}
	return figures{sum.tail / counted, sum.mean / counted, sum.batch / counted}
}

type busy struct {
	until float64
	took  float64
	batch *batch
}

// simCard is one device with its policy.
type simCard struct {
	policy *policy
	acct   *account
	slots  []busy
	turn   int
}

// choose is the card that an item of the model is submitted to.
func choose(cards []*simCard, now time.Time) *simCard {
	all := make([]forecast, len(cards))
	for i, c := range cards {
		all[i] = c.policy.forecast(c.acct, "k", now)
	}
	cards[0].turn++
	return cards[soonest(all, cards[0].turn)]
}

// end takes in the batches that are over, and returns them.
func (c *simCard) end(now float64, at func(float64) time.Time) (over []busy) {
	for len(c.slots) > 0 && c.slots[0].until <= now {
		b := c.slots[0]
		c.slots = c.slots[1:]
		n := len(b.batch.items)
		c.policy.ended(b.batch, outcome{rows: make([][]infer.Tensor, n), faults: make([]error, n), took: time.Duration(b.took * 1e9)}, at(now))
		over = append(over, b)
	}
	return over
}

// begin starts what the policy says, and returns how many batches those are and when to ask again.
func (c *simCard) begin(s simulation, now float64, at func(float64) time.Time, r *rand.Rand) (begun float64, again float64) {
	for len(c.slots) < s.slots {
		b, wait := c.policy.next(at(now), s.slots-len(c.slots))
		if b == nil {
			if wait > 0 {
				return begun, now + wait.Seconds() + 1e-9
			}
			break
		}
		took := (s.a + s.c*float64(len(b.items))) * math.Exp(s.noise*r.NormFloat64())
		c.slots = append(c.slots, busy{now + took, took, b})
		slices.SortFunc(c.slots, func(a, b busy) int { return cmp.Compare(a.until, b.until) })
		begun++
	}
	return begun, math.Inf(1)
}

func (s simulation) step(t *testing.T, cards []*simCard, arr []float64, at func(float64) time.Time, r *rand.Rand) figures {
	t.Helper()
	var f figures
	came := make(map[*item]float64)
	now, seen, done, batches := arr[0], 0, 0, 0.0
	for done < len(arr) {
		for seen < len(arr) && arr[seen] <= now {
			c := choose(cards, at(now))
			it := &item{account: c.acct, key: "k", done: make(chan struct{})}
			came[it] = arr[seen]
			c.policy.add(it, at(now))
			if seen++; seen == len(arr) {
				for _, c := range cards {
					c.policy.flush(at(now))
				}
			} else if len(cards) > 1 { // as a device does, at once
				n, _ := c.begin(s, now, at, r)
				batches += n
			}
		}
		next := math.Inf(1)
		if seen < len(arr) {
			next = arr[seen]
		}
		for _, c := range cards {
			for _, b := range c.end(now, at) {
				for _, it := range b.batch.items {
					f.mean += b.until - came[it]
				}
				done += len(b.batch.items)
				f.tail = b.until - arr[len(arr)-1]
			}
			n, again := c.begin(s, now, at, r)
			batches += n
			next = min(next, again)
			if len(c.slots) > 0 {
				next = min(next, c.slots[0].until)
			}
		}
		now = next
		require.False(t, math.IsInf(now, 1) && done < len(arr), "the policy forgot an item")
	}
	f.mean /= float64(len(arr))
	f.batch = float64(len(arr)) / batches
	return f
}

// TestCardsThatEachHaveAQueueEndAStepNearlyAsSoonAsIfTheyHadOne compares cards, of which each item gets
// the one where it is expected to end first, with one device of as many slots. It does so twice:
// equal steps are dealt with equally.
func TestCardsThatEachHaveAQueueEndAStepNearlyAsSoonAsIfTheyHadOne(t *testing.T) {
	t.Parallel()
	for name, sim := range map[string]simulation{
		"ViT on two GPUs":    {32, 4, 512, 6, .1, .003, 2, 32, .015, .0015, .1, 0},
		"judge on four GPUs": {32, 4, 512, 6, .1, .003, 4, 16, .150, .012, .1, 0},
		"judge on eight":     {32, 4, 512, 6, .1, .003, 8, 16, .150, .012, .1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := sim.run(t)
			sim.cards, sim.slots = sim.slots, 1
			each := sim.run(t)
			t.Logf("tail %.1f ms and %.1f ms, mean %.1f ms and %.1f ms", one.tail*1e3, each.tail*1e3, one.mean*1e3, each.mean*1e3)
			assert.LessOrEqual(t, each.tail, 1.25*one.tail, "tail")
			assert.LessOrEqual(t, each.mean, 1.25*one.mean, "mean")
			assert.InEpsilon(t, each.tail, sim.run(t).tail, 1e-9)
		})
	}
}

// TestAStepEndsAsSoonAsWithTheBestFixedRuleForItsModel holds the policy to what a
// simulation of the same steps gave for fixed rules that know the costs and are
// tuned by hand (no wait, windows of 5 to 500 ms, with and without a hint of the
// step's end): tail and mean of the best of them, with a tenth of margin. Here the
// costs have to be learned, under a noise of 10 % that the fixed rules did not have.
func TestAStepEndsAsSoonAsWithTheBestFixedRuleForItsModel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sim        simulation
		tail, mean float64 // milliseconds
	}{
		"ViT on two GPUs":        {simulation{32, 4, 512, 6, .1, .003, 2, 32, .015, .0015, .1, 0}, 18.5, 24},
		"judge on four GPUs":     {simulation{32, 4, 512, 6, .1, .003, 4, 16, .150, .012, .1, 0}, 187, 217},
		"OCR on two cores":       {simulation{8, 2, 96, 8, .1, .003, 2, 16, .002, .090, .1, 0}, 101, 100},
		"judge, overloaded":      {simulation{32, 4, 512, 6, .1, .003, 1, 16, .150, .012, .1, 0}, 255, 545},
		"generators in step":     {simulation{32, 4, 512, 6, .005, .02, 4, 32, .015, .0015, .1, 0}, 18, 30},
		"costs of the same size": {simulation{8, 8, 512, 6, .1, .003, 4, 32, .02, .02, .1, 0}, 75, 80},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tt.sim.run(t)
			t.Logf("tail %.1f ms, mean %.1f ms, %.1f items a batch", f.tail*1e3, f.mean*1e3, f.batch)
			assert.LessOrEqual(t, f.tail*1e3, 1.1*tt.tail, "tail")
			assert.LessOrEqual(t, f.mean*1e3, 1.1*tt.mean, "mean")
		})
	}
}
