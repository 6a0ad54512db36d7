package pool_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

const ms = time.Millisecond

func TestEqualModelsHaveOneHandle(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		one := s.model(t, ocr)
		assert.Same(t, one, s.model(t, ocr))
		assert.NotSame(t, one, s.model(t, judge))
		_, err := s.Model(ocr, pool.ModelOptions{MaxBatch: 4})
		require.ErrorIs(t, err, infer.ErrModel, "equal models with different options")
		_, err = s.Model(infer.Model{Name: "x", Device: "cpu"}, pool.ModelOptions{})
		require.ErrorIs(t, err, infer.ErrModel)
		_, err = s.Model(ocr, pool.ModelOptions{MaxBatch: -1})
		require.ErrorIs(t, err, infer.ErrModel)
		assert.Zero(t, s.fake.opens, "nothing is opened before it is used")
	})
}

func TestAPoolNeedsAConfigurationAndAnOpener(t *testing.T) {
	t.Parallel()
	_, err := pool.New(pool.Config{}, nil)
	require.ErrorContains(t, err, "opener")
	_, err = pool.New(pool.Config{MaxBatch: 9999, QueueItems: -1, MaxWait: time.Hour, BatchTimeout: -1}, &fake{})
	for _, key := range []string{"max_batch", "queue_items", "max_wait", "batch_timeout"} {
		require.ErrorContains(t, err, key)
	}
	require.NoError(t, pool.Config{}.WithDefaults().Validate())
}

func TestItemsGetTheirOwnRows(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(100*ms, ms)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		warm(t, m)
		for x, c := range many(t.Context(), m, 0, 40) {
			c.is(t, float32(x))
		}
		assert.EqualValues(t, 42, s.total().Items)
		assert.Less(t, len(s.fake.ran()), 20, "in batches")
		assert.Equal(t, 1, s.fake.opens)
		assert.Equal(t, 1, s.fake.loads)
	})
}

func TestOnlyItemsOfEqualShapeShareABatch(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(100*ms, 0)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		var calls []*call
		for x := range 30 {
			calls = append(calls, begin(t.Context(), m, number(float32(x), 1+x%3)))
		}
		for x, c := range calls {
			c.is(t, float32(x))
		}
		assert.Len(t, s.Stats().Devices[0].Models[0].BatchQueues, 3)
	})
}

func TestBatchingGrowsWhereItPaysAndStaysOneWhereItDoesNot(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a, c    time.Duration
		largest int
		mean    float64 // of the last quarter, at least or at most
	}{
		"a GPU":  {15 * ms, 1500 * time.Microsecond, 32, 20},
		"a CPU":  {2 * ms, 90 * ms, 2, 1.1},
		"a half": {20 * ms, 100 * ms, 4, 2.1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, &fake{cost: linear(tt.a, tt.c)}, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				m := s.model(t, ocr)
				var all sync.WaitGroup
				for range 64 { // callers with an item at a time
					all.Go(func() {
						for x := range 20 {
							out, err := m.Infer(t.Context(), number(float32(x)))
							if err != nil || out[0].F32[0] != float32(2*x+1) {
								t.Errorf("item %d: %v, %v", x, out, err)
							}
						}
					})
				}
				all.Wait()
				sizes := s.fake.sizes()
				assert.Equal(t, 1, sizes[0])
				assert.LessOrEqual(t, slices.Max(sizes), tt.largest)
				sum := 0
				last := sizes[len(sizes)*3/4:]
				for _, n := range last {
					sum += n
				}
				mean := float64(sum) / float64(len(last))
				if tt.largest == 32 {
					assert.GreaterOrEqual(t, mean, tt.mean)
				} else {
					assert.LessOrEqual(t, mean, tt.mean)
				}
				l := s.Stats().Devices[0].Models[0].BatchQueues[0]
				assert.InDelta(t, tt.a, l.A, float64(tt.a)/10)
				assert.InDelta(t, tt.c, l.C, float64(tt.c)/10)
				assert.EqualValues(t, 1280, l.Counts.Items)
			})
		})
	}
}

func TestOneSlowModelDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	cost := func(m infer.Model, b int) time.Duration {
		if m == judge {
			return time.Duration(b) * time.Second
		}
		return 10 * ms
	}
	onStage(t, &fake{cost: cost}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		slow, fast := s.model(t, judge), s.model(t, ocr)
		warm(t, slow)
		warm(t, fast)
		backlog := many(t.Context(), slow, 0, 60)
		for range 20 {
			c := begin(t.Context(), fast, number(1))
			c.is(t, 1)
			assert.LessOrEqual(t, c.took, 2100*ms)
			time.Sleep(100 * ms)
		}
		for x, c := range backlog {
			c.is(t, float32(x))
		}
	})
}

func TestAStepsEndSplitsOverIdleSlotsWithoutWaiting(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{slots: 4, cost: linear(100*ms, 10*ms)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		for range 40 { // learns
			for _, c := range many(t.Context(), m, 0, 16) {
				<-c.done
			}
		}
		from := len(s.fake.ran())
		last := many(t.Context(), m, 0, 12)
		require.Len(t, s.fake.ran(), from, "a moment is waited for the rest of a burst")
		start := time.Now()
		s.Flush()
		for x, c := range last {
			c.is(t, float32(x))
		}
		assert.Equal(t, 130*ms, time.Since(start))
		assert.Equal(t, []int{3, 3, 3, 3}, s.fake.sizes()[from:])
	})
}

func TestACancelledRequestFreesItsPlaceInTheQueue(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(100*ms, 0)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		warm(t, m)
		hold := blocked(t.Context(), m)
		ctx, cancel := context.WithCancel(t.Context())
		gone := begin(ctx, m, number(1))
		stays := begin(t.Context(), m, number(2))
		cancel()
		gone.fails(t, context.Canceled)
		require.NotErrorIs(t, gone.err, infer.ErrTimeout)
		assert.Equal(t, 1, s.Stats().Devices[0].Queued)
		stays.is(t, 2)
		<-hold.done
		assert.NotContains(t, slices.Concat(s.fake.ran()...), "1")
		assert.EqualValues(t, 1, s.total().Left)
	})
}

func TestACallerThatLeavesARunLosesOnlyItsRow(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(100*ms, 0)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		warm(t, m)
		hold := blocked(t.Context(), m)
		ctx, cancel := context.WithCancel(t.Context())
		gone := begin(ctx, m, number(1))
		stays := begin(t.Context(), m, number(2))
		<-hold.done
		time.Sleep(50 * ms) // both run now
		cancel()
		synctest.Wait()
		assert.False(t, gone.pending(), "it leaves at once: its tensors were copied")
		gone.fails(t, context.Canceled)
		assert.True(t, stays.pending())
		stays.is(t, 2)
		assert.Zero(t, s.fake.cancelled)
	})
}

func TestARunThatNobodyWaitsForIsEnded(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(time.Second, 0)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		warm(t, m)
		hold := blocked(t.Context(), m)
		ctx, cancel := context.WithCancel(t.Context())
		gone := many(ctx, m, 1, 3)
		<-hold.done
		next := begin(t.Context(), m, number(9))
		start := time.Now()
		cancel()
		for _, c := range gone {
			c.fails(t, context.Canceled)
		}
		next.is(t, 9)
		assert.Equal(t, 1, s.fake.cancelled)
		assert.Equal(t, time.Second, time.Since(start), "the slot was free at once")
	})
}

func TestInferReturnsOnlyWhenNothingReadsItsTensors(t *testing.T) {
	t.Parallel()
	// A runner that is slow to notice its end, and reads to the last.
	slow := func(_ infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		time.Sleep(300 * ms)
		if b.Inputs[0].F32[0] != 7 {
			return nil, infer.ErrInput
		}
		return out, nil
	}
	onStage(t, &fake{spoil: slow}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		req := number(7)
		c := begin(ctx, m, req)
		c.fails(t, infer.ErrTimeout)
		require.ErrorIs(t, c.err, context.DeadlineExceeded)
		assert.Equal(t, 310*ms, c.took)
		req.Inputs[0].F32[0] = 8
		assert.Zero(t, s.total().Faults)
	})
}

func TestADeadlineEndsAWaitWhereverItIs(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(time.Second, 0)}, pool.Config{QueueItems: 1}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		warm(t, m)
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		runs, queues, outside := begin(ctx, m, number(1)), begin(ctx, m, number(2)), begin(ctx, m, number(3))
		assert.Equal(t, 1, s.Stats().Devices[0].Waiting)
		for _, c := range []*call{runs, queues, outside} {
			c.fails(t, infer.ErrTimeout)
			require.ErrorIs(t, c.err, context.DeadlineExceeded)
			assert.Equal(t, 100*ms, c.took)
		}
		_, err := m.Infer(ctx, number(4))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		d := s.Stats().Devices[0]
		assert.Zero(t, d.Queued+d.Waiting+d.Running)
	})
}

func TestAFullQueueHoldsCallersBack(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(10*ms, 0)}, pool.Config{QueueItems: 4, QueueBytes: 64}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		warm(t, m)
		var calls []*call
		for x := range 20 {
			calls = append(calls, begin(t.Context(), m, number(float32(x), 1+x%3)))
		}
		d := s.Stats().Devices[0]
		assert.Equal(t, 4, d.Queued)
		assert.Equal(t, 15, d.Waiting)
		huge := begin(t.Context(), m, number(99, 1000))
		for x, c := range calls {
			c.is(t, float32(x))
		}
		huge.is(t, 99)
	})
}

func TestSixtyFourCallersKeepToTheSlots(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{slots: 3}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		for x, c := range many(t.Context(), m, 0, 64) {
			c.is(t, float32(x))
		}
		assert.Equal(t, 3, s.fake.peak)
		assert.Equal(t, 1, s.fake.opens)
		assert.Equal(t, 1, s.fake.loads)
	})
}

func TestAnItemThatIsNoRequestIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		for name, req := range map[string]infer.Request{
			"no inputs":       {Name: "n"},
			"not enough data": {Name: "d", Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 3), 4)}},
			"unknown type":    {Name: "t", Inputs: []infer.Tensor{{Name: "x", DType: "F16", Shape: []int{1}}}},
		} {
			_, err := m.Infer(t.Context(), req)
			require.ErrorIs(t, err, infer.ErrInput, name)
			require.ErrorContains(t, err, "ocr on cpu")
		}
		assert.Zero(t, s.fake.opens)
	})
}

func TestAModelWithAFixedBatchOfOneHasBatchesOfOne(t *testing.T) {
	t.Parallel()
	info := func(first int) infer.Info {
		return infer.Info{Inputs: []infer.Port{{Name: "x", DType: "F32", Shape: []int{first, 3, 48, -1}}}}
	}
	onStage(t, &fake{cost: linear(100*ms, 0), info: info(1)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		got, err := m.Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, info(1), got)
		for x, c := range many(t.Context(), m, 0, 20) {
			c.is(t, float32(x))
		}
		assert.Equal(t, 1, slices.Max(s.fake.sizes()))
	})
	onStage(t, &fake{info: info(8)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		_, err := s.model(t, ocr).Info(t.Context())
		require.ErrorIs(t, err, infer.ErrModel)
		require.ErrorContains(t, err, "exactly 8")
	})
}

func TestAModelsOwnBoundHolds(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(100*ms, 0)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m, err := s.Model(ocr, pool.ModelOptions{MaxBatch: 3})
		require.NoError(t, err)
		for x, c := range many(t.Context(), m, 0, 40) {
			c.is(t, float32(x))
		}
		assert.Equal(t, 3, slices.Max(s.fake.sizes()))
	})
}

func TestStatsTellWhatHappened(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{slots: 2, cost: linear(100*ms, 10*ms)}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		s.model(t, judge)
		assert.Equal(t, pool.DeviceStats{
			Device: "cpu",
			Models: []pool.ModelStats{{Model: judge}, {Model: ocr}},
		}, s.Stats().Devices[0])
		calls := many(t.Context(), m, 0, 20)
		d := s.Stats().Devices[0]
		assert.Equal(t, 2, d.Slots)
		assert.Equal(t, 2, d.Running)
		assert.Equal(t, 18, d.Queued)
		assert.Equal(t, 18*4, d.QueuedBytes)
		for x, c := range calls {
			c.is(t, float32(x))
		}
		d = s.Stats().Devices[0]
		got := d.Models[1]
		assert.True(t, got.Loaded)
		assert.EqualValues(t, 1, got.Loads)
		assert.False(t, d.Models[0].Loaded)
		l := got.BatchQueues[0]
		assert.Equal(t, got.Total, l.Counts)
		items := uint64(0)
		for b, n := range l.Counts.Sizes {
			items += uint64(b) * n
		}
		assert.EqualValues(t, 20, items)
		assert.EqualValues(t, 20, l.Counts.Items)
		assert.Equal(t, uint64(len(s.fake.ran())), l.Counts.Batches)
		assert.Equal(t, 32, l.Limit)
		assert.InDelta(t, 100*ms, l.A, float64(ms))
		assert.InDelta(t, 10*ms, l.C, float64(ms))
		assert.Positive(t, l.Counts.Queue)
		assert.Equal(t, time.Duration(l.Counts.Batches)*100*ms+200*ms, l.Counts.Busy)
	})
}

func TestNaNInOneRowIsRunOnceMoreAndThenFailsAlone(t *testing.T) {
	t.Parallel()
	seen := make(map[string]int) // one slot: no lock
	spoil := func(_ infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		for i, name := range b.Names {
			seen[name]++
			if name == "3" || name == "5" && seen[name] == 1 {
				out[0].F32[i] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[seen[name]%3])
			}
		}
		return out, nil
	}
	onStage(t, &fake{cost: linear(100*ms, 0), spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		for x, c := range many(t.Context(), m, 0, 8) {
			if x == 3 {
				c.fails(t, infer.ErrFault)
				require.ErrorContains(t, c.err, `item "3"`)
				continue
			}
			c.is(t, float32(x))
		}
		assert.Equal(t, 2, seen["3"])
		assert.Equal(t, 2, seen["5"])
		assert.Equal(t, 1, seen["4"])
		assert.EqualValues(t, 3, s.total().Faults)
		assert.EqualValues(t, 2, s.total().Retries)
	})
}
