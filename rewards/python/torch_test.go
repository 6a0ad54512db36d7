package python_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// torchPython is the Python of make test-pymodels, which has torch and transformers.
func torchPython(tb testing.TB) string {
	tb.Helper()
	if os.Getenv("REWARDLOOP_PYMODELS") != "1" {
		tb.Skip("SKIPPED: it needs torch and transformers: make test-pymodels")
	}
	named := os.Getenv("REWARDLOOP_PYMODELS_PYTHON")
	require.NotEmpty(tb, named, "REWARDLOOP_PYMODELS_PYTHON names a Python with torch and transformers")
	return named
}

// speckled gives a sample a picture of 32 × 32 that is like no other's.
func speckled(sample *rewards.Sample, n int) *rewards.Sample {
	plain(sample, 32, 32, 0)
	data := sample.Media[0].Data
	for i := range data {
		data[i] = byte((i*(n+3) + i*i>>4) % 251)
	}
	return sample
}

// A CLIP of transformers, on tensors: what it gives a sample in a batch is what it gives it alone, and
// what it gives the same picture without this server.
func TestPymodelsACLIPInTorchGivesABatchWhatItGivesASample(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{})
	m := faulty(t, d, "Tower", python.Options{Interpreter: torchPython(t), Timeout: 10 * time.Minute, Placement: &python.Placement{Replicas: 2}})
	require.NoError(t, m.Warm(t.Context()))
	const samples = 64
	var many []*rewards.Sample
	for i := range samples {
		many = append(many, speckled(numbered(i, "0"), i))
	}
	batched := all(t, m, many)
	batches, pids, values := map[any]bool{}, map[any]bool{}, map[float64]bool{}
	for i, s := range batched {
		require.NoError(t, s.err)
		direct, ok := s.Extra["direct"].(float64)
		require.True(t, ok)
		assert.InDelta(t, direct, s.Value, 1e-5, "sample %d without a batch, in its process", i)
		assert.Equal(t, "torch.Tensor torch.uint8 (3, 32, 32)", s.Extra["pixels"])
		batches[s.Extra["batch"]], pids[s.Extra["pid"]], values[s.Value] = true, true, true
	}
	assert.Greater(t, len(batches), 1, "batches of several sizes")
	assert.Len(t, pids, 2, "two processes")
	assert.Greater(t, len(values), samples/2, "pictures and texts that cannot be told apart show nothing")
	for i, sample := range many[:8] {
		alone, err := score(t, m, sample)
		require.NoError(t, err)
		assert.EqualValues(t, 1, alone.Extra["batch"])
		assert.InDelta(t, batched[i].Value, alone.Value, 1e-5)
	}
}

func TestPymodelsAProcessThatIsKilledLoadsTorchAgain(t *testing.T) {
	t.Parallel()
	d := newDevices(t, pool.Config{})
	m := faulty(t, d, "Tower", python.Options{Interpreter: torchPython(t), Timeout: 10 * time.Minute})
	require.NoError(t, m.Warm(t.Context()))
	first, err := score(t, m, speckled(numbered(1, "0"), 1))
	require.NoError(t, err)
	for _, pid := range d.stats().PIDs {
		p, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, p.Kill())
	}
	again, err := score(t, m, speckled(numbered(1, "0"), 1))
	require.NoError(t, err)
	assert.InDelta(t, first.Value, again.Value, 1e-6, "its weights are those of its seed")
	assert.NotEqual(t, first.Extra["pid"], again.Extra["pid"])
	assert.True(t, strings.HasPrefix(again.Extra["pixels"].(string), "torch.Tensor"))
}
