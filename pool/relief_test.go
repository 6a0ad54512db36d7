package pool_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

// starved is a device that has no memory for runs before some condition holds.
func starved(enough func(f *fake, m infer.Model, b infer.Batch) bool) *fake {
	f := &fake{}
	f.spoil = func(m infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		if !enough(f, m, b) {
			return nil, fmt.Errorf("%w: arena", infer.ErrMemory)
		}
		return out, nil
	}
	return f
}

func (f *fake) count(n *int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *n
}

func TestAnItemThatLacksMemoryOnceRunsAgain(t *testing.T) {
	t.Parallel()
	f := starved(func(f *fake, _ infer.Model, _ infer.Batch) bool { return len(f.ran()) > 1 })
	onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		c := begin(t.Context(), s.model(t, ocr), number(1))
		c.is(t, 1)
		assert.Equal(t, 20*ms, c.took)
		assert.Zero(t, f.restarts+f.unloads)
		got := s.Stats().Devices[0].Models[0]
		assert.EqualValues(t, 1, got.Total.Faults)
		assert.EqualValues(t, 1, got.Total.Retries)
		assert.Equal(t, 20*ms, got.Total.Busy)
		assert.Equal(t, 10*ms, got.BatchQueues[0].C, "its cost is that of the run which went well")
	})
}

func TestAnItemThatLacksMemoryRunsAgainWithoutTheModelsThatNobodyNeeds(t *testing.T) {
	t.Parallel()
	f := starved(func(f *fake, m infer.Model, _ infer.Batch) bool { return m != ocr || f.count(&f.unloads) > 0 })
	onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		other := s.model(t, judge)
		begin(t.Context(), other, number(1)).is(t, 1)
		c := begin(t.Context(), s.model(t, ocr), number(1))
		c.is(t, 1)
		assert.Equal(t, 1000*ms, c.took, "the other model had been loaded a moment before: it stays for a second")
		d := s.Stats().Devices[0]
		assert.EqualValues(t, 1, d.Evictions)
		assert.Zero(t, d.Restarts)
		begin(t.Context(), other, number(2)).is(t, 2)
		assert.Equal(t, 3, f.loads, "it is loaded again")
	})
}

func TestAnItemThatStillLacksMemoryRunsAgainInANewProcess(t *testing.T) {
	t.Parallel()
	f := starved(func(f *fake, _ infer.Model, _ infer.Batch) bool { return f.count(&f.restarts) > 0 })
	onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		for x, c := range many(t.Context(), s.model(t, ocr), 0, 4) {
			c.is(t, float32(x))
		}
		assert.EqualValues(t, 1, s.Stats().Devices[0].Restarts)
		assert.Equal(t, 1, f.restarts)
	})
}

func TestAnItemForWhichThereIsNeverMemoryFailsByNameAfterOneRestart(t *testing.T) {
	t.Parallel()
	f := starved(func(*fake, infer.Model, infer.Batch) bool { return false })
	onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		c := begin(t.Context(), m, number(1))
		c.fails(t, infer.ErrMemory)
		require.NotErrorIs(t, c.err, infer.ErrHost, "it had the device to itself")
		require.ErrorContains(t, c.err, `item "1"`)
		require.ErrorContains(t, c.err, "the item failed 3 times in a batch of its own, even after 0 other models were unloaded and the device's processes were restarted")
		assert.Len(t, f.ran(), 3)
		assert.Equal(t, 1, f.restarts)

		time.Sleep(time.Hour)
		begin(t.Context(), m, number(1)).fails(t, infer.ErrMemory)
		assert.Equal(t, 1, f.restarts, "the same item is remembered")
		assert.Len(t, f.ran(), 6, "and tried all the same")
		begin(t.Context(), m, number(2)).fails(t, infer.ErrMemory)
		assert.Equal(t, 2, f.restarts)
	})
}

func TestItemsThatLackMemoryRestartADeviceLessAndLessOften(t *testing.T) {
	t.Parallel()
	var short atomic.Bool
	short.Store(true)
	f := starved(func(f *fake, _ infer.Model, _ infer.Batch) bool { return !short.Load() })
	onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		start := time.Now()
		x := float32(0)
		for ; time.Since(start) < time.Hour; x++ {
			begin(t.Context(), m, number(x)).fails(t, infer.ErrMemory)
			time.Sleep(time.Second)
		}
		assert.Equal(t, 11, f.restarts, "10, 20, 40, 80, 160, 320 s after the one before, then 10 min")
		short.Store(false)
		begin(t.Context(), m, number(x)).is(t, x)
	})
}

func TestWhoIsToBlameForAnItemWithoutMemory(t *testing.T) {
	t.Parallel()
	t.Run("the machine, where others of its shape had enough", func(t *testing.T) {
		t.Parallel()
		f := starved(func(_ *fake, _ infer.Model, b infer.Batch) bool { return b.Names[0] != "3" })
		onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
			t.Helper()
			m := s.model(t, ocr)
			begin(t.Context(), m, number(1)).is(t, 1)
			c := begin(t.Context(), m, number(3))
			c.fails(t, infer.ErrMemory)
			require.ErrorIs(t, c.err, infer.ErrHost)
		})
	})
	t.Run("the machine, where another model could not be unloaded", func(t *testing.T) {
		t.Parallel()
		f := starved(func(_ *fake, m infer.Model, _ infer.Batch) bool { return m != ocr })
		f.slots, f.cost = 2, func(m infer.Model, _ int) time.Duration {
			if m == judge {
				return time.Hour
			}
			return ms
		}
		onStage(t, f, pool.Config{BatchTimeout: 2 * time.Hour}, func(t *testing.T, s *stage) {
			t.Helper()
			busy := begin(t.Context(), s.model(t, judge), number(1))
			c := begin(t.Context(), s.model(t, ocr), number(1))
			c.fails(t, infer.ErrMemory)
			require.ErrorIs(t, c.err, infer.ErrHost)
			busy.is(t, 1)
		})
	})
}

func TestAnItemThatLacksMemoryOnOneDeviceGetsAnother(t *testing.T) {
	t.Parallel()
	f := starved(func(_ *fake, m infer.Model, b infer.Batch) bool {
		return m.Device != "cuda:1" || !slices.Contains(b.Names, "6") && !slices.Contains(b.Names, "7")
	})
	onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.spread(t, 2)
		served(t, s, m, 2)
		for range 8 {
			for _, c := range many(t.Context(), m, 0, 8) {
				<-c.done
				require.NoError(t, c.err)
			}
		}
		assert.Equal(t, 64, s.answered(t, "cuda:0")+s.answered(t, "cuda:1"))
		moved := s.on(t, "cuda:1").Models[0].Total.Moved
		assert.Positive(t, moved)
		assert.Zero(t, s.on(t, "cuda:0").Models[0].Total.Moved)
		assert.Greater(t, s.answered(t, "cuda:1"), 8, "the device goes on with the others")
	})
}

func TestACallerThatLeavesEndsWhatIsDoneForItsMemory(t *testing.T) {
	t.Parallel()
	f := starved(func(*fake, infer.Model, infer.Batch) bool { return false })
	ended := make(chan struct{})
	f.hold = func(ctx context.Context) error {
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}
	onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := begin(ctx, s.model(t, ocr), number(1))
		c.fails(t, infer.ErrTimeout)
		assert.Equal(t, time.Second, c.took)
		<-ended
		synctest.Wait()
		assert.Zero(t, s.Stats().Devices[0].Running)
		assert.Len(t, f.ran(), 2)
	})
}

func TestAPoolClosesDuringARestart(t *testing.T) {
	t.Parallel()
	f := starved(func(*fake, infer.Model, infer.Batch) bool { return false })
	f.hold = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		c := begin(t.Context(), s.model(t, ocr), number(1))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, s.Close(ctx))
		c.fails(t, infer.ErrUnavailable)
	})
}

func TestARestartThatFailsOrHangsIsNamedAndBounded(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(context.Context) error{
		"fails":  func(context.Context) error { return fmt.Errorf("%w: no child starts", infer.ErrUnavailable) },
		"panics": func(context.Context) error { panic("no child starts") },
		"hangs": func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("no child starts: %w", ctx.Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := starved(func(*fake, infer.Model, infer.Batch) bool { return false })
			f.hold = hold
			onStage(t, f, pool.Config{LoadTimeout: time.Minute}, func(t *testing.T, s *stage) {
				t.Helper()
				c := begin(t.Context(), s.model(t, ocr), number(1))
				c.fails(t, infer.ErrMemory)
				require.NotErrorIs(t, c.err, infer.ErrUnavailable, "its class is that of the runs")
				require.ErrorContains(t, c.err, "no child starts")
				assert.LessOrEqual(t, c.took, time.Minute+time.Second)
			})
		})
	}
}
