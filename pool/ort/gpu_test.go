//go:build cgo && gpu

package ort_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// tolerance is how far a CUDA device may be from the CPU with TF32 off, in values
// between 0 and 1.
const tolerance = 1e-3

// openCUDA opens the first device.
func openCUDA(tb testing.TB) (pool.Runner, *ort.Opener) {
	tb.Helper()
	lib := onnx.Library(tb)
	if !lib.CUDA && os.Getenv("REQUIRE_ORT") == "1" {
		tb.Fatalf("REQUIRE_ORT=1: no CUDA provider beside %s", lib.Path)
	}
	if !lib.CUDA {
		tb.Skipf("SKIPPED: no CUDA provider beside %s", lib.Path)
	}
	o, err := ort.NewOpener(ort.Config{Library: lib.Path})
	require.NoError(tb, err)
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	r, err := o.Open(ctx, "cuda:0")
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(tb, r.Close(ctx))
	})
	require.Equal(tb, 1, r.Slots())
	return r, o
}

// onCUDA is the same model on the first device.
func onCUDA(m infer.Model) infer.Model {
	m.Device = "cuda:0"
	return m
}

// usedMB is the memory in use on the first device.
func usedMB(tb testing.TB) int {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
	if err != nil {
		tb.Skipf("SKIPPED: no nvidia-smi: %v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(tb, err)
	return n
}

// farthest is the largest difference of two outputs of one shape.
func farthest(tb testing.TB, a, b infer.Tensor) float64 {
	tb.Helper()
	require.Equal(tb, a.Shape, b.Shape)
	most := 0.0
	for i := range a.F32 {
		most = max(most, math.Abs(float64(a.F32[i])-float64(b.F32[i])))
	}
	return most
}

func TestADeviceAgreesWithTheCPU(t *testing.T) { //nolint:paralleltest // one device
	cuda, _ := openCUDA(t)
	cpu := openCPU(t, ort.Config{})
	rng := rand.New(rand.NewPCG(3, 4))
	for name, m := range map[string]infer.Model{"conv": model("conv"), "detector": ocrModel(t, "ch_PP-OCRv4_det_mobile")} {
		info, err := cuda.Load(t.Context(), onCUDA(m))
		require.NoError(t, err)
		require.Equal(t, "CUDAExecutionProvider", info.Provider)
		for range 5 {
			b := picture(rng, 320, 736)
			got, err := cuda.Run(t.Context(), onCUDA(m), b)
			require.NoError(t, err)
			want, err := cpu.Run(t.Context(), m, b)
			require.NoError(t, err)
			most := farthest(t, got[0], want[0])
			t.Logf("%s %v: at most %.2g apart", name, b.Inputs[0].Shape, most)
			require.LessOrEqual(t, most, tolerance)
		}
	}
}

func TestADevicesMemoryStaysFlatOverManyRuns(t *testing.T) { //nolint:paralleltest // one device
	cuda, o := openCUDA(t)
	m := onCUDA(ocrModel(t, "ch_PP-OCRv4_det_mobile"))
	_, err := cuda.Load(t.Context(), m)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(5, 6))
	var shapes []infer.Batch
	for range 20 {
		shapes = append(shapes, picture(rng, 320, 736))
	}
	var device, host []int
	var elapsed time.Duration
	for range 3 {
		began := time.Now()
		for i := range 100 {
			_, err := cuda.Run(t.Context(), m, shapes[i%len(shapes)])
			require.NoError(t, err)
		}
		elapsed = time.Since(began)
		device = append(device, usedMB(t))
		host = append(host, residentMB(t, o.Stats()["cuda:0"].PIDs[0]))
	}
	t.Logf("after 100, 200 and 300 runs: device %v MB, process %v MB; %.1f images/s", device, host, 100/elapsed.Seconds())
	require.Less(t, device[2], device[0]+256)
	require.Less(t, host[2], host[0]+128)
	require.Zero(t, o.Stats()["cuda:0"].Crashes)
}

func TestADeviceEndsARunAtItsDeadlineAndGoesOn(t *testing.T) { //nolint:paralleltest // one device
	cuda, o := openCUDA(t)
	m := onCUDA(model("slow"))
	_, err := cuda.Load(t.Context(), m)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = cuda.Run(ctx, m, slowBatch(1, 10_000_000))
	require.ErrorIs(t, err, infer.ErrTimeout)
	out, err := cuda.Run(t.Context(), m, slowBatch(1, 3))
	require.NoError(t, err)
	require.InDelta(t, 4, out[0].F32[0], tolerance)
	t.Logf("%+v", o.Stats()["cuda:0"])
}

func TestTooLargeABatchIsToldAndTheDeviceGoesOn(t *testing.T) { //nolint:paralleltest // one device
	cuda, o := openCUDA(t)
	m := onCUDA(model("huge"))
	_, err := cuda.Run(t.Context(), m, sizes(1<<38, 1)) // 1 TiB
	require.ErrorIs(t, err, infer.ErrMemory)
	out, err := cuda.Run(t.Context(), m, sizes(2, 1))
	require.NoError(t, err)
	require.Equal(t, []float32{0.5, 0.5}, out[0].F32)
	require.Zero(t, o.Stats()["cuda:0"].Crashes)
}

func TestAProbeFindsCUDAToWork(t *testing.T) { //nolint:paralleltest // one device
	lib := onnx.Library(t)
	if !lib.CUDA {
		t.Skipf("SKIPPED: no CUDA provider beside %s", lib.Path)
	}
	_, provider, err := ort.FindCUDA(lib.Path, "")
	require.NoError(t, err)
	require.Empty(t, provider.Missing)
	rep, err := ort.Probe(t.Context(), lib, provider.Folders...)
	require.NoError(t, err)
	require.Empty(t, rep.CUDA)
	require.Contains(t, rep.Providers, "CUDAExecutionProvider")
}

func TestADeviceTakesBytesToNormaliseAndTruthValues(t *testing.T) { //nolint:paralleltest // one device
	cuda, _ := openCUDA(t)
	cpu := openCPU(t, ort.Config{})
	const side = 224
	b := infer.Batch{
		Names:  make([]string, 8),
		Inputs: []infer.Tensor{{Name: "pixel_values", DType: infer.U8, Shape: []int{8, 3, side, side}, U8: noise(8 * 3 * side * side), Norm: clip(side * side)}},
	}
	for _, b.Outputs = range [][]string{{"image_embeds"}, nil} {
		want, err := cpu.Run(t.Context(), model("tower"), b)
		require.NoError(t, err)
		for range 3 {
			got, err := cuda.Run(t.Context(), onCUDA(model("tower")), b)
			require.NoError(t, err)
			require.Len(t, got, len(want))
			for i := range got {
				require.LessOrEqual(t, farthest(t, got[i], want[i]), tolerance)
			}
		}
	}
	for range 3 {
		out, err := cuda.Run(t.Context(), onCUDA(model("flags")), infer.Batch{Names: []string{"a", "b"}, Inputs: []infer.Tensor{{Name: "mask", DType: infer.Bool, Shape: []int{2, 3}, U8: []byte{1, 0, 0, 1, 1, 1}}}})
		require.NoError(t, err)
		require.Equal(t, []byte{0, 1, 1, 0, 0, 0}, out[0].U8)
		require.Equal(t, []int64{1, 3}, out[1].I64)
		out, err = cuda.Run(t.Context(), onCUDA(model("echo")), infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("x", nil, 1, 3, 0, 64)}})
		require.NoError(t, err)
		require.Equal(t, []int{1, 3, 0, 64}, out[0].Shape)
	}
}

func TestADeviceSpeaksAsTheReferenceDoes(t *testing.T) { //nolint:paralleltest // one device
	cuda, o := openCUDA(t)
	flat, three := golden(t)
	for _, decoder := range []string{"flat", "none", "branch", "keep", "keep1", "last", "three"} {
		cases := flat
		if decoder == "three" {
			cases = three
		}
		m := onCUDA(language(decoder))
		info, err := cuda.Load(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, "CUDAExecutionProvider", info.Provider)
		for _, c := range cases {
			requireScoresWithin(t, tolerance, c, len(c.IDs), nil, say(t, cuda, m, c.request(infer.Generate{ImageToken: imageToken, Keep: len(c.IDs)}))[0])
			requireSaidWithin(t, tolerance, c, 12, 12, 0, say(t, cuda, m, c.request(infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3}))[0])
		}
	}
	g := infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3}
	for i, got := range say(t, cuda, onCUDA(language("flat")), flat[2].request(g), flat[3].request(g), flat[4].request(g)) {
		requireSaidWithin(t, tolerance, flat[2+i], 12, 12, 0, got)
	}
	slow := onCUDA(language("slow"))
	_, err := cuda.Load(t.Context(), slow)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = cuda.Run(ctx, slow, batchOf(t, flat[0].request(infer.Generate{MaxNew: 50}))) // 5,000 products of matrices
	require.ErrorIs(t, err, infer.ErrTimeout)
	requireFlat(t, 64, func() { say(t, cuda, onCUDA(language("flat")), flat[2].request(g)) })
	require.Zero(t, o.Stats()["cuda:0"].Crashes)
}

func TestADeviceInHalfPrecisionAgreesWithTheCPUInFloats(t *testing.T) { //nolint:paralleltest // one device
	cuda, o := openCUDA(t)
	cpu := openCPU(t, ort.Config{})
	half, full := onCUDA(model("vit_fp16")), model("vit")
	info, err := cuda.Load(t.Context(), half)
	require.NoError(t, err)
	require.Equal(t, "CUDAExecutionProvider", info.Provider)
	require.Equal(t, []infer.Port{{Name: "pixel_values", DType: "F16", Shape: []int{-1, 3, -1, -1}}}, info.Inputs)
	for _, b := range []infer.Batch{picturesOf(1, 64), picturesOf(8, 224, "image_embeds"), picturesOf(8, 224)} {
		want, err := cpu.Run(t.Context(), full, b)
		require.NoError(t, err)
		for range 3 {
			got, err := cuda.Run(t.Context(), half, b)
			require.NoError(t, err)
			require.Len(t, got, len(want))
			for i := range got {
				most := farthest(t, got[i], want[i])
				t.Logf("%s %v: at most %.2g apart", got[i].Name, got[i].Shape, most)
				require.LessOrEqual(t, most, nearHalf)
			}
		}
	}
	all := numbersOfHalf()
	for _, rows := range []int{2, 64, 2} {
		out, err := cuda.Run(t.Context(), onCUDA(model("half_echo")), infer.Batch{
			Names: make([]string, rows), Inputs: []infer.Tensor{infer.Floats("x", all, rows, len(all)/rows)}, Outputs: []string{"y"},
		})
		require.NoError(t, err)
		require.Equal(t, infer.Floats("y", all, rows, len(all)/rows), out[0])
	}
	b := picturesOf(8, 224, "image_embeds")
	requireFlat(t, 64, func() {
		_, err := cuda.Run(t.Context(), half, b)
		require.NoError(t, err)
	})
	require.Zero(t, o.Stats()["cuda:0"].Crashes)
}

func TestADeviceSpeaksInHalfPrecision(t *testing.T) { //nolint:paralleltest // one device
	cuda, o := openCUDA(t)
	requireHalfSpeaks(t, cuda, "cuda:0")
	flat, _ := golden(t)
	item := flat[2].request(infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3})
	whole := onCUDA(language("flat_fp16"))
	whole.Embed = language("embed_fp16").Path
	requireFlat(t, 64, func() { say(t, cuda, whole, item) })
	require.Zero(t, o.Stats()["cuda:0"].Crashes)
}

// requireFlat runs 300 times, and looks that the device's memory stays within so many MB.
func requireFlat(tb testing.TB, margin int, run func()) {
	tb.Helper()
	var device []int
	for range 3 {
		for range 100 {
			run()
		}
		device = append(device, usedMB(tb))
	}
	tb.Logf("after 100, 200 and 300 runs: device %v MB", device)
	require.Less(tb, device[2], device[0]+margin)
}
