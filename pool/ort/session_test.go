//go:build cgo

package ort_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

func openModel(tb testing.TB, m infer.Model, want infer.Info) (*ort.Session, error) {
	tb.Helper()
	m.Device = "cpu"
	return ort.OpenSession(ort.SessionConfig{Library: onnx.Library(tb), Model: m, Want: want})
}

// open opens a model of testdata.
func open(tb testing.TB, name string) *ort.Session {
	tb.Helper()
	s, err := openModel(tb, infer.Model{Name: name, Path: fixture(name)}, infer.Info{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// outputs runs a batch and returns what came out.
func outputs(tb testing.TB, s *ort.Session, reduce infer.Reduction, inputs ...infer.Tensor) []infer.Tensor {
	tb.Helper()
	a, err := s.Run(tb.Context(), infer.Batch{Names: []string{"a"}, Inputs: inputs, Reduce: reduce})
	require.NoError(tb, err)
	return a.Outputs
}

// slowBatch takes some 10 µs for every time; its rows are 1 + times everywhere.
func slowBatch(rows int, times int64) infer.Batch {
	b := infer.Batch{Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 256*rows), rows, 256), {Name: "n", DType: infer.I64, Shape: []int{rows}, I64: make([]int64, rows)}}}
	for i := range b.Inputs[0].F32 {
		b.Inputs[0].F32[i] = 1
	}
	for i := range rows {
		b.Inputs[1].I64[i] = times
		b.Names = append(b.Names, strconv.Itoa(i))
	}
	return b
}

func TestAModelSaysWhatItIs(t *testing.T) {
	t.Parallel()
	require.Equal(t, infer.Info{
		Inputs:   []infer.Port{{Name: "in_f32", DType: "F32", Shape: []int{-1, 2}}, {Name: "in_i64", DType: "I64", Shape: []int{-1, 2}}, {Name: "in_i32", DType: "I32", Shape: []int{-1, 2}}, {Name: "in_u8", DType: "U8", Shape: []int{-1, 2}}},
		Outputs:  []infer.Port{{Name: "out_f32", DType: "F32", Shape: []int{-1, 2}}, {Name: "out_i64", DType: "I64", Shape: []int{-1, 2}}, {Name: "out_i32", DType: "I32", Shape: []int{-1, 2}}, {Name: "out_u8", DType: "U8", Shape: []int{-1, 2}}},
		Metadata: map[string]string{"character": "a\nb\né", "empty": ""},
		Provider: "CPUExecutionProvider",
	}, open(t, "dtypes").Info())
	require.Nil(t, open(t, "echo").Info().Metadata)
}

func TestEveryTypeGoesInAndComesOut(t *testing.T) {
	t.Parallel()
	s := open(t, "dtypes")
	for range 3 { // the first has ORT make the outputs, the others memory of ours
		out := outputs(t, s, infer.AsIs, // in another order than the model's
			infer.Tensor{Name: "in_u8", DType: infer.U8, Shape: []int{1, 2}, U8: []byte{0, 254}},
			infer.Tensor{Name: "in_i32", DType: infer.I32, Shape: []int{1, 2}, I32: []int32{-1, 1 << 30}},
			infer.Floats("in_f32", []float32{-3, 4}, 1, 2),
			infer.Tensor{Name: "in_i64", DType: infer.I64, Shape: []int{1, 2}, I64: []int64{-1 << 40, 9}})
		require.Equal(t, []infer.Tensor{
			infer.Floats("out_f32", []float32{-2, 5}, 1, 2),
			{Name: "out_i64", DType: infer.I64, Shape: []int{1, 2}, I64: []int64{-1<<40 + 1, 10}},
			{Name: "out_i32", DType: infer.I32, Shape: []int{1, 2}, I32: []int32{0, 1<<30 + 1}},
			{Name: "out_u8", DType: infer.U8, Shape: []int{1, 2}, U8: []byte{1, 255}},
		}, out)
	}
}

func TestScalarsGoInAndComeOut(t *testing.T) {
	t.Parallel()
	s := open(t, "scalar")
	for _, factor := range []float32{2, -3} {
		out := outputs(t, s, infer.AsIs, infer.Floats("x", []float32{1, 2, 3}, 1, 3), infer.Floats("factor", []float32{factor}))
		require.Equal(t, []infer.Tensor{infer.Floats("total", []float32{6 * factor}, []int{}...)}, normal(out))
	}
}

// normal makes equal what means the same to require.Equal.
func normal(all []infer.Tensor) []infer.Tensor {
	for i := range all {
		if len(all[i].Shape) == 0 {
			all[i].Shape = []int{}[:0:0]
		}
	}
	return all
}

func TestTheOnlyInputNeedsNoName(t *testing.T) {
	t.Parallel()
	s := open(t, "echo")
	want := infer.Floats("y", []float32{1, 2, 3, 4}, 1, 1, 2, 2)
	require.Equal(t, []infer.Tensor{want}, outputs(t, s, infer.AsIs, infer.Floats("", want.F32, 1, 1, 2, 2)))
}

func TestOutputsOfForeseenAndUnforeseenShapesAreRight(t *testing.T) {
	t.Parallel()
	s := open(t, "nonzero") // as many columns as values that are not 0
	for _, tt := range []struct {
		x    []float32
		want []int64
	}{
		{[]float32{1, 0, 0, 1}, []int64{0, 0, 0, 3}},
		{[]float32{0, 1, 1, 0}, []int64{0, 0, 1, 2}},       // the shape that is foreseen
		{[]float32{1, 1, 1, 0}, []int64{0, 0, 0, 0, 1, 2}}, // another
		{[]float32{0, 0, 0, 0}, []int64{}},
		{[]float32{0, 0, 1, 0}, []int64{0, 2}},
	} {
		out := outputs(t, s, infer.AsIs, infer.Floats("x", tt.x, 1, 4))
		require.Equal(t, tt.want, out[0].I64)
		require.Equal(t, []int{2, len(tt.want) / 2}, out[0].Shape)
	}
	for _, name := range []string{"through", "liar"} {
		s := open(t, name)
		for i := range 3 {
			v := float32(i + 1)
			out := outputs(t, s, infer.AsIs, infer.Floats("x", []float32{v, 2 * v}, 1, 2))
			require.Equal(t, infer.Floats("y", []float32{-v, -2 * v}, 1, 2), out[len(out)-1], name)
			if name == "through" {
				require.Equal(t, infer.Floats("x", []float32{v, 2 * v}, 1, 2), out[0])
			}
		}
	}
	empty := outputs(t, open(t, "echo"), infer.AsIs, infer.Floats("x", []float32{}, 0, 3, 2, 2))
	require.Equal(t, []int{0, 3, 2, 2}, empty[0].Shape)
}

func TestMemoryIsUsedAgainOnlyWhenItWasReleased(t *testing.T) {
	t.Parallel()
	s := open(t, "echo")
	run := func(v float32) *ort.Answer {
		x := make([]float32, 1000)
		for i := range x {
			x[i] = v
		}
		a, err := s.Run(t.Context(), infer.Batch{Inputs: []infer.Tensor{infer.Floats("x", x, 1, 1, 10, 100)}})
		require.NoError(t, err)
		return a
	}
	run(0)
	first, second := run(1), run(2)
	require.InDelta(t, 1, first.Outputs[0].F32[999], 0)
	require.InDelta(t, 2, second.Outputs[0].F32[999], 0)
	at := &first.Outputs[0].F32[0]
	first.Release()
	first.Release()
	third := run(3)
	require.Same(t, at, &third.Outputs[0].F32[0])
	require.InDelta(t, 2, second.Outputs[0].F32[999], 0)
}

func TestTheLargestIsPickedWhereItWasComputed(t *testing.T) {
	t.Parallel()
	out := outputs(t, open(t, "echo"), infer.ArgMax, infer.Floats("x", []float32{0, 2, 1, -5, -6, -4}, 2, 1, 1, 3))
	require.Equal(t, []infer.Tensor{
		{Name: "y", DType: infer.I32, Shape: []int{2, 1, 1}, I32: []int32{1, 2}},
		infer.Floats("y.max", []float32{2, -4}, 2, 1, 1),
	}, out)
	_, err := open(t, "echo").Run(t.Context(), infer.Batch{Reduce: "softmax", Inputs: []infer.Tensor{infer.Floats("x", []float32{1}, 1, 1, 1, 1)}})
	require.ErrorIs(t, err, infer.ErrInput)
}

func TestABatchThatDoesNotFitIsRefusedWithBothSides(t *testing.T) {
	t.Parallel()
	s := open(t, "conv")
	for name, bad := range map[string][]infer.Tensor{
		"none":       nil,
		"two":        {infer.Floats("x", make([]float32, 3), 1, 3, 1, 1), infer.Floats("z", make([]float32, 3), 1, 3, 1, 1)},
		"other name": {infer.Floats("z", make([]float32, 3), 1, 3, 1, 1)},
		"other type": {{Name: "x", DType: infer.U8, Shape: []int{1, 3, 1, 1}, U8: make([]byte, 3)}},
		"other size": {infer.Floats("x", make([]float32, 4), 1, 4, 1, 1)},
		"other rank": {infer.Floats("x", make([]float32, 3), 3, 1, 1)},
	} {
		_, err := s.Run(t.Context(), infer.Batch{Inputs: bad})
		require.ErrorIs(t, err, infer.ErrInput, name)
		require.ErrorContains(t, err, "the model takes [x F32[-1 3 -1 -1]], the batch has [")
	}
	_, err := s.Run(t.Context(), infer.Batch{Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 4), 1, 3, 1, 1)}})
	require.ErrorIs(t, err, infer.ErrInput)
	// An odd side comes out even, and an axis of 0 is refused by a node.
	_, err = s.Run(t.Context(), infer.Batch{Inputs: []infer.Tensor{infer.Floats("x", nil, 1, 3, 0, 0)}})
	if err != nil {
		require.ErrorIs(t, err, infer.ErrInput)
	}
}

func TestAModelOtherThanWantedIsRefusedWithBothSides(t *testing.T) {
	t.Parallel()
	m := infer.Model{Name: "conv", Path: fixture("conv")}
	s, err := openModel(t, m, infer.Info{
		Inputs:  []infer.Port{{Name: "x", DType: "F32", Shape: []int{-1, 3, 48, -1}}}, // a model with free sizes will do
		Outputs: []infer.Port{{Name: "map", DType: "F32", Shape: []int{-1, 1, -1, -1}}},
	})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for _, want := range []infer.Port{
		{Name: "image", DType: "F32", Shape: []int{-1, 3, -1, -1}},
		{Name: "x", DType: "U8", Shape: []int{-1, 3, -1, -1}},
		{Name: "x", DType: "F32", Shape: []int{-1, 4, -1, -1}},
		{Name: "x", DType: "F32", Shape: []int{-1, -1}},
	} {
		_, err := openModel(t, m, infer.Info{Inputs: []infer.Port{want}})
		require.ErrorIs(t, err, infer.ErrModel)
		require.ErrorContains(t, err, "has inputs [x F32[-1 3 -1 -1]] and outputs [map F32[-1 1 -1 -1]], want inputs ["+want.Name)
	}
}

// badFiles are models that are none, with what is said of them.
func badFiles(tb testing.TB) map[string]infer.Model {
	tb.Helper()
	dir := tb.TempDir()
	whole, err := os.ReadFile(fixture("conv"))
	require.NoError(tb, err)
	var picture bytes.Buffer
	require.NoError(tb, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 64, 64))))
	damaged := bytes.Clone(whole)
	for i := 10; i < len(damaged); i += 7 {
		damaged[i] ^= 0x5a
	}
	write := func(name string, data []byte) infer.Model {
		path := filepath.Join(dir, name)
		require.NoError(tb, os.WriteFile(path, data, 0o600))
		return infer.Model{Name: name, Path: path, Device: "cpu"}
	}
	enormous := write("enormous.onnx", nil)
	require.NoError(tb, os.Truncate(enormous.Path, 3<<30)) // a hole: it takes no space
	pipe := filepath.Join(dir, "pipe.onnx")
	require.NoError(tb, syscall.Mkfifo(pipe, 0o600))
	wrong := infer.Model{Name: "conv", Path: fixture("conv"), SHA256: strings.Repeat("0", 64), Device: "cpu"}
	return map[string]infer.Model{
		"no such file":                  {Name: "missing", Path: filepath.Join(dir, "missing.onnx"), Device: "cpu"},
		"a folder, want the .onnx file": {Name: "folder", Path: dir, Device: "cpu"},
		"the file is empty":             write("empty.onnx", nil),
		"damaged or truncated":          write("short.onnx", whole[:len(whole)/2]),
		"Load model from":               write("damaged.onnx", damaged),
		"the file is a PNG picture":     write("picture.onnx", picture.Bytes()),
		`text that begins "404`:         write("page.onnx", []byte("404 page not found\n")),
		"a pointer of Git LFS":          write("lfs.onnx", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")),
		"want at most 2147483648":       enormous,
		"not a regular file":            {Name: "pipe", Path: pipe, Device: "cpu"},
		"want 0000000000000000000000":   wrong,
		"a ZIP archive (such as a PyT":  write("model.pt", []byte("PK\x03\x04rest")),
	}
}

func TestABadFileIsRefusedWithItsPathAndTheReason(t *testing.T) {
	t.Parallel()
	onnx.Library(t)
	for says, m := range badFiles(t) {
		_, err := openModel(t, m, infer.Info{})
		require.ErrorIs(t, err, infer.ErrModel, m.Name)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, m.Path)
	}
}

func TestARightChecksumLoads(t *testing.T) {
	t.Parallel()
	const sum = "5A" // replaced below
	_, err := openModel(t, infer.Model{Name: "echo", Path: fixture("echo"), SHA256: sum}, infer.Info{})
	require.ErrorIs(t, err, infer.ErrModel)
	_, found, _ := strings.Cut(err.Error(), "SHA-256 is ")
	s, err := openModel(t, infer.Model{Name: "echo", Path: fixture("echo"), SHA256: strings.ToUpper(found[:64])}, infer.Info{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestACUDADeviceWithoutItsProviderIsALoadErrorThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	lib := onnx.Library(t)
	if lib.CUDA {
		t.Skip("SKIPPED: the CUDA provider is there")
	}
	_, err := ort.OpenSession(ort.SessionConfig{Library: lib, Model: infer.Model{Name: "conv", Path: fixture("conv"), Device: "cuda:0"}})
	require.ErrorIs(t, err, infer.ErrUnavailable)
	require.ErrorContains(t, err, "libonnxruntime_providers_cuda.so")
	require.ErrorContains(t, err, "GPU package")
}

func TestNaNAndInfinitiesAreTheFaultOfWhoeverMadeThem(t *testing.T) {
	t.Parallel()
	s := open(t, "log")
	run := func(x ...float32) error {
		_, err := s.Run(t.Context(), infer.Batch{Inputs: []infer.Tensor{infer.Floats("", x, 1, 2)}})
		return err
	}
	require.NoError(t, run(1, 2))
	require.ErrorIs(t, run(1, -1), infer.ErrFault) // log(-1) is NaN
	err := run(1, 0)
	require.ErrorIs(t, err, infer.ErrFault)
	require.ErrorContains(t, err, `output "y" has -Inf at 1`)
	err = run(float32(math.NaN()), 1)
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, `input "x" has NaN at 0`)
	require.ErrorIs(t, run(1, float32(math.Inf(1))), infer.ErrInput)
	require.NoError(t, run(3, 4))
}

func TestAskingForTooMuchMemoryIsAnErrorOfThatClass(t *testing.T) {
	t.Parallel()
	s := open(t, "huge")
	size := func(n int64) infer.Batch {
		return infer.Batch{Inputs: []infer.Tensor{{DType: infer.I64, Shape: []int{1}, I64: []int64{n}}}}
	}
	_, err := s.Run(t.Context(), size(1<<44)) // 64 TiB
	require.ErrorIs(t, err, infer.ErrMemory)
	a, err := s.Run(t.Context(), size(2))
	require.NoError(t, err)
	require.Equal(t, []float32{0.5, 0.5}, a.Outputs[0].F32)
}

func TestARunEndsWithItsContextAndTheSessionGoesOn(t *testing.T) {
	t.Parallel()
	s := open(t, "slow")
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		_, err := s.Run(ctx, slowBatch(1, 1_000_000)) // some 10 s
		cancel()
		require.ErrorIs(t, err, infer.ErrTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), 5*time.Second)

		a, err := s.Run(t.Context(), slowBatch(2, 3))
		require.NoError(t, err)
		require.InDelta(t, 4, a.Outputs[0].F32[511], 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(30*time.Millisecond, cancel)
	_, err := s.Run(ctx, slowBatch(1, 1_000_000))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, infer.ErrTimeout)
	_, err = s.Run(ctx, slowBatch(1, 1))
	require.ErrorIs(t, err, context.Canceled)
}

func TestCloseWaitsForRunsAndRefusesLaterOnes(t *testing.T) {
	t.Parallel()
	s, err := openModel(t, infer.Model{Name: "slow", Path: fixture("slow")}, infer.Info{})
	require.NoError(t, err)
	results := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		a, err := s.Run(ctx, slowBatch(1, 20_000))
		if err == nil && a.Outputs[0].F32[0] != 20_001 {
			err = fmt.Errorf("it gave %v", a.Outputs[0].F32[0])
		}
		results <- err
	}()
	runtime.Gosched()
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	if err := <-results; err != nil { // it may have come too late
		require.ErrorIs(t, err, infer.ErrUnavailable)
	}
	_, err = s.Run(t.Context(), slowBatch(1, 1))
	require.ErrorIs(t, err, infer.ErrUnavailable)
}

// status reads a number of /proc/self/status.
func status(tb testing.TB, field string) int {
	tb.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Skipf("SKIPPED: no /proc: %v", err)
	}
	_, rest, _ := strings.Cut(string(data), field+":")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(tb, err)
	return n
}

// Every run in C holds a thread; without a bound 64 callers made 22 of them.
func TestManyCallersDoNotMakeManyThreads(t *testing.T) { //nolint:paralleltest // it counts the process's threads
	s := open(t, "slow")
	before := status(t, "Threads")
	var callers sync.WaitGroup
	most := 0
	var mu sync.Mutex
	for range 64 {
		callers.Go(func() {
			for range 3 {
				a, err := s.Run(t.Context(), slowBatch(1, 1000))
				if err != nil || a.Outputs[0].F32[0] != 1001 {
					t.Errorf("%v %v", a, err)
					return
				}
				a.Release()
				n := status(t, "Threads")
				mu.Lock()
				most = max(most, n)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	t.Logf("%d threads before, %d at most", before, most)
	require.LessOrEqual(t, most, before+runtime.NumCPU()+6) // the runtime's own besides
}

func TestVaryingShapesDoNotMakeMemoryGrow(t *testing.T) { //nolint:paralleltest // it measures the process
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	s := open(t, "conv")
	sides := []int{64, 320, 96, 512, 160, 704, 416, 608, 224, 288}
	x := make([]float32, 3*704*704)
	measure := func(rounds int) int {
		for r := range rounds {
			for i, h := range sides {
				w := sides[(i*7+r)%len(sides)]
				a, err := s.Run(t.Context(), infer.Batch{Inputs: []infer.Tensor{infer.Floats("x", x[:3*h*w], 1, 3, h, w)}})
				require.NoError(t, err)
				require.Equal(t, []int{1, 1, h, w}, a.Outputs[0].Shape)
				a.Release()
			}
		}
		runtime.GC()
		return status(t, "VmRSS") >> 10
	}
	after := [...]int{measure(4), measure(4), measure(4)}
	t.Logf("MB after 40, 80 and 120 runs: %v", after)
	require.Less(t, after[2], after[0]+32)
}
