//go:build cgo

package ort_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bindings "github.com/yalue/onnxruntime_go"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// The rows and times of a run that reads its input 400 times over some tens of
// milliseconds. Its data have 64 KB, an allocation of their own that is used again
// soon.
const (
	lifeRows  = 64
	lifeTimes = 400
)

// naive runs the slow model as the bindings' examples do: nothing refers to the
// tensors once Run has taken their pointers.
func naive(session *bindings.DynamicAdvancedSession) (float32, error) {
	b := slowBatch(lifeRows, lifeTimes)
	x, err := bindings.NewTensor(bindings.NewShape(lifeRows, 256), b.Inputs[0].F32)
	if err != nil {
		return 0, err
	}
	n, err := bindings.NewTensor(bindings.NewShape(lifeRows), b.Inputs[1].I64)
	if err != nil {
		return 0, err
	}
	out := []bindings.Value{nil}
	if err := session.Run([]bindings.Value{x, n}, out); err != nil {
		return 0, err
	}
	return worst(out[0].(*bindings.Tensor[float32]).GetData()), nil
}

// worst is the value that is farthest from what the slow model gives.
func worst(y []float32) float32 {
	return slices.MaxFunc(y, func(a, b float32) int {
		away := func(v float32) float32 { return max(v-lifeTimes-1, lifeTimes+1-v) }
		if away(a) > away(b) || a != a {
			return 1
		}
		return -1
	})
}

// collecting collects garbage all the time, and fills what it freed, until the
// returned function is called.
func collecting() (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			runtime.GC()
			for range 32 {
				junk := make([]float32, lifeRows*256)
				for i := range junk {
					junk[i] = 7
				}
				runtime.KeepAlive(junk)
			}
		}
	})
	return func() { close(over); wg.Wait() }
}

// The bindings keep nothing alive during a run: the naive way gives wrong numbers
// sooner or later, and a Session never.
func TestTensorsOutliveTheirRunWhateverTheCollectorDoes(t *testing.T) { //nolint:paralleltest // it wants the collector for itself
	s := open(t, "slow")
	raw, err := bindings.NewDynamicAdvancedSession(fixture("slow"), []string{"x", "n"}, []string{"y"}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, raw.Destroy()) }()
	defer collecting()()

	budget := 10 * time.Second
	if testing.Short() {
		budget = 2 * time.Second
	}
	began, tries, caught := time.Now(), 0, false
	for ; !caught && time.Since(began) < budget; tries++ {
		y, err := naive(raw)
		require.NoError(t, err)
		if caught = y != lifeTimes+1; caught {
			t.Logf("the naive way gave %v instead of %d in run %d", y, lifeTimes+1, tries+1)
		}
	}
	if !caught {
		t.Logf("the naive way gave no wrong number in %d runs and %v: this machine's collector was kind", tries, budget)
	}
	for i := range max(2*tries, 40) {
		a, err := s.Run(t.Context(), slowBatch(lifeRows, lifeTimes))
		require.NoError(t, err)
		require.InDelta(t, lifeTimes+1, worst(a.Outputs[0].F32), 0, "run %d", i)
		if i%2 == 0 {
			a.Release()
		}
	}
	var kept []infer.Tensor // outputs that were never released stay as they are
	for range 8 {
		a, err := s.Run(t.Context(), slowBatch(lifeRows, 3))
		require.NoError(t, err)
		kept = append(kept, a.Outputs...)
	}
	runtime.GC()
	for _, y := range kept {
		require.InDelta(t, 4, slices.Max(y.F32), 0)
		require.InDelta(t, 4, slices.Min(y.F32), 0)
	}
}
