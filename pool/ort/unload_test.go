//go:build cgo && linux

package ort_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// wide is how many floats the rows of a wide model have; its weights are 64 MiB.
const wide = 4096

// wideModel writes y = xW, where W is 1 everywhere.
func wideModel(tb testing.TB) infer.Model {
	tb.Helper()
	field := func(n int, parts ...[]byte) []byte {
		var body []byte
		for _, p := range parts {
			body = append(body, p...)
		}
		return append(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(n<<3|2)), uint64(len(body))), body...)
	}
	number := func(n int, v uint64) []byte { return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(n<<3)), v) }
	text := func(n int, s string) []byte { return field(n, []byte(s)) }
	port := func(n int, name string) []byte {
		batch, width := field(1, text(2, "b")), field(1, number(1, wide))
		return field(n, text(1, name), field(2, field(1, number(1, 1), field(2, batch, width))))
	}
	weights := make([]byte, 4*wide*wide)
	for i := 0; i < len(weights); i += 4 {
		binary.LittleEndian.PutUint32(weights[i:], math.Float32bits(1))
	}
	graph := field(7,
		field(1, text(1, "x"), text(1, "w"), text(2, "y"), text(4, "MatMul")),
		text(2, "wide"),
		field(5, number(1, wide), number(1, wide), number(2, 1), text(8, "w"), field(9, weights)),
		port(11, "x"), port(12, "y"))
	path := filepath.Join(tb.TempDir(), "wide.onnx")
	data := append(append(number(1, 8), graph...), field(8, number(2, 17))...)
	require.NoError(tb, os.WriteFile(path, data, 0o600))
	return infer.Model{Name: "wide", Path: path, Device: "cpu"}
}

// held is the resident memory of processes.
func held(tb testing.TB, pids []int) int64 {
	tb.Helper()
	var sum int64
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		require.NoError(tb, err)
		var all, resident int64
		_, err = fmt.Sscan(string(data), &all, &resident)
		require.NoError(tb, err)
		sum += resident * int64(os.Getpagesize())
	}
	return sum
}

func TestAModelThatIsUnloadedGivesItsMemoryBackAndTheNextRunLoadsItAgain(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{Slots: 2})
	m := wideModel(t)
	before := held(t, d.pids())
	_, err := d.Load(t.Context(), m)
	require.NoError(t, err)
	require.True(t, ort.EveryoneHas(d.Runner, m))
	require.GreaterOrEqual(t, held(t, d.pids())-before, int64(2*60<<20), "each process has the weights")

	require.NoError(t, d.Unload(t.Context(), m))
	assert.Less(t, held(t, d.pids())-before, int64(2*16<<20))
	require.False(t, ort.EveryoneHas(d.Runner, m))
	require.NoError(t, d.Unload(t.Context(), m), "twice is harmless")

	x := infer.Floats("x", make([]float32, wide), 1, wide)
	x.F32[7] = 3
	out, err := d.Run(t.Context(), m, infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{x}})
	require.NoError(t, err)
	require.InDelta(t, 3, out[0].F32[wide-1], 0)
	require.Zero(t, d.opener.Stats()["cpu"].Crashes)
}

func TestAnUnloadWaitsForTheProcessThatIsBusyAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{Slots: 1})
	_, err := d.Load(t.Context(), model("slow"))
	require.NoError(t, err)
	var running sync.WaitGroup
	defer running.Wait()
	began := make(chan struct{})
	running.Go(func() {
		b := slowBatch(8, 20_000)
		b.Began = func() { close(began) }
		_, err := d.Run(t.Context(), model("slow"), b)
		assert.NoError(t, err)
	})
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, d.Unload(ctx, model("echo")), infer.ErrTimeout)
	require.NoError(t, d.Unload(t.Context(), model("echo")))
}

func TestARestartLeavesNoModelLoadedAndTheNextRunsLoadWhatTheyNeed(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations() {
		d := openCPU(t, ort.Config{Isolation: isolation, Slots: 2})
		for _, name := range []string{"echo", "conv"} {
			_, err := d.Load(t.Context(), model(name))
			require.NoError(t, err)
		}
		require.NoError(t, d.Restart(t.Context()))
		if isolation == ort.Process {
			require.False(t, ort.EveryoneHas(d.Runner, model("echo")))
		}
		for i := range 4 {
			out, err := d.Run(t.Context(), model("echo"), rowsOf(2, float32(i)))
			require.NoError(t, err)
			require.InDelta(t, float32(i), out[0].F32[11], 0)
		}
		require.NoError(t, d.Unload(t.Context(), model("conv")))
		require.Zero(t, d.opener.Stats()["cpu"].Crashes)
	}
}

// cardPool is a pool with a fake card.
func cardPool(t *testing.T, cfg pool.Config, card ort.FakeCard) (*pool.Pool, *ort.Opener) {
	t.Helper()
	o := fakeOpener(t, ort.Config{}, card)
	p, err := pool.New(cfg, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	return p, o
}

// sums asks a wide model for the sum of numbers of which one is not 0.
func sums(t *testing.T, p *pool.Pool, m infer.Model, v float32) {
	t.Helper()
	h, err := p.Model(m, pool.ModelOptions{})
	require.NoError(t, err)
	x := infer.Floats("x", make([]float32, wide), wide)
	x.F32[wide/2] = v
	out, err := h.Infer(t.Context(), infer.Request{Name: "a", Inputs: []infer.Tensor{x}})
	require.NoError(t, err)
	require.InDelta(t, v, out[0].F32[1], 0)
}

func TestOnACardTooSmallForBothOneOfTwoModelsIsInTheProcessAtATime(t *testing.T) {
	t.Parallel()
	one, two := on(wideModel(t)), on(wideModel(t))
	need := pool.Estimate(one)
	require.Greater(t, need, int64(2*64<<20))
	p, o := cardPool(t, pool.Config{Memory: map[string]int64{"cuda:0": need + need/2}}, ort.NewFakeCard(t))
	sums(t, p, one, 1)
	pids := o.Stats()["cuda:0"].PIDs
	before := held(t, pids)
	for i := range 4 {
		sums(t, p, []infer.Model{two, one}[i%2], float32(i))
		require.Less(t, held(t, pids)-before, int64(32<<20), "the weights of the other are gone")
	}
	d := p.Stats().Devices[0]
	require.EqualValues(t, 4, d.Evictions)
	require.Equal(t, need, d.Taken)
	require.Equal(t, pids, o.Stats()["cuda:0"].PIDs, "in the same process")
}

func TestAnItemForWhichACardLacksMemoryIsAnsweredByANewProcess(t *testing.T) {
	t.Parallel()
	card := ort.NewFakeCard(t)
	p, o := cardPool(t, pool.Config{}, card)
	one, two := on(model("echo")), on(model("log"))
	for _, m := range []infer.Model{one, two} {
		h, err := p.Model(m, pool.ModelOptions{})
		require.NoError(t, err)
		_, err = h.Info(t.Context())
		require.NoError(t, err)
	}
	pids := o.Stats()["cuda:0"].PIDs
	h, err := p.Model(one, pool.ModelOptions{})
	require.NoError(t, err)
	lack := "text:Failed to allocate memory for requested buffer of size 1"
	card.Next(t, "run", lack, lack)
	out, err := h.Infer(t.Context(), infer.Request{Name: "a", Inputs: []infer.Tensor{infer.Floats("x", []float32{1, 2, 3, 4, 5, 6}, 1, 2, 3)}})
	require.NoError(t, err)
	require.InDelta(t, 6, out[0].F32[5], 0)
	d := p.Stats().Devices[0]
	require.EqualValues(t, 1, d.Restarts)
	require.EqualValues(t, 1, d.Evictions, "the other model was unloaded before")
	require.NotEqual(t, pids, o.Stats()["cuda:0"].PIDs)
	require.Zero(t, o.Stats()["cuda:0"].Crashes)
	require.Equal(t, 1, card.Count(t, "unload"))
	require.Equal(t, 2, card.Count(t, "load"), "the new process has loaded what it was asked to run, and nothing else")
}

func TestAModelOnTwoCardsLosesNoItemWhileOneOfThemFailsAndUsesItAgainAfterwards(t *testing.T) {
	t.Parallel()
	cards := []ort.FakeCard{ort.NewFakeCard(t), ort.NewFakeCard(t)}
	p, err := pool.New(pool.Config{}, fakeOpener(t, ort.Config{}, cards...))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	m := model("echo")
	m.Device = "cuda"
	h, err := p.Model(m, pool.ModelOptions{Devices: []string{"cuda:0", "cuda:1"}})
	require.NoError(t, err)
	ask := func(v float32) bool {
		out, err := h.Infer(t.Context(), infer.Request{Name: fmt.Sprint(v), Inputs: []infer.Tensor{infer.Floats("x", []float32{v, v}, 1, 1, 2)}})
		return assert.NoError(t, err) && assert.InDelta(t, v, out[0].F32[1], 0)
	}
	second := func() pool.Counts { return p.Stats().Devices[1].Models[0].Total }
	require.True(t, ask(1))
	require.Eventually(t, func() bool { return p.Stats().Devices[1].Models[0].Loaded }, 30*time.Second, time.Millisecond)

	for _, op := range []string{"run", "canary"} {
		cards[1].Always(t, op, "text:CUDA failure 719: unspecified launch failure")
	}
	var callers sync.WaitGroup
	for c := range 8 {
		callers.Go(func() {
			for i := range 50 {
				ask(float32(100*c + i))
			}
		})
	}
	callers.Wait()
	require.Positive(t, second().Moved)
	require.Zero(t, second().Failed)
	for _, op := range []string{"run", "canary"} {
		cards[1].Cure(t, op)
	}
	before := second().Items
	require.Eventually(t, func() bool { return ask(7) && second().Items > before }, 30*time.Second, time.Millisecond)
}
