//go:build cgo

package ort_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// rig is a pool of one process, and a library that a test can take away.
type rig struct {
	pool    *pool.Pool
	device  *device
	library string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{library: filepath.Join(t.TempDir(), "libonnxruntime.so")}
	require.NoError(t, os.Symlink(onnx.Library(t).Path, r.library))
	o, err := ort.NewOpener(ort.Config{Library: r.library, Slots: 1, RunTimeout: 5 * time.Second, Grace: 200 * time.Millisecond})
	require.NoError(t, err)
	r.device = &device{opener: o}
	r.pool, err = pool.New(pool.Config{}, o)
	require.NoError(t, err)
	t.Cleanup(func() { r.close(t) })
	return r
}

func (r *rig) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := r.pool.Close(ctx); err != nil {
		require.ErrorContains(t, err, "killed") // a child that a test has stopped
	}
}

// request is an item of what rowsOf, slowBatch and sizes make batches of.
func request(b infer.Batch) infer.Request {
	req := infer.Request{Name: "item", Inputs: b.Inputs}
	for i := range req.Inputs {
		req.Inputs[i].Shape = req.Inputs[i].Shape[1:]
	}
	return req
}

// runs is a scorer that runs a model once.
type runs struct {
	model *pool.Model
	req   infer.Request
}

func (s runs) Score(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
	_, err := s.model.Infer(ctx, s.req)
	return rewards.Score{Value: 1}, localmodel.Classify(ctx, err)
}

func (runs) Queues() {}

// failure is what a sample fails with whose component runs a model; class "": it does not.
func (r *rig) failure(t *testing.T, timeout time.Duration, m infer.Model, b infer.Batch) rewards.ComponentError {
	t.Helper()
	model, err := r.pool.Model(m, pool.ModelOptions{})
	require.NoError(t, err)
	manager, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "k", Weight: 1, Timeout: timeout, Scorer: runs{model, request(b)}}}})
	require.NoError(t, err)
	run := manager.Run(t.Context(), &rewards.Sample{ID: "s"})
	<-run.Done()
	if len(run.Result.Errors) == 0 {
		require.Equal(t, rewards.Scored, run.Result.Outcome)
		return rewards.ComponentError{}
	}
	return run.Result.Errors[0]
}

func TestTheBlameForAModelIsByTheTable(t *testing.T) {
	t.Parallel()
	logs := infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("x", []float32{1, -1}, 1, 2)}}
	damaged := filepath.Join(t.TempDir(), "damaged.onnx")
	require.NoError(t, os.WriteFile(damaged, []byte("no model"), 0o600))
	for _, tt := range []struct {
		event     string
		arrange   func(t *testing.T, r *rig) // what happens before or meanwhile
		timeout   time.Duration
		model     infer.Model
		batch     infer.Batch
		class     rewards.Class
		blame     rewards.Blame
		permanent bool
	}{
		{event: "child crashed once: once more elsewhere", arrange: struck(syscall.SIGABRT, 1), model: model("slow"), batch: slowBatch(1, 40_000)},
		{
			event: "child crashed twice", arrange: struck(syscall.SIGABRT, 2), model: model("slow"), batch: slowBatch(1, 40_000),
			class: rewards.Crashed, blame: rewards.BlameSample,
		},
		{
			event: "child crashed twice, and the next one does not answer the canary", arrange: stranded, model: model("slow"), batch: slowBatch(1, 40_000),
			class: rewards.Crashed, blame: rewards.BlameWorker,
		},
		{
			event: "SIGKILL that is not ours", arrange: struck(syscall.SIGKILL, 2), model: model("slow"), batch: slowBatch(1, 40_000),
			class: rewards.Crashed, blame: rewards.BlameWorker,
		},
		{
			event: "timeout while executing", timeout: 300 * time.Millisecond, model: model("slow"), batch: slowBatch(1, 10_000_000),
			class: rewards.Timeout, blame: rewards.BlameReward,
		},
		{
			event: "timeout while a child hangs", arrange: struck(syscall.SIGSTOP, 1), timeout: time.Second, model: model("slow"), batch: slowBatch(1, 10_000_000),
			class: rewards.Timeout, blame: rewards.BlameReward,
		},
		{event: "NaN", model: model("log"), batch: logs, class: rewards.InvalidScore, blame: rewards.BlameReward},
		{event: "bad input", model: model("slow"), batch: rowsOf(1, 1), class: rewards.Internal, blame: rewards.BlameSample},
		{event: "out of memory at batch 1", model: model("huge"), batch: sizes(1<<44, 1), class: rewards.Unavailable, blame: rewards.BlameSample},
		{
			event: "out of memory at batch 1, where as much did fit", arrange: func(t *testing.T, r *rig) {
				t.Helper()
				require.Empty(t, r.failure(t, 0, model("huge"), sizes(2, 1)).Class)
			}, model: model("huge"), batch: sizes(1<<44, 1), class: rewards.Unavailable, blame: rewards.BlameWorker,
		},
		{
			event: "model missing on this worker", model: infer.Model{Name: "m", Path: filepath.Join(t.TempDir(), "none.onnx"), Device: "cpu"}, batch: rowsOf(1, 1),
			class: rewards.Internal, blame: rewards.BlameWorker, permanent: true,
		},
		{
			event: "model damaged on this worker", model: infer.Model{Name: "m", Path: damaged, Device: "cpu"}, batch: rowsOf(1, 1),
			class: rewards.Internal, blame: rewards.BlameWorker, permanent: true,
		},
		{
			event: "library missing on this worker", arrange: func(t *testing.T, r *rig) { t.Helper(); require.NoError(t, os.Remove(r.library)) },
			model: model("echo"), batch: rowsOf(1, 1), class: rewards.Unavailable, blame: rewards.BlameWorker, permanent: true,
		},
		{
			event: "device missing on this worker", model: infer.Model{Name: "m", Path: fixture("echo"), Device: "cuda:7"}, batch: rowsOf(1, 1),
			class: rewards.Unavailable, blame: rewards.BlameWorker, permanent: true,
		},
	} {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if tt.arrange != nil {
				tt.arrange(t, r)
			}
			f := r.failure(t, tt.timeout, tt.model, tt.batch)
			assert.Equal(t, tt.class, f.Class, f.Message)
			assert.Equal(t, tt.blame, f.Blame, f.Message)
			assert.Equal(t, tt.permanent, f.Permanent, f.Message)
		})
	}
}

// struck loads the model, and sends a signal to the first so many children that run it.
func struck(signal syscall.Signal, times int) func(t *testing.T, r *rig) {
	return func(t *testing.T, r *rig) {
		t.Helper()
		require.Empty(t, r.failure(t, 0, model("slow"), slowBatch(1, 3)).Class)
		wait := signalling(t, r.device, signal, times)
		t.Cleanup(wait)
	}
}

// stranded kills the first child that runs the model, and the second once the library that
// it has loaded is gone.
func stranded(t *testing.T, r *rig) {
	t.Helper()
	require.Empty(t, r.failure(t, 0, model("slow"), slowBatch(1, 3)).Class)
	first := r.device.pids()[0]
	once := signalling(t, r.device, syscall.SIGABRT, 1)
	var second sync.WaitGroup
	second.Go(func() {
		once()
		var pids []int
		for len(pids) != 1 || pids[0] == first {
			if t.Context().Err() != nil {
				return
			}
			time.Sleep(time.Millisecond)
			pids = r.device.pids()
		}
		_ = os.Remove(r.library)
		signalling(t, r.device, syscall.SIGABRT, 1)()
	})
	t.Cleanup(second.Wait)
}

func TestAPoolThatIsClosedIsTheWorkersFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	echo, err := r.pool.Model(model("echo"), pool.ModelOptions{})
	require.NoError(t, err)
	_, err = echo.Infer(t.Context(), request(rowsOf(1, 1)))
	require.NoError(t, err)
	r.close(t)
	_, err = echo.Infer(t.Context(), request(rowsOf(1, 2)))
	err = localmodel.Classify(t.Context(), err)
	blame, permanent := rewards.BlameOf(err)
	assert.Equal(t, rewards.Unavailable, rewards.ClassOf(err), "%v", err)
	assert.Equal(t, rewards.BlameWorker, blame)
	assert.False(t, permanent)
}

func TestATimeoutInTheBatchQueueIsNobodysFaultAndTheComponentsTimeBeginsAfterIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	struck(0, 0)(t, r)
	slow, err := r.pool.Model(model("slow"), pool.ModelOptions{})
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() { _, _ = slow.Infer(ctx, request(slowBatch(1, 10_000_000))) })
	require.Eventually(t, func() bool { return r.device.opener.Stats()["cpu"].Busy == 1 }, 20*time.Second, time.Millisecond)
	late, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = slow.Infer(late, request(slowBatch(1, 4)))
	err = localmodel.Classify(late, err)
	blame, permanent := rewards.BlameOf(err)
	assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	assert.Equal(t, rewards.BlameNobody, blame, "%v", err)
	assert.False(t, permanent)

	time.AfterFunc(time.Second, leave) // longer than the component's time
	f := r.failure(t, 500*time.Millisecond, model("slow"), slowBatch(1, 5))
	assert.Empty(t, f.Class, f.Message)
	busy.Wait()
}
