//go:build cgo

package ort_test

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// A batch takes 20 ms, so that 10,000 samples take some 7 s, and the restarts besides.
func TestTenThousandSamplesGetTheirOwnAnswersWhileACardsChildIsKilledEverySecond(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	const samples, callers = 10_000, 64
	card := ort.NewFakeCard(t)
	card.Always(t, "run", "slow:20ms")
	o := fakeOpener(t, ort.Config{}, card)
	p, err := pool.New(pool.Config{}, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	echo, err := p.Model(on(model("echo")), pool.ModelOptions{})
	require.NoError(t, err)
	_, err = echo.Info(t.Context())
	require.NoError(t, err)

	over, killed := make(chan struct{}), make(chan int)
	go func() { killed <- killEverySecond(func() []int { return o.Stats()["cuda:0"].PIDs }, over) }()
	var next, right atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := next.Add(1); i <= samples && !t.Failed(); i = next.Add(1) {
				x := []float32{float32(i), float32(-i), 1, 2, 3, 4}
				out, err := echo.Infer(t.Context(), infer.Request{Name: "sample", Inputs: []infer.Tensor{infer.Floats("x", x, 1, 2, 3)}})
				if err != nil || out[0].F32[0] != float32(i) || out[0].F32[1] != float32(-i) {
					t.Errorf("sample %d: %v %v", i, out, err)
					return
				}
				right.Add(1)
			}
		})
	}
	all.Wait()
	close(over)
	n := <-killed
	st := o.Stats()["cuda:0"]
	t.Logf("%d children killed; %+v", n, st)
	require.EqualValues(t, samples, right.Load())
	require.GreaterOrEqual(t, n, 3)
	require.GreaterOrEqual(t, st.Restarts, uint64(n))
	require.Nil(t, st.Quarantine, "the card is not to blame for what kills its children from outside")
}

// killEverySecond kills a child each second, and returns how many it has.
func killEverySecond(pids func() []int, over <-chan struct{}) int {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-over:
			return n
		case <-tick.C:
		}
		for _, pid := range pids() {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				n++
			}
		}
	}
}
