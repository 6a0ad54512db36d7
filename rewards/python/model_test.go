package python_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// devices are a machine with a CPU and two cards, of which nothing is there but their names.
type devices struct {
	pool *pool.Pool

	mu      sync.Mutex
	open    map[string]func() *python.Runner
	runners []*python.Runner
}

func newDevices(tb testing.TB, cfg pool.Config) *devices {
	tb.Helper()
	d := &devices{open: map[string]func() *python.Runner{}}
	p, err := pool.New(cfg, d)
	require.NoError(tb, err)
	d.pool = p
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(tb, p.Close(ctx))
	})
	return d
}

// Python implements python.Devices.
func (d *devices) Python(m infer.Model, o pool.ModelOptions, share float64, open func(string) *python.Runner) (*pool.Model, error) {
	d.mu.Lock()
	for _, device := range o.Devices {
		d.open[device+"/"+m.Entry] = func() *python.Runner { return open(map[string]string{"cuda:0": "GPU-a", "cuda:1": "GPU-b"}[device]) }
	}
	d.mu.Unlock()
	o.Memory = int64(share * (1 << 30))
	return d.pool.Model(m, o)
}

// Open implements pool.Opener.
func (d *devices) Open(_ context.Context, device string) (pool.Runner, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.open[device]()
	d.runners = append(d.runners, r)
	return r, nil
}

// stats adds up the processes of all models.
func (d *devices) stats() (sum subprocess.Stats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.runners {
		s := r.Stats()
		sum.Restarts += s.Restarts
		sum.PIDs = append(sum.PIDs, s.PIDs...)
	}
	return sum
}

// model makes the scorer of a class or function of testdata/models.py, or of another file.
func model(tb testing.TB, d *devices, name string, opts python.Options) *python.Model {
	tb.Helper()
	opts.Path, opts.Name = cmp.Or(opts.Path, "testdata/models.py"), name
	if opts.Placement == nil {
		opts.Placement = &python.Placement{}
	}
	f := python.NewFunctions(python.Config{Interpreter: interpreter(tb)}, d)
	raw, err := json.Marshal(opts)
	require.NoError(tb, err)
	s, err := f.Spec().Build(raw)
	require.NoError(tb, err)
	return s.(*python.Model)
}

// numbered is a sample whose ground truth is a text; known by its number.
func numbered(n int, truth string) *rewards.Sample {
	raw, _ := json.Marshal(truth) //nolint:errchkjson // a string
	return &rewards.Sample{ID: fmt.Sprintf("s%d", n), Prompt: fmt.Sprintf("p%d", n), GroundTruth: raw}
}

type scored struct {
	rewards.Score

	err error
}

// all scores samples at once, each with a minute from when its batch begins.
func all(tb testing.TB, s rewards.Scorer, samples []*rewards.Sample) []scored {
	tb.Helper()
	out := make([]scored, len(samples))
	var wg sync.WaitGroup
	for i, sample := range samples {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
			defer cancel()
			out[i].Score, out[i].err = s.Score(ctx, sample)
		})
	}
	wg.Wait()
	return out
}

func numbers(from, to int) (samples []*rewards.Sample) {
	for n := from; n < to; n++ {
		samples = append(samples, numbered(n, fmt.Sprint(n)))
	}
	return samples
}

func TestSamplesOfAModelAreScoredInBatches(t *testing.T) {
	t.Parallel()
	m := model(t, newDevices(t, pool.Config{}), "Words", python.Options{})
	warm(t, m)
	largest := 0.0
	for i, s := range all(t, m, numbers(0, 200)) {
		require.NoError(t, s.err)
		assert.InDelta(t, i, s.Value, 0)
		n, _ := s.Extra["batch"].(int64)
		largest = max(largest, float64(n))
	}
	assert.Greater(t, largest, 3.0, "items of the largest batch")
	assert.Equal(t, "1 Python process on cpu with batches of up to 32, while as many are prepared", m.ConcurrencyReason())
	assert.Equal(t, 64, m.Concurrency())
}

func TestOneBadSampleOfABatchFailsAlone(t *testing.T) {
	t.Parallel()
	for truth, want := range map[string]struct {
		class rewards.Class
		text  string
	}{
		"raise": {rewards.Internal, "ValueError: a sample that raises"},
		"nan":   {rewards.InvalidScore, "the score is nan"},
		"none":  {rewards.InvalidScore, "returned None"},
		"error": {rewards.Internal, "KeyError: 'this one'"},
		"exit":  {rewards.Crashed, "exit status 3"},
		"kill":  {rewards.Crashed, "segmentation fault"},
		"hang":  {rewards.Timeout, ""},
		"eat":   {rewards.Crashed, "the limit is 256 MiB"},
	} {
		t.Run(truth, func(t *testing.T) {
			t.Parallel()
			d := newDevices(t, pool.Config{})
			timeout := time.Minute
			if truth == "hang" { // a run of its batch may take a quarter
				timeout = 4 * time.Second
			}
			m := model(t, d, "Words", python.Options{Memory: 256 << 20, Timeout: timeout})
			warm(t, m)
			all(t, m, numbers(0, 64)) // so that batches are large
			samples := numbers(0, 16)
			samples[5] = numbered(5, truth)
			for i, s := range all(t, m, samples) {
				if i == 5 {
					require.Error(t, s.err)
					assert.Equal(t, want.class, rewards.ClassOf(s.err), s.err)
					require.ErrorContains(t, s.err, want.text)
					blame, _ := rewards.BlameOf(s.err)
					assert.NotEqual(t, rewards.BlameWorker, blame)
					continue
				}
				require.NoError(t, s.err)
				assert.InDelta(t, i, s.Value, 0)
			}
			for _, s := range all(t, m, numbers(0, 8)) {
				require.NoError(t, s.err)
			}
		})
	}
}

func TestABatchWithoutMemoryIsHalved(t *testing.T) {
	t.Parallel()
	m := model(t, newDevices(t, pool.Config{}), "Small", python.Options{})
	warm(t, m)
	for range 3 {
		for i, s := range all(t, m, numbers(0, 16)) {
			require.NoError(t, s.err)
			assert.InDelta(t, i, s.Value, 0)
			assert.LessOrEqual(t, s.Extra["batch"], int64(4))
		}
	}
}

func TestAModelThatReturnsTooFewScoresIsAskedOneByOne(t *testing.T) {
	t.Parallel()
	m := model(t, newDevices(t, pool.Config{}), "Short", python.Options{})
	warm(t, m)
	for _, s := range all(t, m, numbers(0, 16)) {
		require.NoError(t, s.err)
	}
}

func TestAModelMayTakeOneSampleOrListsOrBeAsync(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{})
	single := model(t, d, "Single", python.Options{Kwargs: map[string]any{"factor": 3}})
	async := model(t, d, "Async", python.Options{})
	for i := range 3 {
		for n, s := range all(t, single, numbers(0, 8)) {
			require.NoError(t, s.err)
			assert.InDelta(t, 3*n, s.Value, 0)
		}
		for n, s := range all(t, async, numbers(i, i+8)) {
			require.NoError(t, s.err)
			assert.InDelta(t, n+i, s.Value, 0)
		}
	}
}

// plain gives a sample a raw picture of one colour.
func plain(sample *rewards.Sample, height, width int, value byte) *rewards.Sample {
	data := make([]byte, height*width*3)
	for i := range data {
		data[i] = value
	}
	sample.Media = []*rewards.Media{{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{height, width, 3}, Data: data}}
	return sample
}

func TestPicturesOfOneShapeAreStacked(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	m := model(t, newDevices(t, pool.Config{}), "columns", python.Options{
		Placement: &python.Placement{Batch: true, BatchWait: new(float64)}, Kwargs: map[string]any{"factor": 2},
	})
	warm(t, m)
	for _, tt := range []struct {
		width func(i int) int
		want  string
	}{
		{func(int) int { return 7 }, "3, 5, 7]"},
		{func(i int) int { return 3 + i }, `["list", [3, 5,`},
	} {
		var samples []*rewards.Sample
		for i := range 24 {
			samples = append(samples, plain(numbered(i, fmt.Sprint(i)), 5, tt.width(i), byte(i)))
		}
		found := false
		for i, s := range all(t, m, samples) {
			require.NoError(t, s.err)
			assert.InDelta(t, 2*i, s.Value, 0)
			assert.Equal(t, fmt.Sprintf("p%d", i), s.Extra["prompt"])
			found = found || strings.Contains(s.Extra["shape"].(string), tt.want)
		}
		assert.True(t, found, tt.want)
	}
}

func TestPicturesMayBePILImages(t *testing.T) {
	t.Parallel()
	needs(t, "PIL")
	m := model(t, newDevices(t, pool.Config{}), "pictures", python.Options{Pixels: "pil", Placement: &python.Placement{Batch: true}})
	warm(t, m)
	for i, s := range all(t, m, []*rewards.Sample{plain(numbered(0, "0"), 2, 3, 10), plain(numbered(1, "0"), 4, 4, 20)}) {
		require.NoError(t, s.err)
		assert.InDelta(t, []float64{30, 60}[i], s.Value, 0)
		assert.Equal(t, []string{"3x2 RGB", "4x4 RGB"}[i], s.Extra["size"])
	}
}

func TestEachReplicaSeesItsCardAlone(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{})
	m := model(t, d, "Where", python.Options{Placement: &python.Placement{Devices: []string{"cuda:0", "cuda:1"}, Replicas: 2, MaxBatch: 4}})
	warm(t, m)
	assert.Equal(t, "2 Python processes on each of cuda:0, cuda:1 with batches of up to 4, while as many are prepared", m.ConcurrencyReason())
	pids := map[any]any{}
	require.Eventually(t, func() bool {
		for _, s := range all(t, m, numbers(0, 100)) {
			require.NoError(t, s.err)
			assert.Equal(t, "cuda:0", s.Extra["device"])
			if card, known := pids[s.Extra["pid"]]; known {
				require.Equal(t, card, s.Extra["card"])
			}
			pids[s.Extra["pid"]] = s.Extra["card"]
		}
		return len(pids) == 4
	}, time.Minute, time.Millisecond, "all four processes have scored")
	cards := map[any]int{}
	for _, card := range pids {
		cards[card]++
	}
	assert.Equal(t, map[any]int{"GPU-a": 2, "GPU-b": 2}, cards)
}

func TestAModelOnTheCPUSeesNoCard(t *testing.T) {
	t.Parallel()
	m := model(t, newDevices(t, pool.Config{}), "Where", python.Options{})
	s, err := score(t, m, numbered(0, "0"))
	require.NoError(t, err)
	assert.Empty(t, s.Extra["card"])
	assert.Equal(t, "cpu", s.Extra["device"])
}

func TestAModelThatCannotBeLoadedSaysWhy(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{})
	m := model(t, d, "Refuses", python.Options{})
	err := m.Warm(t.Context())
	require.ErrorContains(t, err, "the constructor of Refuses needs weights, which nobody gives")
	blame, permanent := rewards.BlameOf(err)
	assert.Equal(t, rewards.BlameWorker, blame)
	assert.True(t, permanent)
	_, err = score(t, model(t, d, "Nobody", python.Options{}), numbered(0, "0"))
	require.ErrorContains(t, err, `has no 'Nobody'`)
	m = model(t, d, "Words", python.Options{Interpreter: "/nowhere/python"})
	require.ErrorContains(t, m.Warm(t.Context()), "/nowhere/python")
}

func TestAModelSleepsInPlaceOfEnding(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{Memory: map[string]int64{"cuda:0": 1 << 30}})
	half := &python.Placement{Devices: []string{"cuda:0"}, Fraction: 0.7}
	a, b := model(t, d, "Dozes", python.Options{Placement: half}), model(t, d, "Words", python.Options{Placement: half})
	first, err := score(t, a, numbered(0, "0"))
	require.NoError(t, err)
	_, err = score(t, b, numbered(0, "0"))
	require.NoError(t, err)
	second, err := score(t, a, numbered(0, "0"))
	require.NoError(t, err)
	assert.Equal(t, first.Extra["pid"], second.Extra["pid"])
	assert.Equal(t, "sleep,wake", second.Extra["told"])
}

func TestACallerOfAModelThatLeavesDoesNotWaitForItsBatch(t *testing.T) {
	t.Parallel()
	m := model(t, newDevices(t, pool.Config{}), "Words", python.Options{Timeout: time.Hour})
	warm(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 2)
	for _, truth := range []string{"hang", "1"} {
		go func() {
			_, err := m.Score(ctx, numbered(0, truth))
			left <- err
		}()
	}
	cancel()
	for range 2 {
		select {
		case err := <-left:
			require.True(t, err == nil || errors.Is(err, context.Canceled), err)
		case <-time.After(10 * time.Second):
			t.Fatal("a caller that left is still there")
		}
	}
}
