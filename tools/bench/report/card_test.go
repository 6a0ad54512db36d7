package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// cardRun is what a run leaves on a device.
func cardRun(t *testing.T, device, cards string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpu.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"date": "2026-11-23T12:00:00Z", "bundle": {"version": "v1", "target": "pytorch", "arch": "sm_90", "onnxruntime": "1.29.0"},
		"device": "`+device+`", "cards": "`+cards+`", "tests": {"passed": 7, "failed": 0, "skipped": 1, "held": true}, "bench_exit": 0, "seconds": 300,
		"report": {"suite": "gpu", "about": "One card.", "rows": [{"row": "card-clip/loop-vs-bare", "value": 0.97, "values": [0.97], "target": {"most": false, "value": 0.95}, "held": true}]}}`), 0o600))
	return path
}

func TestARunWithoutACardSaysThatNothingWasMeasured(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, WriteCards(cardRun(t, "cpu", ""), folder))
	page, err := os.ReadFile(filepath.Join(folder, "gpu.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Not measured on a card: none was at hand on 2026-11-23")
	require.Contains(t, string(page), "7 passed, 0 failed, 1 skipped: all held")
	require.NoFileExists(t, filepath.Join(folder, "gpu.json"))
}

func TestARunOnACardIsKept(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, WriteCards(cardRun(t, "cuda:0", "NVIDIA H100, GPU-1, 580.65, 81559 MiB"), folder))
	page, err := os.ReadFile(filepath.Join(folder, "gpu.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Measured on 2026-11-23 on NVIDIA H100")
	require.Contains(t, string(page), "| card-clip/loop-vs-bare | 0.97 | ≥ 0.95 | yes |")
	all, err := os.ReadFile(filepath.Join(folder, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(all), "## gpu")

	require.ErrorContains(t, WriteCards(cardRun(t, "cpu", ""), folder), "it stays")
	again, err := os.ReadFile(filepath.Join(folder, "gpu.md"))
	require.NoError(t, err)
	require.Equal(t, page, again)
}

func TestWhatIsNotARunIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gpu.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"suite": "gpu"}`), 0o600))
	require.ErrorContains(t, WriteCards(path, t.TempDir()), "no date and no device")
}
