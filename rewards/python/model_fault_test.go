package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// faulty makes the scorer of a class of testdata/faults.py.
func faulty(tb testing.TB, d *devices, name string, opts python.Options) *python.Model {
	tb.Helper()
	opts.Path = "testdata/faults.py"
	return model(tb, d, name, opts)
}

func TestAProcessSeesItsCardWhenItsFileIsImported(t *testing.T) {
	t.Parallel()
	m := faulty(t, newDevices(t, pool.Config{}), "AtImport", python.Options{
		Placement: &python.Placement{Devices: []string{"cuda:0", "cuda:1"}, Replicas: 2, MaxBatch: 4},
	})
	warm(t, m)
	cards := map[any]any{}
	require.Eventually(t, func() bool {
		for _, s := range all(t, m, numbers(0, 100)) {
			require.NoError(t, s.err)
			cards[s.Extra["pid"]] = s.Extra["card"]
		}
		return len(cards) == 4
	}, time.Minute, time.Millisecond, "all four processes have scored")
	count := map[any]int{}
	for _, card := range cards {
		count[card]++
	}
	assert.Equal(t, map[any]int{"GPU-a": 2, "GPU-b": 2}, count)
}

func TestTheSizeThatFitsIntoTheMemoryIsRemembered(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"python", "torch", "driver"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := faulty(t, newDevices(t, pool.Config{}), "Tight", python.Options{Kwargs: map[string]any{"how": how}})
			warm(t, m)
			var sizes []string
			for round := range 4 {
				for i, s := range all(t, m, numbers(0, 16)) {
					require.NoError(t, s.err, "a batch without memory ends in 16 scores")
					assert.InDelta(t, float64(i), s.Value, 0)
					if said := strings.Fields(s.Extra["sizes"].(string)); len(said) > len(sizes) {
						if round > 0 {
							for _, size := range said[len(sizes):] {
								n, err := strconv.Atoi(size)
								require.NoError(t, err)
								assert.LessOrEqual(t, n, 4, "round %d", round)
							}
						}
						sizes = said
					}
				}
			}
		})
	}
}

func TestASampleThatFitsIntoNoMemoryIsNotTheFaultOfTheMachine(t *testing.T) {
	t.Parallel()
	m := faulty(t, newDevices(t, pool.Config{}), "Tight", python.Options{})
	warm(t, m)
	for range 2 {
		samples := numbers(0, 16)
		samples[5] = numbered(5, "huge")
		for i, s := range all(t, m, samples) {
			if i != 5 {
				require.NoError(t, s.err)
				continue
			}
			require.Error(t, s.err)
			blame, permanent := rewards.BlameOf(s.err)
			assert.NotEqual(t, rewards.BlameWorker, blame, "others were scored beside it: %v", s.err)
			assert.False(t, permanent)
		}
	}
}

func TestTwoModelsTakeTurnsOnACardThatHasRoomForOne(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"", "sleep", "wake"} {
		t.Run("faulty "+fault, func(t *testing.T) {
			t.Parallel()
			d := newDevices(t, pool.Config{Memory: map[string]int64{"cuda:0": 1 << 30}})
			most := func(kwargs map[string]any) python.Options {
				return python.Options{Placement: &python.Placement{Devices: []string{"cuda:0"}, Fraction: 0.7}, Kwargs: kwargs}
			}
			a, b := faulty(t, d, "Naps", most(map[string]any{"faulty": fault})), faulty(t, d, "Waits", most(nil))
			var both sync.WaitGroup
			for range 3 {
				for _, m := range []*python.Model{a, b} {
					both.Go(func() {
						for i, s := range all(t, m, numbers(0, 2)) {
							if assert.NoError(t, s.err) {
								assert.InDelta(t, float64(i), s.Value, 0)
							}
						}
					})
				}
				both.Wait()
			}
			again, err := score(t, a, numbered(0, "0"))
			require.NoError(t, err)
			if fault == "" {
				assert.NotZero(t, again.Extra["told"], "it slept in its process")
			}
		})
	}
}

func TestWhereSomeCallersOfABatchLeaveTheOthersAreScored(t *testing.T) {
	t.Parallel()
	m := faulty(t, newDevices(t, pool.Config{}), "Waits", python.Options{})
	warm(t, m)
	all(t, m, numbersOf(make([]string, 16), "0")) // so that batches are large
	leaving, leave := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if i%2 == 0 {
				ctx, cancel = leaving, func() {}
			}
			defer cancel()
			_, errs[i] = m.Score(ctx, numbered(i, "0.5"))
		})
	}
	time.AfterFunc(100*time.Millisecond, leave)
	calls.Wait()
	for i, err := range errs {
		if i%2 == 0 {
			assert.True(t, err == nil || errors.Is(err, context.Canceled), err)
		} else {
			require.NoError(t, err)
		}
	}
}

// numbersOf are samples with one ground truth.
func numbersOf(of []string, truth string) (samples []*rewards.Sample) {
	for i := range of {
		samples = append(samples, numbered(i, truth))
	}
	return samples
}

// A model may take minutes to load again, so that its process is not ended for those who have left: what
// they have left runs until a run has had its time.
func TestABatchForWhichNobodyWaitsAnyMoreEndsInItsTime(t *testing.T) {
	t.Parallel()
	m := faulty(t, newDevices(t, pool.Config{}), "Waits", python.Options{Timeout: 8 * time.Second})
	warm(t, m)
	all(t, m, numbersOf(make([]string, 16), "0"))
	ctx, leave := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for i := range 16 {
		calls.Go(func() {
			_, err := m.Score(ctx, numbered(i, "3600"))
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	time.AfterFunc(200*time.Millisecond, leave)
	calls.Wait()
	for _, s := range all(t, m, numbersOf(make([]string, 16), "0")) {
		require.NoError(t, s.err)
	}
}

// everything that stands for a score of one sample, or of a whole batch, and is none.
func TestWhatIsNoScoreFailsByNameAndTakesNobodyWithIt(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	one := []string{"text", "texts", "nested", "deep", "infinite", "huge", "complex", "class", "generator", "endless", "long text", "many steps", "object", "wide"}
	batch := []string{"a generator", "a dict", "a text", "nothing", "too many", "1 GiB", "1 GB of numbers"}
	d := newDevices(t, pool.Config{})
	m := faulty(t, d, "Odd", python.Options{Memory: 2 << 30})
	warm(t, m)
	all(t, m, numbers(0, 32))
	for _, truth := range append(one, batch...) {
		samples := numbers(0, 16)
		samples[5] = numbered(5, truth)
		for i, s := range all(t, m, samples) {
			if i == 5 {
				if assert.Error(t, s.err, truth) {
					assert.Equal(t, rewards.InvalidScore, rewards.ClassOf(s.err), "%s: %v", truth, s.err)
					assert.Less(t, len(s.err.Error()), 4096, truth)
				}
				continue
			}
			require.NoError(t, s.err, truth)
			assert.InDelta(t, float64(i), s.Value, 0, truth)
		}
	}
	assert.Zero(t, d.stats().Restarts, "nothing of it ends the process")
}

func TestABatchThatRaisesIsTakenApartInItsProcessAsLongAsThereIsTime(t *testing.T) {
	t.Parallel()
	for name, seconds := range map[string]float64{"there is": 0, "there is not": 0.2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDevices(t, pool.Config{})
			m := faulty(t, d, "Slowly", python.Options{Timeout: 4 * time.Second, Kwargs: map[string]any{"seconds": seconds}}) // 1 s for a run
			warm(t, m)
			all(t, m, numbers(0, 64)) // so that batches are large
			samples := numbers(0, 16)
			for _, s := range samples {
				s.ExtraInfo = json.RawMessage(`{"alone": true}`)
			}
			for i, s := range all(t, m, samples) {
				require.NoError(t, s.err)
				assert.InDelta(t, float64(i), s.Value, 0)
			}
			assert.Zero(t, d.stats().Restarts, "a run of all of them would be a hang")
			var retries uint64
			for _, device := range d.pool.Stats().Devices {
				for _, m := range device.Models {
					retries += m.Total.Retries
				}
			}
			assert.Equal(t, seconds > 0, retries > 0, "samples that the server has run again: %d", retries)
		})
	}
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestAProcessScoresKnownSamplesBeforeThoseOfRuns(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{})
	m := faulty(t, d, "Warmed", python.Options{Placement: &python.Placement{Warmup: 7}})
	for range 2 { // the second time in a process that takes the place of the first
		require.NoError(t, m.Warm(t.Context()))
		s, err := score(t, m, numbered(0, "1"))
		require.NoError(t, err)
		assert.InDelta(t, 7, s.Value, 0, "the first call had the known samples")
		for _, pid := range d.stats().PIDs {
			if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) { // the first one may be gone and not yet counted out
				require.NoError(t, err)
			}
		}
	}
	without := faulty(t, newDevices(t, pool.Config{}), "Warmed", python.Options{})
	s, err := score(t, without, numbered(0, "1"))
	require.NoError(t, err)
	assert.InDelta(t, 1, s.Value, 0)
}

func TestAWarmUpThatFailsIsAWarningAndTheModelServes(t *testing.T) {
	t.Parallel()
	log := &lines{}
	cfg := python.Config{Log: slog.New(slog.NewTextHandler(log, nil))}
	opts := python.Options{Path: "testdata/faults.py", Name: "Warmed", Kwargs: map[string]any{"fails": true}, Placement: &python.Placement{Warmup: 2}}
	raw, err := json.Marshal(opts)
	require.NoError(t, err)
	s, err := python.NewFunctions(cfg, newDevices(t, pool.Config{})).Spec().Build(raw)
	require.NoError(t, err)
	require.NoError(t, s.(rewards.Warmer).Warm(t.Context()))
	got, err := s.Score(t.Context(), numbered(0, "1"))
	require.NoError(t, err)
	assert.InDelta(t, 2, got.Value, 0)
	assert.Contains(t, log.String(), "the warm-up of a Python model failed")
	assert.Contains(t, log.String(), "no room for rewardloop-known-image")
}

func TestAFunctionOfGroupsIsWarmedWithOneGroup(t *testing.T) {
	t.Parallel()
	opts := formed("Warmed", "score_group", nil)
	opts["path"], opts["placement"] = "testdata/faults.py", map[string]any{"warmup": 5}
	f := groupFunction(t, python.Config{}, opts)
	assert.Equal(t, []float64{5, 5}, valuesOf(t, said(t, f, rows("", "a", "b"))))
}

func TestWhatARaisingBatchHeldIsFreeWhenItIsTakenApart(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{})
	m := faulty(t, d, "Heavy", python.Options{Memory: 500 << 20, Placement: &python.Placement{MaxBatch: 4}})
	warm(t, m)
	for i, s := range all(t, m, numbers(0, 8)) {
		require.NoError(t, s.err)
		assert.InDelta(t, float64(i), s.Value, 0)
	}
	assert.Zero(t, d.stats().Restarts, "it never held the batch's 300 MB beside a sample's")
}

func TestABatchWithMoreToSayThanFitsIntoAnAnswerIsHalved(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{})
	m := faulty(t, d, "Wordy", python.Options{Placement: &python.Placement{MaxBatch: 64}})
	warm(t, m)
	for i, s := range all(t, m, numbers(0, 64)) {
		require.NoError(t, s.err)
		assert.InDelta(t, float64(i), s.Value, 0)
	}
	assert.Zero(t, d.stats().Restarts, "nothing of it ends the process")
}
