//go:build cgo

package ort_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// ocrModel is a model of the folder that REWARDLOOP_MODELS names.
func ocrModel(tb testing.TB, name string) infer.Model {
	tb.Helper()
	path := filepath.Join(os.Getenv("REWARDLOOP_MODELS"), name+".onnx")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("REQUIRE_ORT") == "1" && os.Getenv("REWARDLOOP_MODELS") != "" {
			tb.Fatalf("REQUIRE_ORT=1: %v", err)
		}
		tb.Skipf("SKIPPED: no model: set REWARDLOOP_MODELS to the folder of %s.onnx", name)
	}
	return infer.Model{Name: name, Path: path, Device: "cpu"}
}

// residentMB is the memory of a process.
func residentMB(tb testing.TB, pid int) int {
	tb.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(tb, err)
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(tb, err)
	return kb >> 10
}

// picture is a batch of one picture for the detector, sides in steps of 32.
func picture(rng *rand.Rand, least, most int) infer.Batch {
	h, w := 32*(least/32+rng.IntN((most-least)/32+1)), 32*(least/32+rng.IntN((most-least)/32+1))
	x := make([]float32, 3*h*w)
	for i := range x {
		x[i] = rng.Float32()*2 - 1
	}
	return infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("", x, 1, 3, h, w)}}
}

func TestTheTextDetectorsMemoryStaysFlatOverVaryingShapes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	m := ocrModel(t, "ch_PP-OCRv4_det_mobile")
	d := openCPU(t, ort.Config{})
	began := time.Now()
	info, err := d.Load(t.Context(), m)
	require.NoError(t, err)
	t.Logf("loaded in %v: %+v", time.Since(began), info)
	rng := rand.New(rand.NewPCG(1, 2))
	var after []int
	var run time.Duration
	for range 3 {
		for range 6 {
			b := picture(rng, 320, 736)
			began := time.Now()
			out, err := d.Run(t.Context(), m, b)
			require.NoError(t, err)
			run += time.Since(began)
			require.Equal(t, []int{1, 1, b.Inputs[0].Shape[2], b.Inputs[0].Shape[3]}, out[0].Shape)
		}
		after = append(after, residentMB(t, d.pids()[0]))
	}
	t.Logf("MB after 6, 12 and 18 pictures: %v; %v a picture", after, run/18)
	require.Less(t, after[2], after[0]+96)
}
