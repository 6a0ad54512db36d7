package node_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

func readers(t *testing.T, overrides ...string) *node.Readers {
	t.Helper()
	cfg, err := config.Load("", append([]string{"reward.custom_reward_function.path=builtin://ocr"}, overrides...), nil)
	require.NoError(t, err)
	r, err := node.NewReaders(cfg.Pool)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func TestWithoutItsModelAutoReadsWithTesseractAndSaysWhy(t *testing.T) {
	t.Parallel()
	if _, err := tesseract.Available(); err != nil {
		t.Skipf("SKIPPED: no Tesseract: %v", err)
	}
	empty := t.TempDir()
	r := readers(t, "pool.models_dir="+empty)
	got, err := r.Choose(ocr.DefaultReader())
	require.NoError(t, err)
	require.Equal(t, ocr.ReaderTesseract, got.Reader)
	require.ErrorContains(t, got.Instead, "rewardloop models pull ppocr-v4-mobile")
	require.ErrorContains(t, got.Instead, empty)
}

func TestWhatWasAskedForByNameIsNeverReplaced(t *testing.T) {
	t.Parallel()
	r := readers(t, "pool.models_dir="+t.TempDir())
	for name, o := range map[string]ocr.ReaderOptions{
		"the engine":    {Reader: ocr.ReaderPPOCR, Model: ocr.DefaultModel, Detect: true, Device: "cpu"},
		"the device":    {Reader: ocr.ReaderAuto, Model: ocr.DefaultModel, Detect: true, Device: "cuda:0"},
		"the model":     {Reader: ocr.ReaderPPOCR, Model: "ppocr-v9", Detect: true, Device: "cpu"},
		"whole picture": {Reader: ocr.ReaderAuto, Model: ocr.DefaultModel, Device: "cpu"},
	} {
		_, err := r.Choose(o)
		require.Error(t, err, name)
		_, err = r.Reader(o)
		require.Error(t, err, name)
	}
}

func TestScorersWithEqualOptionsShareAReader(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it loads ONNX Runtime")
	}
	if err := ppocrHere(t); err != nil {
		missing(t, err)
	}
	r := readers(t, "pool.onnx.slots=1")
	auto := ocr.DefaultReader()
	first, err := r.Reader(auto)
	require.NoError(t, err)
	named := auto
	named.Reader = ocr.ReaderPPOCR
	second, err := r.Reader(named)
	require.NoError(t, err)
	require.Same(t, first, second)
	named.Mode = ocr.ModeParity
	third, err := r.Reader(named)
	require.NoError(t, err)
	require.NotSame(t, first, third)
	require.NoError(t, r.Close())
	_, err = r.Reader(auto)
	require.ErrorIs(t, err, rewards.Unavailable)
}

func TestACUDADeviceThatIsNotThereIsAnErrorAtTheStart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it loads ONNX Runtime")
	}
	if err := ppocrHere(t); err != nil {
		missing(t, err)
	}
	cfg, err := config.Load("", []string{
		"reward.custom_reward_function.path=builtin://ocr", "+reward.custom_reward_function.reward_kwargs.device=cuda:7",
	}, nil)
	require.NoError(t, err)
	_, err = node.New(node.Options{Config: cfg, NoServer: true})
	require.ErrorContains(t, err, "reward_kwargs.device: no device cuda:7")
}

func TestMetricsTellOfDevicesModelsAndChildren(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	if err := ppocrHere(t); err != nil {
		missing(t, err)
	}
	_, addr := start(t, "reward.custom_reward_function.path=builtin://ocr", "+reward.custom_reward_function.reward_kwargs.reader=ppocr", "pool.onnx.slots=1")
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "metrics"})
	require.NoError(t, err)
	f, err := c.Submit(t.Context(), pictures(t, 128)[0].sample("one"), 0)
	require.NoError(t, err)
	res, err := f.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
	require.NoError(t, c.Close())

	page := get(t, "http://"+addr+"/metrics")
	require.Contains(t, page, `rewardloop_pool_items_total{device="cpu",end="answered",model="ppocr-v4-mobile/det"} 1`)
	require.Contains(t, page, `rewardloop_pool_slots{device="cpu"} 1`)
	require.Contains(t, page, `rewardloop_pool_loaded{device="cpu",model="ppocr-v4-mobile/det"} 1`)
	require.Contains(t, page, `rewardloop_pool_evictions_total{device="cpu"} 0`)
	require.Contains(t, page, `rewardloop_children{of="onnx cpu"} 1`)
}

func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}

func TestModelsAreFoldedBesideTheirFilesOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it loads ONNX Runtime")
	}
	if err := ppocrHere(t); err != nil {
		missing(t, err)
	}
	store, err := models.FromEnvironment(os.LookupEnv)
	require.NoError(t, err)
	m, err := models.Find(ocr.DefaultModel)
	require.NoError(t, err)
	dir := t.TempDir()
	for _, f := range m.Files {
		data, err := os.ReadFile(filepath.Join(store.Dir, f.Name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), data, 0o600))
	}
	files := func() []os.FileInfo {
		_, err := readers(t, "pool.models_dir="+dir, "pool.onnx.slots=1").Reader(ocr.DefaultReader())
		require.NoError(t, err)
		entries, err := os.ReadDir(filepath.Join(dir, "folded"))
		require.NoError(t, err)
		var out []os.FileInfo
		for _, e := range entries {
			info, err := e.Info()
			require.NoError(t, err)
			out = append(out, info)
		}
		return out
	}
	first := files()
	require.Len(t, first, 2, "detector and recogniser")
	for i, again := range files() {
		require.Equal(t, first[i].Name(), again.Name())
		require.Equal(t, first[i].ModTime(), again.ModTime(), "it was right already")
	}
}
