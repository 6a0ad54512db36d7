package pool_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// batchOf makes the batch queue run one batch of the numbers 0 to n-1: they queue behind
// an item of another shape.
func batchOf(t *testing.T, s *stage, n int) []*call {
	t.Helper()
	m := s.model(t, ocr)
	for range 2 { // a batch queue knows its costs after two batches of two sizes
		for _, size := range []int{1, 2, 4, 8, 16} {
			hold := blocked(t.Context(), m)
			calls := many(t.Context(), m, 100, 100+size)
			for _, c := range append(calls, hold) {
				<-c.done
			}
		}
	}
	hold := blocked(t.Context(), m)
	calls := many(t.Context(), m, 0, n)
	<-hold.done
	synctest.Wait()
	ran := s.fake.ran()
	require.Len(t, ran[len(ran)-1], n, "they run in one batch")
	return calls
}

func TestAnItemThatFailsItsBatchFailsAlone(t *testing.T) {
	t.Parallel()
	for _, class := range []error{infer.ErrInput, infer.ErrFault, infer.ErrCrashed, infer.ErrUnavailable, infer.ErrTimeout, errBroken} {
		t.Run(class.Error(), func(t *testing.T) {
			t.Parallel()
			spoil := func(_ infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
				if slices.Contains(b.Names, "3") {
					return nil, fmt.Errorf("run: %w", class)
				}
				return out, nil
			}
			onStage(t, &fake{cost: linear(100*ms, 0), spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				for x, c := range batchOf(t, s, 8) {
					if x == 3 {
						c.fails(t, class)
						require.ErrorContains(t, c.err, `item "3"`)
						continue
					}
					c.is(t, float32(x))
				}
				assert.EqualValues(t, 8, s.total().Retries)
				assert.EqualValues(t, 1, s.total().Failed)
			})
		})
	}
}

func TestAModelThatCannotRunFailsItsBatchAtOnce(t *testing.T) {
	t.Parallel()
	spoil := func(_ infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		if slices.Contains(b.Names, "3") {
			return nil, infer.ErrModel
		}
		return out, nil
	}
	onStage(t, &fake{cost: linear(100*ms, 0), spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		for _, c := range batchOf(t, s, 8) {
			c.fails(t, infer.ErrModel)
		}
		assert.Zero(t, s.total().Retries)
	})
}

func TestWithoutMemoryBatchesAreHalvedUntilTheyFit(t *testing.T) {
	t.Parallel()
	var tight atomic.Bool
	spoil := func(_ infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		if tight.Load() && (len(b.Names) > 2 || slices.Contains(b.Names, "5")) {
			return nil, infer.ErrMemory
		}
		return out, nil
	}
	onStage(t, &fake{cost: linear(100*ms, 0), spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		calls := batchOf(t, s, 8)
		from := len(s.fake.ran())
		tight.Store(true)
		for x, c := range calls {
			if x == 5 {
				c.fails(t, infer.ErrMemory)
				continue
			}
			c.is(t, float32(x))
		}
		assert.Equal(t, []int{4, 4, 2, 2, 2, 2, 1, 1, 1, 1}, s.fake.sizes()[from:])
		l := s.Stats().Devices[0].Models[0].BatchQueues[1]
		assert.Equal(t, 1, l.Limit)
		assert.EqualValues(t, 4, l.Counts.Splits)
		assert.EqualValues(t, 7, l.Counts.Faults, "the item ran three times by itself")
	})
}

func TestARunnerThatAnswersNonsenseIsAtFault(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(infer.Model, infer.Batch, []infer.Tensor) ([]infer.Tensor, error){
		"no outputs": func(infer.Model, infer.Batch, []infer.Tensor) ([]infer.Tensor, error) { return nil, nil },
		"too few rows": func(_ infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
			return []infer.Tensor{infer.Floats("y", nil, 0, 1)}, nil
		},
		"no batch axis": func(_ infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
			return []infer.Tensor{infer.Floats("y", []float32{1})}, nil
		},
		"not the data of its shape": func(_ infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
			return []infer.Tensor{infer.Floats("y", nil, len(b.Names), 7)}, nil
		},
		"a panic": func(infer.Model, infer.Batch, []infer.Tensor) ([]infer.Tensor, error) { panic("at the runner") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, &fake{spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				begin(t.Context(), s.model(t, ocr), number(1)).fails(t, infer.ErrFault)
				assert.Zero(t, s.Stats().Devices[0].Running)
			})
		})
	}
}

func TestARunThatTakesTooLongIsEnded(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(time.Hour, 0)}, pool.Config{BatchTimeout: time.Second}, func(t *testing.T, s *stage) {
		t.Helper()
		c := begin(t.Context(), s.model(t, ocr), number(1))
		c.fails(t, infer.ErrTimeout)
		require.NotErrorIs(t, c.err, context.DeadlineExceeded, "its own context has not ended")
		assert.Equal(t, time.Second, c.took)
	})
}

// A process may stand still for a reason of its own, which is none of the item's.
func TestAnItemWhoseProcessHungIsRunOnceMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ items, hangs, runs int }{
		"one item": {1, 1, 2},
		"one item, and its processes always hang": {1, 100, 2},
		"several items":                         {4, 1, 5},
		"several items, and all processes hang": {4, 100, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := atomic.Int64{}
			left.Store(int64(c.hangs))
			f := &fake{spoil: func(_ infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
				if left.Add(-1) < 0 {
					return out, nil
				}
				return nil, infer.Marked(infer.ErrHung, infer.ErrTimeout)
			}}
			onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				for i, one := range many(t.Context(), s.model(t, ocr), 0, c.items) {
					if c.hangs == 1 {
						one.is(t, float32(i))
					} else {
						one.fails(t, infer.ErrTimeout)
					}
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				require.LessOrEqual(t, len(f.batches), c.runs, f.batches)
			})
		})
	}
}

func TestALoadSurvivesTheFirstCallersEnd(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context, _ infer.Model) error {
		select {
		case <-time.After(10 * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	onStage(t, &fake{load: slow}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := begin(ctx, m, number(1))
		second := begin(t.Context(), m, number(2))
		first.fails(t, context.DeadlineExceeded)
		assert.Equal(t, time.Second, first.took)
		second.is(t, 2)
		assert.Equal(t, 10*time.Second+10*ms, second.took)
		assert.Equal(t, 1, s.fake.loads)
	})
}

func TestALoadThatFailsIsRememberedForAWhileAndUntilTheFileChanges(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "model.onnx")
	var broken atomic.Bool
	broken.Store(true)
	load := func(context.Context, infer.Model) error {
		if broken.Load() {
			return fmt.Errorf("%w: %w", infer.ErrModel, errBroken)
		}
		return nil
	}
	onStage(t, &fake{load: load}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, infer.Model{Name: "m", Path: path, Device: "cpu"})
		for _, c := range many(t.Context(), m, 0, 5) {
			c.fails(t, errBroken)
			require.ErrorIs(t, c.err, infer.ErrModel)
		}
		assert.Equal(t, 1, s.fake.loads, "a broken model is not loaded for every request")
		time.Sleep(5 * time.Second)
		begin(t.Context(), m, number(1)).fails(t, errBroken)
		time.Sleep(6 * time.Second)
		begin(t.Context(), m, number(1)).fails(t, errBroken)
		assert.Equal(t, 2, s.fake.loads, "the pause doubles")
		broken.Store(false)
		require.NoError(t, os.WriteFile(path, []byte("good"), 0o600))
		begin(t.Context(), m, number(1)).is(t, 1)
		assert.Equal(t, 3, s.fake.loads)
		got := s.Stats().Devices[0].Models[0]
		assert.EqualValues(t, 3, got.Loads)
		assert.EqualValues(t, 2, got.LoadFailures)
	})
}

func TestALoadThatHangsIsAnsweredWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	release := time.Minute
	uncancellable := func(context.Context, infer.Model) error {
		time.Sleep(release)
		return nil
	}
	onStage(t, &fake{load: uncancellable}, pool.Config{LoadTimeout: time.Second}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		for range 3 {
			c := begin(t.Context(), m, number(1))
			c.fails(t, infer.ErrTimeout)
			assert.LessOrEqual(t, c.took, time.Second)
		}
		assert.Equal(t, 1, s.fake.loads, "no second beside one that still goes on")
		time.Sleep(release)
		begin(t.Context(), m, number(1)).is(t, 1)
	})
}

func TestADeviceThatDoesNotOpenIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	open := func(context.Context, string) error {
		if broken.Load() {
			return errBroken
		}
		return nil
	}
	onStage(t, &fake{open: open}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		for _, c := range many(t.Context(), m, 0, 5) {
			c.fails(t, infer.ErrUnavailable)
			require.ErrorIs(t, c.err, errBroken)
		}
		assert.Equal(t, 1, s.fake.opens)
		assert.Zero(t, s.fake.loads)
		broken.Store(false)
		_, err := m.Info(t.Context())
		require.ErrorIs(t, err, infer.ErrUnavailable)
		time.Sleep(time.Second)
		begin(t.Context(), m, number(1)).is(t, 1)
		d := s.Stats().Devices[0]
		assert.EqualValues(t, 2, d.Opens)
		assert.EqualValues(t, 1, d.OpenFailures)
	})
}

func TestADeviceWithoutSlotsIsClosedAgain(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{slots: -1}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		begin(t.Context(), s.model(t, ocr), number(1)).fails(t, infer.ErrUnavailable)
		assert.Equal(t, 1, s.fake.closes)
	})
}

func TestAClosedPoolRefusesWhatWaitsAndLetsRunsEnd(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(time.Second, 0)}, pool.Config{QueueItems: 1}, func(t *testing.T, s *stage) {
		t.Helper()
		m, unused := s.model(t, ocr), s.model(t, judge)
		runs, queued, outside := begin(t.Context(), m, number(1)), begin(t.Context(), m, number(2)), begin(t.Context(), m, number(3))
		require.NoError(t, s.Close(t.Context()))
		runs.is(t, 1)
		queued.fails(t, infer.ErrUnavailable)
		outside.fails(t, infer.ErrUnavailable)
		_, err := s.Model(judge, pool.ModelOptions{})
		require.ErrorIs(t, err, infer.ErrUnavailable)
		for _, m := range []*pool.Model{m, unused} {
			_, err = m.Infer(t.Context(), number(4))
			require.ErrorIs(t, err, infer.ErrUnavailable)
		}
		assert.Equal(t, 1, s.fake.loads)
		s.Flush()
		require.NoError(t, s.Close(t.Context()), "twice is harmless")
		assert.Equal(t, 1, s.fake.closes)
		assert.Len(t, s.Stats().Devices, 1)
	})
}

func TestCloseEndsRunsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{cost: linear(time.Hour, 0)}, pool.Config{BatchTimeout: time.Hour}, func(t *testing.T, s *stage) {
		t.Helper()
		c := begin(t.Context(), s.model(t, ocr), number(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.NoError(t, s.Close(ctx))
		assert.Equal(t, time.Second, time.Since(start))
		c.fails(t, infer.ErrUnavailable)
		require.NotErrorIs(t, c.err, context.Canceled, "its own context has not ended")
	})
}

func TestCloseEndsOpeningAndLoading(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, f := range map[string]*fake{
		"opening": {open: func(ctx context.Context, _ string) error { return hang(ctx) }},
		"loading": {load: func(ctx context.Context, _ infer.Model) error { return hang(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, f, pool.Config{}, func(t *testing.T, s *stage) {
				t.Helper()
				m := s.model(t, ocr)
				c := begin(t.Context(), m, number(1))
				require.NoError(t, s.Close(t.Context()))
				c.fails(t, infer.ErrUnavailable)
				begin(t.Context(), m, number(1)).fails(t, infer.ErrUnavailable)
			})
		})
	}
}

func TestCloseSaysWhatItHasToLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{slots: 1, spoil: func(_ infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
			<-release // its context is ignored
			return out, nil
		}}
		p, err := pool.New(pool.Config{}, f)
		require.NoError(t, err)
		m, err := p.Model(ocr, pool.ModelOptions{})
		require.NoError(t, err)
		c := begin(t.Context(), m, number(1))
		time.Sleep(20 * ms)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorContains(t, p.Close(ctx), "continues although its context has ended")
		assert.Equal(t, 1, f.closes)
		close(release)
		<-c.done
		require.NoError(t, c.err, "it did get its answer")
	})
}

func TestARunnerThatOpensAfterTheEndIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{slots: 1, open: func(context.Context, string) error {
			time.Sleep(time.Minute) // its context is ignored
			return nil
		}}
		p, err := pool.New(pool.Config{}, f)
		require.NoError(t, err)
		m, err := p.Model(ocr, pool.ModelOptions{})
		require.NoError(t, err)
		c := begin(t.Context(), m, number(1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorContains(t, p.Close(ctx), "continues although its context has ended")
		c.fails(t, infer.ErrUnavailable)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, f.closes)
	})
}

func TestARunnersFaultAtItsEndIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{slots: 1, close: func(context.Context) error { return errBroken }}
		p, err := pool.New(pool.Config{}, f)
		require.NoError(t, err)
		m, err := p.Model(ocr, pool.ModelOptions{})
		require.NoError(t, err)
		_, err = m.Info(t.Context())
		require.NoError(t, err)
		err = p.Close(t.Context())
		require.ErrorIs(t, err, errBroken)
		require.ErrorContains(t, err, "device cpu")
	})
}
