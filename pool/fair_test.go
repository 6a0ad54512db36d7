package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
)

// tenant is whom a caller of the pool works for.
func tenant(ctx context.Context, profile, run string, weight float64) context.Context {
	return rewards.WithTenant(ctx, rewards.Tenant{Profile: profile, Run: run, Weight: weight})
}

// flood has callers ask a model until ctx ends, and counts the answers.
func flood(ctx context.Context, all *sync.WaitGroup, m *pool.Model, callers int, req infer.Request) *atomic.Int64 {
	var n atomic.Int64
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := m.Infer(ctx, req); err == nil {
					n.Add(1)
				}
			}
		})
	}
	return &n
}

func TestADeviceServesTwoRunsOfAProfileByWeightWhetherTheyShareBatchesOrNot(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for name, tt := range map[string]struct {
		cost  func(infer.Model, int) time.Duration
		slots int
		other []int // the shape of the second run's items
	}{
		"one by one":               {linear(0, 10*ms), 1, nil},
		"in common batches":        {linear(20*ms, ms), 1, nil},
		"in batches of their own":  {linear(20*ms, ms), 1, []int{2}},
		"on three slots":           {linear(0, 10*ms), 3, []int{2}},
		"on four, in full batches": {linear(20*ms, ms), 4, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, &fake{slots: tt.slots, cost: tt.cost}, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				m := s.model(t, ocr)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var all sync.WaitGroup
				one := flood(tenant(ctx, "p", "one", 1), &all, m, 150, number(1))
				three := flood(tenant(ctx, "p", "three", 3), &all, m, 150, number(2, tt.other...))
				all.Wait()
				assert.InEpsilon(t, 3, float64(three.Load())/float64(one.Load()), .05)
				assert.Zero(t, s.Stats().Devices[0].Queued)
			})
		})
	}
}

func TestADeviceServesTwoProfilesByWeightWhateverTheirModelsCost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	cost := func(m infer.Model, b int) time.Duration {
		if m == judge {
			return 300*ms + 40*ms*time.Duration(b)
		}
		return 10 * ms * time.Duration(b)
	}
	for _, slots := range []int{1, 2, 4} {
		onStage(t, &fake{slots: slots, cost: cost}, pool.Config{}, func(t *testing.T, s *stage) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			var all sync.WaitGroup
			flood(tenant(ctx, "reads", "r", 1), &all, s.model(t, ocr), 40, number(1))
			flood(tenant(ctx, "judges", "r", 3), &all, s.model(t, judge), 60, number(2))
			all.Wait()
			busy := map[string]time.Duration{}
			for _, m := range s.Stats().Devices[0].Models {
				busy[m.Model.Name] = m.Total.Busy
			}
			assert.InEpsilon(t, 3, busy["judge"].Seconds()/busy["ocr"].Seconds(), .05, "%d slots: %v", slots, busy)
		})
	}
}

func TestARunThatFloodsOrLeavesOrHangsTakesNoMoreThanItsShareOfADevice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	f := &fake{slots: 4, cost: func(m infer.Model, _ int) time.Duration {
		if m == judge {
			return 10 * time.Minute // it hangs, until its batch's time is over
		}
		return 10 * ms
	}}
	onStage(t, f, pool.Config{MaxBatch: 1}, func(t *testing.T, s *stage) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		var all sync.WaitGroup
		m := s.model(t, ocr)
		fine := flood(tenant(ctx, "p", "fine", 1), &all, m, 8, number(1))
		flood(tenant(ctx, "p", "floods", 1), &all, m, 1000, number(3))
		for range 30 {
			all.Go(func() {
				for ctx := tenant(ctx, "p", "leaves", 1); ctx.Err() == nil; {
					brief, leave := context.WithTimeout(ctx, ms)
					_, _ = m.Infer(brief, number(4))
					leave()
				}
			})
		}
		time.Sleep(2 * time.Second)
		flood(tenant(ctx, "p", "hangs", 1), &all, s.model(t, judge), 100, number(2))
		before := fine.Load()
		all.Wait()
		// What hangs has one slot of four, or two where it came when there were three tenants. The
		// others share what is left.
		assert.Greater(t, fine.Load()-before, int64(.9*5*100*2/3), "in 5 s")
		d := s.Stats().Devices[0]
		assert.Zero(t, d.Queued+d.QueuedBytes+d.Waiting+d.AtIngress+d.Inside)
	})
}

func TestAQueueThatAFloodHasFilledHasRoomForOthersInTheirTurn(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{slots: 1, cost: linear(0, 10*ms)}, pool.Config{QueueItems: 10, MaxBatch: 1}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		warm(t, m)
		ctx, leave := context.WithCancel(tenant(t.Context(), "p", "floods", 1))
		var all sync.WaitGroup
		flood(ctx, &all, m, 500, number(1))
		synctest.Wait()
		start := time.Now()
		_, err := m.Infer(tenant(t.Context(), "p", "small", 1), number(2))
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(start), 30*ms, "what runs, what there is room for, and its own")
		leave()
		all.Wait()
	})
}

// visitors have callers make items ready for a model, which takes a time, ask it and leave.
func visitors(ctx context.Context, all *sync.WaitGroup, m *pool.Model, callers int, ready time.Duration, inside, most *atomic.Int64) *atomic.Int64 {
	var n atomic.Int64
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				leave, err := m.Enter(ctx)
				if err != nil {
					continue
				}
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(ready)
				if _, err := m.Infer(ctx, number(1)); err == nil {
					n.Add(1)
				}
				inside.Add(-1)
				leave()
				leave()
			}
		})
	}
	return &n
}

// onCard is a model on a card.
func onCard(m infer.Model) infer.Model {
	m.Device = "cuda:0"
	return m
}

func TestNoMoreIsMadeReadyForACardThanFillsTwoBatchesForEachSlotAndBatchesStayAsLarge(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cost  func(infer.Model, int) time.Duration
		slots int
		batch int // the size that pays
	}{
		"batches of one":    {linear(0, 100*ms), 3, 1},
		"batches of twenty": {linear(20*ms, 10*ms), 2, 20},
		"as large as can":   {linear(100*ms, ms), 1, 32},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, &fake{slots: tt.slots, cost: tt.cost}, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				m := s.model(t, onCard(ocr))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				var all sync.WaitGroup
				var inside, most atomic.Int64
				n := visitors(ctx, &all, m, 150, 5*ms, &inside, &most)
				all.Wait()
				assert.LessOrEqual(t, most.Load(), int64(2*tt.slots*min(2*tt.batch, 32)), "twice as many while a larger batch is tried")
				ideal := float64(tt.slots) * 120 / (tt.cost(onCard(ocr), tt.batch).Seconds() / float64(tt.batch))
				assert.InEpsilon(t, ideal, float64(n.Load()), .08, "the slots were busy with batches of that size")
			})
		})
	}
}

func TestTenantsTakeTurnsAtMakingReady(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{slots: 2, cost: linear(20*ms, 5*ms)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, onCard(ocr))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		var inside, most atomic.Int64
		one := visitors(tenant(ctx, "p", "one", 1), &all, m, 150, ms, &inside, &most)
		three := visitors(tenant(ctx, "p", "three", 3), &all, m, 120, 20*ms, &inside, &most)
		all.Wait()
		assert.InEpsilon(t, 3, float64(three.Load())/float64(one.Load()), .05)
	})
}

// A sample asks the models of a reader one after the other and computes between. Were more let
// in than there are slots, the lighter profile's would run in these gaps, and two of each
// profile in a worker were too few to keep the weights.
func TestOnTheCPUAsManyVisitAsThereAreSlotsAndTwoOfEachProfileKeepTheWeights(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{slots: 1, cost: linear(10*ms, 10*ms)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		var inside atomic.Int64
		read := func(profile string, weight float64) *atomic.Int64 {
			var n atomic.Int64
			ctx := tenant(ctx, profile, "r", weight)
			for range 2 {
				all.Go(func() {
					for ctx.Err() == nil {
						leave, err := m.Enter(ctx)
						if err != nil {
							continue
						}
						assert.Equal(t, int64(1), inside.Add(1))
						for range 3 {
							time.Sleep(5 * ms)
							_, err = m.Infer(ctx, number(1))
						}
						inside.Add(-1)
						if leave(); err == nil {
							n.Add(1)
						}
						time.Sleep(10 * ms) // until the next one is there
					}
				})
			}
			return &n
		}
		one, three := read("light", 1), read("heavy", 3)
		all.Wait()
		assert.InEpsilon(t, 3, float64(three.Load())/float64(one.Load()), .05)
	})
}

func TestATenantsSlowModelDoesNotKeepAnotherFromMakingReady(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	cost := func(m infer.Model, b int) time.Duration {
		if m == judge {
			return time.Second * time.Duration(b)
		}
		return 10 * ms * time.Duration(b)
	}
	onStage(t, &fake{slots: 2, cost: cost}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var all sync.WaitGroup
		var inside, most atomic.Int64
		slow := visitors(tenant(ctx, "judges", "r", 1), &all, s.model(t, judge), 100, ms, &inside, &most)
		quick := visitors(tenant(ctx, "reads", "r", 1), &all, s.model(t, ocr), 100, ms, &inside, &most)
		all.Wait()
		assert.InEpsilon(t, 1, float64(quick.Load())*10/(float64(slow.Load())*1000), .1, "both have a slot's time: %d and %d", quick.Load(), slow.Load())
	})
}

func TestAVisitEndsWithItsCallerWithThePoolAndWithAModelThatDoesNotLoad(t *testing.T) {
	t.Parallel()
	f := &fake{slots: 1, load: func(_ context.Context, m infer.Model) error {
		if m == judge {
			return fmt.Errorf("%w: not there", infer.ErrModel)
		}
		return nil
	}}
	onStage(t, f, pool.Config{MaxBatch: 1}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, onCard(ocr))
		_, err := s.model(t, judge).Enter(t.Context())
		require.ErrorIs(t, err, infer.ErrModel)
		first, err := m.Enter(t.Context())
		require.NoError(t, err)
		second, err := m.Enter(t.Context())
		require.NoError(t, err)
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.Enter(brief)
		require.ErrorIs(t, err, infer.ErrTimeout)
		require.ErrorIs(t, err, infer.ErrWaiting)
		refused := make(chan error, 1)
		go func() {
			_, err := m.Enter(t.Context())
			refused <- err
		}()
		synctest.Wait()
		first()
		require.NoError(t, <-refused)
		go func() {
			_, err := m.Enter(t.Context())
			refused <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close(t.Context()))
		require.ErrorIs(t, <-refused, infer.ErrUnavailable)
		second()
		_, err = m.Enter(t.Context())
		require.ErrorIs(t, err, infer.ErrUnavailable)
	})
}

// TestTenantsUnderEveryFaultAreEachAnsweredOnce is the storm of random_test.go with tenants,
// visits and floods.
func TestTenantsUnderEveryFaultAreEachAnsweredOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			h := &hostile{rand: rand.New(rand.NewPCG(seed, 3)), seen: make(map[int]bool), slots: 1 + int(seed)%4}
			p, err := pool.New(pool.Config{MaxBatch: 16, QueueItems: 20 + r.IntN(100), QueueBytes: 400 + r.IntN(4000)}, h)
			require.NoError(t, err)
			var models []*pool.Model
			for _, name := range []string{"det", "rec"} {
				m, err := p.Model(infer.Model{Name: name, Path: name, Device: "cpu"}, pool.ModelOptions{})
				require.NoError(t, err)
				models = append(models, m)
				for err = errBroken; err != nil; _, err = m.Info(t.Context()) { // until it loads
					time.Sleep(time.Second)
				}
			}
			const items = 1500
			var all sync.WaitGroup
			var entered atomic.Int64
			for x := 1; x <= items; x++ {
				leave := time.Duration(0)
				if r.IntN(4) == 0 {
					leave = time.Duration(1 + r.IntN(int(200*time.Millisecond)))
				}
				m, shape, visit := models[r.IntN(2)], 1+r.IntN(3), r.IntN(3) == 0
				who := rewards.Tenant{Profile: fmt.Sprint(r.IntN(2)), Run: fmt.Sprint(r.IntN(4)), Weight: float64(1 + r.IntN(3))}
				all.Go(func() { called(t, m, x, shape, leave, who, visit, &entered) })
				if r.IntN(40) == 0 {
					time.Sleep(time.Duration(r.IntN(int(200 * time.Millisecond))))
				}
			}
			all.Wait()
			var sum int64
			for _, d := range p.Stats().Devices {
				require.Zero(t, d.Queued+d.QueuedBytes+d.Waiting+d.Running+d.AtIngress+d.Inside)
				for _, m := range d.Models {
					sum += int64(m.Total.Items + m.Total.Failed + m.Total.Expired + m.Total.Left)
				}
			}
			assert.Equal(t, entered.Load(), sum, "every item that came is counted once")
			assert.Zero(t, h.torn.Load())
			require.NoError(t, p.Close(t.Context()))
		})
	}
}

// called is caller with a tenant and perhaps a visit.
func called(t *testing.T, m *pool.Model, x, shape int, leave time.Duration, who rewards.Tenant, visit bool, entered *atomic.Int64) {
	t.Helper()
	ctx := rewards.WithTenant(t.Context(), who)
	if leave > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, leave)
		defer cancel()
	}
	if visit {
		out, err := m.Enter(ctx)
		if err != nil {
			assert.ErrorIs(t, err, infer.ErrWaiting)
			return
		}
		defer out()
	}
	if ctx.Err() != nil {
		return // it would not be queued
	}
	entered.Add(1)
	req := number(float32(x), shape)
	out, err := m.Infer(ctx, req)
	req.Inputs[0].F32[0] = -1
	switch want := foretold(x); {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()): // it left
	case !errors.Is(err, want):
		t.Errorf("item %d: got %v, want %v", x, err, want)
	case want == nil:
		assert.Equal(t, []infer.Tensor{infer.Floats("y", []float32{2*float32(x) + 1}, []int{}...)}, out)
	}
}
