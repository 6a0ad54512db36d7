package pool_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

const mib = 1 << 20

// sized writes the file of a model that is estimated at 10 MiB for each tenth.
func sized(t *testing.T, name string, tenths int) infer.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".onnx")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, int64(tenths)*5*mib)) // a hole
	return infer.Model{Name: name, Path: path, Device: "cuda:0"}
}

// small is a device whose models may take 100 MiB.
var small = pool.Config{Memory: map[string]int64{"cuda:0": 100 * mib}}

// shelf is a fake device that notes which models are loaded.
type shelf struct {
	fake

	mu   sync.Mutex
	here []string
	most int // of them at a time
}

// newShelf makes one on which a load takes some time.
func newShelf(takes time.Duration) *shelf {
	f := &shelf{}
	f.load = func(ctx context.Context, m infer.Model) error {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.here = append(f.here, m.Name)
		f.most = max(f.most, len(f.here))
		return nil
	}
	f.unload = func(m infer.Model) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.here = slices.DeleteFunc(f.here, func(name string) bool { return name == m.Name })
		return nil
	}
	return f
}

func (f *shelf) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.here)
}

func TestTheModelThatWasUsedLeastRecentlyIsEvictedAndLoadedAgainAtItsNextUse(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
		t.Helper()
		a, b, c := s.model(t, sized(t, "a", 4)), s.model(t, sized(t, "b", 4)), s.model(t, sized(t, "c", 4))
		for _, m := range []*pool.Model{a, b, a} {
			begin(t.Context(), m, number(1)).is(t, 1)
			time.Sleep(2 * time.Second)
		}
		require.Equal(t, []string{"a", "b"}, f.names())
		begin(t.Context(), c, number(1)).is(t, 1)
		require.Equal(t, []string{"a", "c"}, f.names())
		time.Sleep(2 * time.Second)
		begin(t.Context(), b, number(1)).is(t, 1)
		require.Equal(t, []string{"c", "b"}, f.names())
		d := s.Stats().Devices[0]
		assert.EqualValues(t, 100*mib, d.Budget)
		assert.EqualValues(t, 80*mib, d.Taken)
		assert.EqualValues(t, 2, d.Evictions)
		assert.False(t, d.Models[0].Loaded)
		assert.True(t, d.Models[1].Loaded)
		assert.EqualValues(t, 2, d.Models[1].Loads)
		assert.EqualValues(t, 40*mib, d.Models[1].Bytes)
	})
}

func TestALoadEvictsAsManyAsItNeedsAndNoneInVain(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
		t.Helper()
		a, b, c := s.model(t, sized(t, "a", 2)), s.model(t, sized(t, "b", 3)), s.model(t, sized(t, "c", 4))
		for _, m := range []*pool.Model{a, b, c} {
			_, err := m.Info(t.Context())
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Second)
		_, err := s.model(t, sized(t, "d", 5)).Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"c", "d"}, f.names(), "a would not have been enough")
	})
}

func TestAModelForWhichSamplesWaitIsNotEvicted(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	f.cost = linear(5*time.Second, 0)
	onStage(t, &f.fake, pool.Config{Memory: small.Memory, MaxBatch: 1}, func(t *testing.T, s *stage) {
		t.Helper()
		a, b := s.model(t, sized(t, "a", 6)), s.model(t, sized(t, "b", 6))
		_, err := a.Info(t.Context())
		require.NoError(t, err)
		waiting := many(t.Context(), a, 0, 4)
		time.Sleep(time.Second)
		c := begin(t.Context(), b, number(7))
		for _, w := range waiting[:3] {
			<-w.done
		}
		require.Equal(t, []string{"a"}, f.names())
		require.True(t, c.pending())
		c.is(t, 7)
		assert.Equal(t, 24*time.Second+ms, c.took, "what waited for a came first: 19 s, a load and a run of its own")
		require.Equal(t, []string{"b"}, f.names())
	})
}

func TestARunThatNobodyWaitsForKeepsItsModelUntilItEnds(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	var second atomic.Bool
	slow := func(_ infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		if !second.Load() {
			time.Sleep(5 * time.Second) // its context is ignored
			assert.Equal(t, []string{"a"}, f.names())
		}
		return out, nil
	}
	f.cost, f.spoil = linear(ms, ms), slow
	onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
		t.Helper()
		a, b := s.model(t, sized(t, "a", 6)), s.model(t, sized(t, "b", 6))
		warm(t, a)
		hold := blocked(t.Context(), a)
		ctx, cancel := context.WithCancel(t.Context())
		gone := many(ctx, a, 0, 2)
		<-hold.done
		time.Sleep(100 * ms) // both run in one batch, which has copied them
		cancel()
		for _, c := range gone {
			c.fails(t, context.Canceled)
		}
		second.Store(true)
		_, err := b.Info(t.Context())
		require.NoError(t, err)
	})
}

func TestALoadThatFindsNoRoomFailsByNameWithTheNumbers(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	f.cost = linear(time.Second, 0)
	onStage(t, &f.fake, pool.Config{Memory: small.Memory, LoadTimeout: 20 * time.Second, MaxBatch: 1}, func(t *testing.T, s *stage) {
		t.Helper()
		a, b := s.model(t, sized(t, "a", 6)), s.model(t, sized(t, "b", 5))
		backlog := many(t.Context(), a, 0, 15)
		c := begin(t.Context(), b, number(1))
		c.fails(t, infer.ErrMemory)
		require.ErrorIs(t, c.err, infer.ErrLoad)
		assert.Equal(t, 10*time.Second, c.took, "half of the time of a load")
		require.ErrorContains(t, c.err, "model b on cuda:0")
		require.ErrorContains(t, c.err, "the model needs 50 MiB; the device has 100 MiB for models, of which 60 MiB are in use (a 60 MiB, used by ")
		require.ErrorContains(t, c.err, "none of them became idle within 10s")
		for x, w := range backlog {
			w.is(t, float32(x))
		}
		time.Sleep(5 * time.Second)
		begin(t.Context(), b, number(1)).is(t, 1)
	})
}

func TestAModelThatIsLargerThanItsDeviceFailsAtOnce(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{}, small, func(t *testing.T, s *stage) {
		t.Helper()
		c := begin(t.Context(), s.model(t, sized(t, "huge", 11)), number(1))
		c.fails(t, infer.ErrMemory)
		assert.Zero(t, c.took)
		require.ErrorContains(t, c.err, "the model needs 110 MiB; the device has 100 MiB")
		assert.Zero(t, s.fake.loads)
	})
}

// TestTwoModelsThatAlternateOnACardTooSmallForBothLoadForHalfOfItsTimeAtMost sends samples that
// need one model and then the other, one after the other and many at a time.
func TestTwoModelsThatAlternateOnACardTooSmallForBothLoadForHalfOfItsTimeAtMost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 16} {
		t.Run(fmt.Sprint(n, " at a time"), func(t *testing.T) {
			t.Parallel()
			const load = 3 * time.Second
			f := newShelf(load)
			onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
				t.Helper()
				a, b := s.model(t, sized(t, "a", 6)), s.model(t, sized(t, "b", 6))
				var longest atomic.Int64
				var all sync.WaitGroup
				start := time.Now()
				for c := range n {
					all.Go(func() {
						for x := range 20 {
							for _, m := range []*pool.Model{a, b} {
								begun := time.Now()
								out, err := m.Infer(t.Context(), number(float32(x+c)))
								if err != nil || out[0].F32[0] != float32(2*(x+c)+1) {
									t.Errorf("%v, %v", out, err)
								}
								longest.Store(max(longest.Load(), int64(time.Since(begun))))
							}
						}
					})
				}
				all.Wait()
				took := time.Since(start)
				loading := time.Duration(f.loads) * load
				t.Logf("%d samples in %s: %d loads, a sample waited for %s at most", 20*n, took, f.loads, time.Duration(longest.Load()))
				assert.LessOrEqual(t, loading, took/2+load)
				assert.LessOrEqual(t, time.Duration(longest.Load()), 3*load, "the other's stay, and a load")
				assert.Equal(t, 1, f.most)
			})
		})
	}
}

func TestSamplesThatAskTwoModelsDuringOneVisitAreScoredWhereThereIsRoomForOne(t *testing.T) {
	t.Parallel()
	f := newShelf(time.Second)
	onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
		t.Helper()
		a, b := s.model(t, sized(t, "a", 6)), s.model(t, sized(t, "b", 6))
		var all sync.WaitGroup
		for x := range 20 {
			all.Go(func() {
				leave, err := a.Enter(t.Context())
				if !assert.NoError(t, err) { //nolint:testifylint // require must not stop a goroutine
					return
				}
				defer leave()
				for _, m := range []*pool.Model{a, b} {
					out, err := m.Infer(t.Context(), number(float32(x)))
					if assert.NoError(t, err) {
						assert.InDelta(t, 2*x+1, out[0].F32[0], 0)
					}
				}
			})
		}
		all.Wait()
		assert.Equal(t, 1, f.most)
	})
}

func TestWhatTheRunnerSaysReplacesTheEstimate(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	f.info, f.slots = infer.Info{Bytes: 15 * mib}, 2
	onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
		t.Helper()
		_, err := s.model(t, sized(t, "a", 4)).Info(t.Context()) // 80 MiB: each of two slots has it
		require.NoError(t, err)
		assert.EqualValues(t, 30*mib, s.Stats().Devices[0].Taken)
		_, err = s.model(t, sized(t, "b", 3)).Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, f.names())
	})
}

func TestALoadThatFailsGivesItsRoomBack(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func(context.Context, infer.Model) error{
		"an error": func(context.Context, infer.Model) error { return infer.ErrModel },
		"a panic":  func(context.Context, infer.Model) error { panic("at the runner") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, &fake{load: load}, small, func(t *testing.T, s *stage) {
				t.Helper()
				_, err := s.model(t, sized(t, "a", 6)).Info(t.Context())
				require.Error(t, err)
				assert.Zero(t, s.Stats().Devices[0].Taken)
			})
		})
	}
}

func TestAModelThatCannotBeUnloadedFailsTheLoadThatNeedsItsRoomAndTheNextOneGoesOn(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	unload := f.unload
	var broken atomic.Bool
	broken.Store(true)
	f.unload = func(m infer.Model) error {
		if broken.Load() {
			return infer.ErrTimeout
		}
		return unload(m)
	}
	onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
		t.Helper()
		a, b := s.model(t, sized(t, "a", 6)), s.model(t, sized(t, "b", 6))
		begin(t.Context(), a, number(1)).is(t, 1)
		time.Sleep(2 * time.Second)
		c := begin(t.Context(), b, number(1))
		c.fails(t, infer.ErrTimeout)
		require.ErrorContains(t, c.err, "unloading a to make room")
		broken.Store(false)
		time.Sleep(5 * time.Second)
		begin(t.Context(), b, number(1)).is(t, 1)
		begin(t.Context(), a, number(1)).is(t, 1)
	})
}

func TestALoadForWhichTheDeviceHasNoMemoryIsTriedOnceMoreWithoutTheModelsThatNobodyNeeds(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	load := f.load
	f.load = func(ctx context.Context, m infer.Model) error {
		if len(f.names()) > 0 {
			return infer.ErrMemory
		}
		return load(ctx, m)
	}
	onStage(t, &f.fake, pool.Config{}, func(t *testing.T, s *stage) { // the book knows of no bound
		t.Helper()
		for _, name := range []string{"a", "b"} {
			begin(t.Context(), s.model(t, sized(t, name, 1)), number(1)).is(t, 1)
		}
		assert.Equal(t, []string{"b"}, f.names())
		assert.EqualValues(t, 1, s.Stats().Devices[0].Evictions)
	})
}

func TestOfTwoLoadsThatTakeEachOthersMemoryOneGoesOn(t *testing.T) {
	t.Parallel()
	f := newShelf(0)
	load := f.load
	var loading atomic.Int64
	f.load = func(ctx context.Context, m infer.Model) error {
		loading.Add(1)
		defer loading.Add(-1)
		time.Sleep(time.Second)
		if loading.Load() > 1 || len(f.names()) > 0 {
			time.Sleep(time.Second)
			return infer.ErrMemory
		}
		return load(ctx, m)
	}
	onStage(t, &f.fake, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		models := []*pool.Model{s.model(t, sized(t, "a", 1)), s.model(t, sized(t, "b", 1))}
		calls := []*call{begin(t.Context(), models[0], number(1)), begin(t.Context(), models[1], number(1))}
		failed := -1
		for i, c := range calls {
			if <-c.done; c.err != nil {
				require.ErrorIs(t, c.err, infer.ErrMemory)
				require.Equal(t, -1, failed, "one of them")
				failed = i
			}
		}
		require.NotEqual(t, -1, failed)
		time.Sleep(5 * time.Second)
		begin(t.Context(), models[failed], number(2)).is(t, 2)
		assert.Equal(t, 1, f.most)
	})
}

func TestAModelThatWasEvictedFromOneOfItsDevicesComesBackThereWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
		t.Helper()
		both := sized(t, "both", 6)
		both.Device = "cuda"
		m, err := s.Model(both, pool.ModelOptions{Devices: cards(2)})
		require.NoError(t, err)
		served(t, s, m, 2)
		time.Sleep(2 * time.Second)
		other := s.model(t, sized(t, "other", 6))
		begin(t.Context(), other, number(1)).is(t, 1)
		time.Sleep(2 * time.Second)
		for x, c := range many(t.Context(), m, 0, 4) {
			c.is(t, float32(x))
		}
		assert.False(t, s.Stats().Devices[0].Models[0].Loaded, "the other device serves it")
		assert.Equal(t, 1, s.fake.unloads)
	})
}

func TestAnEstimateCountsDataBesideTheModelAndItsEmbeddings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, n := range map[string]int{
		"decoder.onnx": 100, "decoder.onnx_data": 1000, "decoder.onnx_data_1": 2000, "embed.onnx": 10_000, "decoder_fp16.onnx": 1 << 20,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o600))
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, "decoder.onnx_data"), filepath.Join(dir, "link.onnx")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "decoder.onnx.d"), 0o700))
	at := func(name string) string { return filepath.Join(dir, name) }
	assert.EqualValues(t, 2*13_100, pool.Estimate(infer.Model{Path: at("decoder.onnx"), Embed: at("embed.onnx")}))
	assert.EqualValues(t, 2*1000, pool.Estimate(infer.Model{Path: at("link.onnx")}))
	assert.Zero(t, pool.Estimate(infer.Model{Path: at("missing.onnx")}))
}

func TestAPoolWhoseLoadWaitsForRoomCloses(t *testing.T) {
	t.Parallel()
	f := newShelf(ms)
	f.cost = linear(time.Minute, 0)
	onStage(t, &f.fake, small, func(t *testing.T, s *stage) {
		t.Helper()
		a, b := s.model(t, sized(t, "a", 6)), s.model(t, sized(t, "b", 6))
		runs := begin(t.Context(), a, number(1))
		waits := begin(t.Context(), b, number(1))
		synctest.Wait()
		require.NoError(t, s.Close(t.Context()))
		waits.fails(t, infer.ErrUnavailable)
		<-runs.done
	})
}
