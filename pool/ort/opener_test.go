//go:build cgo

package ort_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// device is an open CPU.
type device struct {
	pool.Runner
	opener *ort.Opener
}

func (d *device) pids() []int { return d.opener.Stats()["cpu"].PIDs }

// openCPU opens the CPU with some slots; it is closed at the end of the test.
func openCPU(tb testing.TB, cfg ort.Config) *device {
	tb.Helper()
	cfg.Library = onnx.Library(tb).Path
	if cfg.Slots == 0 {
		cfg.Slots = 1
	}
	o, err := ort.NewOpener(cfg)
	require.NoError(tb, err)
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	r, err := o.Open(ctx, "cpu")
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(tb, r.Close(ctx))
	})
	require.Equal(tb, cfg.Slots, r.Slots())
	return &device{r, o}
}

func model(name string) infer.Model {
	return infer.Model{Name: name, Path: fixture(name), Device: "cpu"}
}

// rowsOf are n rows of a value for the echo model.
func rowsOf(n int, v float32) infer.Batch {
	b := infer.Batch{Names: make([]string, n), Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 6*n), n, 1, 2, 3)}}
	for i := range b.Inputs[0].F32 {
		b.Inputs[0].F32[i] = v
	}
	return b
}

// isolations are both ways to run, the second in this process.
func isolations() []ort.Isolation { return []ort.Isolation{ort.Process, ort.Inline} }

func TestABatchIsAnsweredByEitherIsolation(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations() {
		d := openCPU(t, ort.Config{Isolation: isolation, Slots: 2})
		info, err := d.Load(t.Context(), model("dtypes"))
		require.NoError(t, err)
		require.Equal(t, "a\nb\né", info.Metadata["character"])
		require.Equal(t, []int{-1, 2}, info.Inputs[3].Shape)
		require.True(t, ort.EveryoneHas(d.Runner, model("dtypes")))
		require.False(t, ort.EveryoneHas(d.Runner, model("echo")))
		again, err := d.Load(t.Context(), model("dtypes"))
		require.NoError(t, err)
		require.Equal(t, info, again)

		var callers sync.WaitGroup
		for i := range 8 { // of other models, too; nobody loads this one first
			callers.Go(func() {
				v := float32(i)
				out, err := d.Run(t.Context(), model("echo"), rowsOf(i+1, v))
				if err != nil || len(out) != 1 || out[0].Shape[0] != i+1 || out[0].F32[6*i+5] != v {
					t.Errorf("%d: %v %v", i, out, err)
				}
			})
		}
		callers.Wait()
		b := rowsOf(2, 1)
		b.Inputs[0].F32[7], b.Reduce = 3, infer.ArgMax
		out, err := d.Run(t.Context(), model("echo"), b)
		require.NoError(t, err)
		require.Equal(t, []int32{0, 0, 1, 0}, out[0].I32)
		require.Equal(t, []float32{1, 1, 3, 1}, out[1].F32)
		st := d.opener.Stats()["cpu"]
		require.Equal(t, 2, st.Alive)
		require.Zero(t, st.Crashes)
	}
}

func TestWhatGoesWrongHasItsClassInEitherIsolation(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations() {
		d := openCPU(t, ort.Config{Isolation: isolation, MaxBatchBytes: 1 << 20})
		for says, m := range badFiles(t) {
			_, err := d.Load(t.Context(), m)
			require.ErrorIs(t, err, infer.ErrModel)
			require.ErrorContains(t, err, says)
			_, err = d.Run(t.Context(), m, rowsOf(1, 1))
			require.ErrorIs(t, err, infer.ErrModel)
			require.ErrorContains(t, err, m.Path)
		}
		elsewhere := model("echo")
		elsewhere.Device = "cuda:0"
		_, err := d.Load(t.Context(), elsewhere)
		require.ErrorIs(t, err, infer.ErrModel)

		big := rowsOf(2, 0)
		big.Inputs[0] = infer.Floats("x", make([]float32, 2<<18), 2, 1, 1<<9, 1<<9)
		for name, tt := range map[string]struct {
			m    infer.Model
			b    infer.Batch
			want error
		}{
			"other input":     {model("slow"), rowsOf(1, 1), infer.ErrInput},
			"no items":        {model("echo"), infer.Batch{Inputs: rowsOf(1, 1).Inputs}, infer.ErrInput},
			"half a tensor":   {model("echo"), infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 5), 1, 1, 2, 3)}}, infer.ErrInput},
			"memory":          {model("huge"), sizes(1<<44, 1), infer.ErrMemory},
			"too many inputs": {model("echo"), big, infer.ErrMemory},
			"long answer":     {model("huge"), sizes(9<<20, 2), infer.ErrMemory},
			"longest answer":  {model("huge"), sizes(17<<20, 1), infer.ErrInput},
			"no batch axis":   {model("nonzero"), infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("x", []float32{1, 0, 1, 0}, 1, 4)}}, infer.ErrModel},
		} {
			_, err := d.Run(t.Context(), tt.m, tt.b)
			require.ErrorIs(t, err, tt.want, name)
		}
		for range 5 { // the second in a row gives the model up, later ones load it again
			_, err := d.Run(t.Context(), model("huge"), sizes(1<<44, 1))
			require.ErrorIs(t, err, infer.ErrMemory)
		}
		_, err = d.Run(t.Context(), model("huge"), sizes(2, 1))
		require.NoError(t, err)
		require.Zero(t, d.opener.Stats()["cpu"].Crashes)
		out, err := d.Run(t.Context(), model("echo"), rowsOf(1, 4))
		require.NoError(t, err)
		require.InDelta(t, 4, out[0].F32[0], 0)
	}
}

// sizes asks the huge model for rows of n floats.
func sizes(n int64, rows int) infer.Batch {
	b := infer.Batch{Names: make([]string, rows), Inputs: []infer.Tensor{{DType: infer.I64, Shape: []int{rows}, I64: make([]int64, rows)}}}
	for i := range b.Inputs[0].I64 {
		b.Inputs[0].I64[i] = n
	}
	return b
}

func TestAReplicaThatAnswersNaNTwiceIsAFaultAndItsInputIsRemembered(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{})
	logs := func(x ...float32) infer.Batch {
		return infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("x", x, 1, 2)}}
	}
	_, err := d.Run(t.Context(), model("log"), logs(1, -1))
	require.ErrorIs(t, err, infer.ErrFault)
	require.ErrorContains(t, err, `output "y" has NaN at 1`)
	st := d.opener.Stats()["cpu"]
	require.Equal(t, uint64(2), st.Crashes)
	require.Equal(t, 1, st.Quarantined)
	_, err = d.Run(t.Context(), model("log"), logs(1, -1))
	require.Error(t, err)
	require.Equal(t, uint64(2), d.opener.Stats()["cpu"].Crashes, "it kills no third")
	_, err = d.Run(t.Context(), model("log"), logs(1, 2))
	require.NoError(t, err)
}

// signalling sends a signal to every child that works, again and again.
func signalling(t *testing.T, d *device, sig syscall.Signal, times int) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		hit := make(map[int]bool)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := 0; n < times; {
			select {
			case <-tick.C:
			case <-t.Context().Done():
				return
			}
			st := d.opener.Stats()["cpu"]
			if st.Busy == 0 {
				continue
			}
			for _, pid := range st.PIDs {
				if !hit[pid] && syscall.Kill(pid, sig) == nil {
					hit[pid] = true
					n++
				}
			}
		}
	})
	return wg.Wait
}

func TestARunWhoseProcessDiesOnceIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGABRT, syscall.SIGSEGV} {
		d := openCPU(t, ort.Config{})
		_, err := d.Load(t.Context(), model("slow"))
		require.NoError(t, err)
		wait := signalling(t, d, sig, 1)
		out, err := d.Run(t.Context(), model("slow"), slowBatch(1, 20_000))
		require.NoError(t, err, sig)
		require.InDelta(t, 20_001, out[0].F32[0], 0)
		wait()
		require.Equal(t, uint64(1), d.opener.Stats()["cpu"].Crashes)
	}
}

func TestARunWhoseProcessDiesTwiceHasCrashed(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{})
	wait := signalling(t, d, syscall.SIGABRT, 2)
	_, err := d.Run(t.Context(), model("slow"), slowBatch(1, 40_000))
	require.ErrorIs(t, err, infer.ErrCrashed)
	require.ErrorContains(t, err, "slow of 0")
	wait()
	// The input is remembered, others go on.
	_, err = d.Run(t.Context(), model("slow"), slowBatch(1, 40_000))
	require.ErrorIs(t, err, infer.ErrCrashed)
	out, err := d.Run(t.Context(), model("slow"), slowBatch(1, 3))
	require.NoError(t, err)
	require.InDelta(t, 4, out[0].F32[0], 0)
}

// The process that is free has loaded the model long before the other can.
func TestALoadWaitsForAProcessThatIsBusy(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{Slots: 2})
	ort.SetLenience(d.Runner, time.Minute)
	_, err := d.Load(t.Context(), model("slow"))
	require.NoError(t, err)
	var busy sync.WaitGroup
	busy.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Run(ctx, model("slow"), slowBatch(1, 1_000_000))
		assert.ErrorIs(t, err, infer.ErrTimeout)
	})
	require.Eventually(t, func() bool { return d.opener.Stats()["cpu"].Busy == 1 }, 20*time.Second, time.Millisecond)
	_, err = d.Load(t.Context(), model("echo"))
	require.NoError(t, err)
	require.True(t, ort.EveryoneHas(d.Runner, model("echo")))
	busy.Wait()

	ort.SetLenience(d.Runner, 0)
	busy.Go(func() {
		_, err := d.Run(t.Context(), model("slow"), slowBatch(1, 20_000))
		assert.NoError(t, err)
	})
	require.Eventually(t, func() bool { return d.opener.Stats()["cpu"].Busy == 1 }, 20*time.Second, time.Millisecond)
	_, err = d.Load(t.Context(), model("dtypes"))
	require.NoError(t, err, "one that has it is enough")
	busy.Wait()
}

func TestARunThatIsTooSlowEndsAndItsProcessLives(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{RunTimeout: 20 * time.Second, Grace: 10 * time.Second})
	_, err := d.Load(t.Context(), model("slow"))
	require.NoError(t, err)
	pid := d.pids()[0]
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		_, err = d.Run(ctx, model("slow"), slowBatch(1, 1_000_000))
		cancel()
		require.ErrorIs(t, err, infer.ErrTimeout)
		require.Less(t, time.Since(began), 5*time.Second)
	}
	out, err := d.Run(t.Context(), model("slow"), slowBatch(1, 3))
	require.NoError(t, err)
	require.InDelta(t, 4, out[0].F32[0], 0)
	require.Equal(t, []int{pid}, d.pids())
	require.Zero(t, d.opener.Stats()["cpu"].Timeouts)

	expired, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	_, err = d.Run(expired, model("slow"), slowBatch(1, 3))
	require.ErrorIs(t, err, infer.ErrTimeout)
}

func TestTheConfiguredTimeoutHoldsWithoutACallersDeadline(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{RunTimeout: 100 * time.Millisecond, Grace: 10 * time.Second})
	for range 2 { // before the model is loaded, and after
		_, err := d.Run(t.Context(), model("slow"), slowBatch(1, 1_000_000))
		require.ErrorIs(t, err, infer.ErrTimeout)
	}
	require.Zero(t, d.opener.Stats()["cpu"].Timeouts)
}

// A stopped process looks like one that hangs in C.
func TestAProcessThatHangsIsKilledSoonAfterTheDeadlineAndReplaced(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{Grace: 200 * time.Millisecond})
	_, err := d.Load(t.Context(), model("slow"))
	require.NoError(t, err)
	pid := d.pids()[0]
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = d.Run(ctx, model("slow"), slowBatch(1, 3))
	require.ErrorIs(t, err, infer.ErrTimeout)
	require.Less(t, time.Since(began), 20*time.Second)
	out, err := d.Run(t.Context(), model("slow"), slowBatch(1, 3))
	require.NoError(t, err)
	require.InDelta(t, 4, out[0].F32[0], 0)
	require.NotEqual(t, pid, d.pids()[0])
	require.Equal(t, uint64(1), d.opener.Stats()["cpu"].Timeouts)
}

// A process that was killed at such a deadline would load the model again, and be
// killed again.
func TestADeadlineThatIsShorterThanALoadDoesNotKillTheProcess(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{Grace: time.Millisecond})
	pid := d.pids()[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := d.Run(ctx, model("conv"), infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 3*704*704), 1, 3, 704, 704)}})
	require.ErrorIs(t, err, infer.ErrTimeout)
	_, err = d.Run(t.Context(), model("conv"), infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 3*16*16), 1, 3, 16, 16)}})
	require.NoError(t, err)
	require.Equal(t, []int{pid}, d.pids())
}

func TestACallerThatLeavesIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{})
	_, err := d.Load(t.Context(), model("slow"))
	require.NoError(t, err)
	pid := d.pids()[0]
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = d.Run(ctx, model("slow"), slowBatch(1, 40_000))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, infer.ErrTimeout)
	_, err = d.Run(t.Context(), model("slow"), slowBatch(1, 3))
	require.NoError(t, err)
	require.Equal(t, []int{pid}, d.pids())
}

func TestOpeningSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	lib := onnx.Library(t)
	o, err := ort.NewOpener(ort.Config{Library: lib.Path})
	require.NoError(t, err)
	if !lib.CUDA {
		_, err = o.Open(t.Context(), "cuda:0")
		require.ErrorIs(t, err, infer.ErrUnavailable)
		require.ErrorContains(t, err, "libonnxruntime_providers_cuda.so")
		require.ErrorContains(t, err, "device: cpu")
	}
	_, err = o.Open(t.Context(), "tpu")
	require.ErrorIs(t, err, infer.ErrUnavailable)
	o, err = ort.NewOpener(ort.Config{Library: filepath.Join(t.TempDir(), "none.so")})
	require.NoError(t, err)
	_, err = o.Open(t.Context(), "cpu")
	require.ErrorIs(t, err, infer.ErrUnavailable)
	require.ErrorContains(t, err, "make ort")
	require.Empty(t, o.Stats())
}

func TestAProbeSaysWhatAChildSawOfTheLibrary(t *testing.T) {
	t.Parallel()
	lib := onnx.Library(t)
	rep, err := ort.Probe(t.Context(), lib)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(lib.Version, rep.Version), "%s and %s", lib.Version, rep.Version)
	require.Contains(t, rep.Providers, "CPUExecutionProvider")
	if !lib.CUDA {
		require.Equal(t, []string{"CPUExecutionProvider"}, rep.Providers)
		require.Contains(t, rep.CUDA, "are missing in the folder of")
	}
}
