package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

var reward = infer.Model{Name: "reward", Path: "reward.onnx", Device: "cuda"}

// cards are the names of n devices.
func cards(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("cuda:", i))
	}
	return names
}

// spread is a model on n cards.
func (s *stage) spread(t *testing.T, n int) *pool.Model {
	t.Helper()
	m, err := s.Model(reward, pool.ModelOptions{Devices: cards(n)})
	require.NoError(t, err)
	return m
}

// on are the stats of a device.
func (s *stage) on(t *testing.T, device string) pool.DeviceStats {
	t.Helper()
	all := s.Stats().Devices
	i := slices.IndexFunc(all, func(d pool.DeviceStats) bool { return d.Device == device })
	require.GreaterOrEqual(t, i, 0, device)
	return all[i]
}

// answered is how many items of a device's first model were answered.
func (s *stage) answered(t *testing.T, device string) int {
	t.Helper()
	return int(s.on(t, device).Models[0].Total.Items) //nolint:gosec // of a test
}

// served waits until a model is loaded on n cards.
func served(t *testing.T, s *stage, m *pool.Model, n int) {
	t.Helper()
	_, err := m.Info(t.Context())
	require.NoError(t, err)
	synctest.Wait()
	for _, d := range s.Stats().Devices[:n] {
		require.True(t, d.Models[0].Loaded)
	}
}

// callers send items one after the other, so many at a time, and return how many were answered
// in the given time.
func callers(t *testing.T, m *pool.Model, n int, during time.Duration) int {
	t.Helper()
	var all sync.WaitGroup
	var done atomic.Int64
	end := time.Now().Add(during)
	for c := range n {
		all.Go(func() {
			for x := c; time.Now().Before(end); x += n {
				out, err := m.Infer(t.Context(), number(float32(x)))
				if err != nil || out[0].F32[0] != float32(2*x+1) {
					t.Errorf("item %d: %v, %v", x, out, err)
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return int(done.Load())
}

func TestAModelOnSeveralCardsIsAsFastAsTheirSum(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	rate := func(n int, slow string) (sum float64) {
		cost := func(m infer.Model, b int) time.Duration {
			d := 15*ms + time.Duration(b)*1500*time.Microsecond
			if m.Device == slow {
				d *= 2
			}
			return d
		}
		onStage(t, &fake{cost: cost}, pool.Config{}, func(t *testing.T, s *stage) {
			t.Helper()
			m := s.spread(t, n)
			served(t, s, m, n)
			callers(t, m, 64*n, 5*time.Second) // learns
			sum = float64(callers(t, m, 64*n, 20*time.Second)) / 20
			if slow != "" {
				fast, half := s.answered(t, "cuda:0"), s.answered(t, slow)
				assert.InEpsilon(t, 2, float64(fast)/float64(half), 0.1)
			}
		})
		return sum
	}
	one := rate(1, "")
	t.Logf("one card: %.0f items/s", one)
	for n, want := range map[int]float64{2: 2, 8: 8} {
		got := rate(n, "") / one
		t.Logf("%d cards: %.2f times as many", n, got)
		assert.InEpsilon(t, want, got, 0.03, n)
	}
	got := rate(2, "cuda:1") / one
	t.Logf("one card and one of half its speed: %.2f times as many", got)
	assert.InEpsilon(t, 1.5, got, 0.04)
}

func TestEachDeviceSeesTheModelUnderItsOwnNameAndStatsNameIt(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var loads []string
	load := func(_ context.Context, m infer.Model) error {
		mu.Lock()
		defer mu.Unlock()
		loads = append(loads, m.Device)
		return nil
	}
	spoil := func(m infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		if m.Device == "cuda" || m.Name != "reward" {
			return nil, errBroken
		}
		return out, nil
	}
	onStage(t, &fake{load: load, spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 3)
		served(t, s, m, 3)
		assert.ElementsMatch(t, cards(3), loads)
		for x, c := range many(t.Context(), m, 0, 9) {
			c.is(t, float32(x))
		}
		for i, d := range s.Stats().Devices {
			assert.Equal(t, cards(3)[i], d.Device)
			assert.Equal(t, d.Device, d.Models[0].Model.Device)
			assert.EqualValues(t, 3, d.Models[0].Total.Items, "in turn")
		}
	})
}

func TestTheDevicesOfAModelAreEachNamedOnce(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		for _, bad := range [][]string{{"cuda:0", "cuda:0"}, {"cuda:0", ""}} {
			_, err := s.Model(reward, pool.ModelOptions{Devices: bad})
			require.ErrorIs(t, err, infer.ErrModel)
		}
		one := s.spread(t, 2)
		assert.Same(t, one, s.spread(t, 2))
		_, err := s.Model(reward, pool.ModelOptions{Devices: cards(3)})
		require.ErrorIs(t, err, infer.ErrModel, "equal models with different options")
	})
}

func TestVisitsAndConcurrencyCountAllDevices(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 3)
		assert.Equal(t, 3*64, m.Concurrency())
		assert.Equal(t, "1 session on each of cuda:0, cuda:1, cuda:2 with batches of up to 32, while as many are prepared", m.ConcurrencyReason())
		served(t, s, m, 3)
		var leaves []func()
		for range 6 { // two for each slot, before anybody knows what a batch costs
			leave, err := m.Enter(t.Context())
			require.NoError(t, err)
			leaves = append(leaves, leave)
		}
		entered := make(chan func())
		go func() {
			leave, err := m.Enter(t.Context())
			assert.NoError(t, err)
			entered <- leave
		}()
		synctest.Wait()
		for _, d := range s.Stats().Devices {
			assert.Equal(t, 2, d.Inside)
			assert.Equal(t, 1, d.AtIngress, "it waits at every ingress")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Enter(ctx)
		require.ErrorIs(t, err, infer.ErrTimeout)
		require.ErrorIs(t, err, infer.ErrWaiting)
		leaves[4]()
		(<-entered)()
		for i, leave := range leaves {
			if i != 4 {
				leave()
			}
		}
		for _, d := range s.Stats().Devices {
			assert.Zero(t, d.Inside+d.AtIngress)
		}
	})
}

func TestDevicesOfDifferentKindsAreEachNamedInTheReason(t *testing.T) {
	t.Parallel()
	f := pool.Fleet{{Device: "cuda:0", Slots: 1, MaxBatch: 8}, {Device: "cuda:1", Slots: 1, MaxBatch: 4}}
	assert.Equal(t, 24, f.Concurrency())
	assert.Equal(t, "1 session on cuda:0 with batches of up to 8, while as many are prepared; 1 session on cuda:1 with batches of up to 4, while as many are prepared", f.ConcurrencyReason())
}

func TestADeviceThatCannotServeIsLeftOutWhileAnotherDoesAndComesBack(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"open", "load"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			broken.Store(true)
			fail := func(device string) error {
				if broken.Load() && device == "cuda:1" {
					return fmt.Errorf("%w: %w", infer.ErrFault, errBroken)
				}
				return nil
			}
			f := &fake{}
			if where == "open" {
				f.open = func(_ context.Context, device string) error { return fail(device) }
			} else {
				f.load = func(_ context.Context, m infer.Model) error { return fail(m.Device) }
			}
			onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				m := s.spread(t, 2)
				for x, c := range many(t.Context(), m, 0, 10) {
					c.is(t, float32(x))
				}
				assert.Equal(t, 10, s.answered(t, "cuda:0"))
				broken.Store(false)
				time.Sleep(10 * time.Second)
				begin(t.Context(), m, number(1)).is(t, 1) // has it tried again
				for x, c := range many(t.Context(), m, 0, 10) {
					c.is(t, float32(x))
				}
				assert.GreaterOrEqual(t, s.answered(t, "cuda:1"), 2)
			})
		})
	}
}

func TestAModelThatNoDeviceServesFailsWithWhatMayPass(t *testing.T) {
	t.Parallel()
	load := func(_ context.Context, m infer.Model) error {
		if m.Device == "cuda:0" {
			return infer.Marked(infer.ErrMissing, fmt.Errorf("%w: no provider", infer.ErrUnavailable))
		}
		return fmt.Errorf("%w: %w", infer.ErrCrashed, errBroken)
	}
	onStage(t, &fake{load: load}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		for range 2 {
			c := begin(t.Context(), s.spread(t, 2), number(1))
			c.fails(t, infer.ErrCrashed)
			require.ErrorIs(t, c.err, infer.ErrLoad)
			require.NotErrorIs(t, c.err, infer.ErrMissing)
			require.ErrorContains(t, c.err, "none of 2 devices")
		}
		assert.Equal(t, 2, s.fake.loads)
	})
}

func TestALoadThatHangsOnOneDeviceKeepsNobodyFromAnother(t *testing.T) {
	t.Parallel()
	load := func(ctx context.Context, m infer.Model) error {
		if m.Device == "cuda:0" {
			time.Sleep(time.Hour) // its context is ignored
		}
		return nil
	}
	onStage(t, &fake{load: load}, pool.Config{LoadTimeout: time.Second}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 2)
		c := begin(t.Context(), m, number(1))
		c.is(t, 1)
		assert.Equal(t, 10*ms, c.took)
		time.Sleep(time.Hour)
	})
}

func TestWhatADeviceFailsByItsOwnFaultIsRunOnAnotherAndTheDeviceRests(t *testing.T) {
	t.Parallel()
	for _, class := range []error{infer.ErrUnavailable, infer.Marked(infer.ErrHost, infer.ErrCrashed), infer.Marked(infer.ErrHost, infer.ErrFault)} {
		t.Run(class.Error(), func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			spoil := func(m infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
				if broken.Load() && m.Device == "cuda:1" {
					return nil, fmt.Errorf("quarantine: %w", class)
				}
				return out, nil
			}
			onStage(t, &fake{cost: linear(100*ms, 0), spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				m := s.spread(t, 2)
				served(t, s, m, 2)
				for x, c := range many(t.Context(), m, 0, 20) {
					c.is(t, float32(x))
				}
				broken.Store(true)
				before, retries := s.answered(t, "cuda:1"), s.total().Retries
				for x, c := range many(t.Context(), m, 0, 40) {
					c.is(t, float32(x))
				}
				assert.Equal(t, before, s.answered(t, "cuda:1"))
				got := s.on(t, "cuda:1").Models[0].Total
				assert.GreaterOrEqual(t, got.Moved, uint64(10), "what ran there, and what waited there")
				assert.EqualValues(t, 1, got.Faults, "nothing else was sent there")
				assert.Equal(t, retries, s.total().Retries)
				broken.Store(false)
				time.Sleep(time.Second)
				for x, c := range many(t.Context(), m, 0, 10) {
					c.is(t, float32(x))
				}
				assert.Greater(t, s.answered(t, "cuda:1"), before, "it is back")
			})
		})
	}
}

func TestAnItemThatEveryDeviceFailsIsTriedOnceOnEach(t *testing.T) {
	t.Parallel()
	spoil := func(m infer.Model, _ infer.Batch, _ []infer.Tensor) ([]infer.Tensor, error) {
		return nil, fmt.Errorf("%w: %s is gone", infer.ErrUnavailable, m.Device)
	}
	onStage(t, &fake{spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 3)
		served(t, s, m, 3)
		c := begin(t.Context(), m, number(1))
		c.fails(t, infer.ErrUnavailable)
		require.ErrorContains(t, c.err, "is gone")
		assert.Len(t, s.fake.ran(), 3)
		begin(t.Context(), m, number(2)).fails(t, infer.ErrUnavailable)
		assert.Len(t, s.fake.ran(), 6, "where all rest they are asked all the same")
	})
}

func TestWhatWaitsMovesToADeviceThatJoins(t *testing.T) {
	t.Parallel()
	load := func(_ context.Context, m infer.Model) error {
		if m.Device == "cuda:1" {
			time.Sleep(1100 * ms)
		}
		return nil
	}
	onStage(t, &fake{cost: linear(500*ms, 0), load: load}, pool.Config{MaxBatch: 1}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 2)
		start := time.Now()
		for x, c := range many(t.Context(), m, 0, 10) {
			c.is(t, float32(x))
		}
		assert.Equal(t, 3100*ms, time.Since(start), "the first has three when the second comes, and they share seven")
		assert.Equal(t, 4, s.answered(t, "cuda:1"))
	})
}

func TestAnItemThatFailsByItselfFailsOnItsDevice(t *testing.T) {
	t.Parallel()
	spoil := func(_ infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		if slices.Contains(b.Names, "3") {
			return nil, infer.ErrInput
		}
		return out, nil
	}
	onStage(t, &fake{spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 2)
		served(t, s, m, 2)
		for x, c := range many(t.Context(), m, 0, 10) {
			if x == 3 {
				c.fails(t, infer.ErrInput)
				require.ErrorContains(t, c.err, "on cuda:")
				continue
			}
			c.is(t, float32(x))
		}
		for _, d := range s.Stats().Devices {
			assert.Zero(t, d.Models[0].Total.Moved)
		}
	})
}

func TestAHangingDeviceGetsNoMoreItemsThanItHas(t *testing.T) {
	t.Parallel()
	var hung atomic.Bool
	cost := func(m infer.Model, _ int) time.Duration {
		if m.Device == "cuda:0" && hung.Load() {
			return time.Minute
		}
		return 100 * ms
	}
	onStage(t, &fake{cost: cost}, pool.Config{BatchTimeout: time.Hour}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 2)
		served(t, s, m, 2)
		for range 4 {
			for _, c := range many(t.Context(), m, 0, 8) {
				<-c.done
			}
		}
		hung.Store(true)
		var held []*call
		for range 100 { // one by one: the other card always ends them sooner
			c := begin(t.Context(), m, number(1))
			if time.Sleep(300 * ms); c.pending() {
				held = append(held, c)
			}
		}
		assert.Len(t, held, 1)
	})
}

func TestADeviceThatWasSlowOnceIsTriedAgain(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	slow.Store(true)
	cost := func(m infer.Model, _ int) time.Duration {
		if m.Device == "cuda:1" && slow.Load() {
			return time.Minute
		}
		return 10 * ms
	}
	onStage(t, &fake{cost: cost}, pool.Config{BatchTimeout: time.Hour}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 2)
		served(t, s, m, 2)
		for s.answered(t, "cuda:1") < 5 {
			for _, c := range many(t.Context(), m, 0, 2) {
				<-c.done
			}
		}
		slow.Store(false)
		before := s.answered(t, "cuda:1")
		for x := range 1000 { // one by one: nothing else would ever send one there
			begin(t.Context(), m, number(float32(x))).is(t, float32(x))
		}
		assert.Greater(t, s.answered(t, "cuda:1"), before+100)
	})
}

func TestClosingAnswersWhatWaitsOnEveryDevice(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(time.Second, 0)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 2)
		served(t, s, m, 2)
		calls := many(t.Context(), m, 0, 20)
		require.NoError(t, s.Close(t.Context()))
		refused := 0
		for _, c := range calls {
			if <-c.done; errors.Is(c.err, infer.ErrUnavailable) {
				refused++
			}
		}
		assert.Equal(t, 18, refused, "two run")
		_, err := m.Enter(t.Context())
		require.ErrorIs(t, err, infer.ErrUnavailable)
	})
}

func TestADeviceThatRestsServesWhereTheOthersAreStillLoading(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	spoil := func(m infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		if m.Device == "cuda:0" && runs.Add(1) == 1 {
			return nil, infer.ErrUnavailable
		}
		return out, nil
	}
	load := func(_ context.Context, m infer.Model) error {
		if m.Device == "cuda:1" {
			time.Sleep(time.Minute)
		}
		return nil
	}
	onStage(t, &fake{load: load, spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 2)
		first := begin(t.Context(), m, number(1))
		time.Sleep(20 * ms)
		second := begin(t.Context(), m, number(2))
		second.is(t, 2)
		assert.Equal(t, 10*ms, second.took)
		first.is(t, 1)
		assert.Equal(t, time.Minute+10*ms, first.took, "it waits for the device that has not failed it")
	})
}
