package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// page is what docs/tuning.md shows in its blocks, by language.
func page(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "tuning.md"))
	require.NoError(t, err)
	out := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if _, first := out[m[1]]; !first {
			out[m[1]] = m[2]
		}
	}
	return out
}

// The figures of the page are those of a machine with eight CPUs.
func TestTuningShowsTheCapacitiesThatConfigPrintSays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it loads ONNX Runtime")
	}
	readers, err := node.NewReaders(config.Default().Pool)
	require.NoError(t, err)
	_, err = readers.Choose(ocr.ReaderOptions{Reader: ocr.ReaderPPOCR, Model: ocr.DefaultModel, Detect: true, Device: "cpu"})
	require.NoError(t, readers.Close())
	if err != nil && os.Getenv("REQUIRE_ORT") != "1" {
		t.Skipf("SKIPPED: no PP-OCR: %v", err)
	}
	shown, dir := page(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cfg.yaml"), []byte(shown["yaml"]), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "facts.py"), []byte(shown["python"]), 0o600))
	got := call(t, "", "config", "print", "-c", filepath.Join(dir, "cfg.yaml"), "pool.onnx.slots=8")
	require.Equal(t, exitOK, got.code, got.stderr)
	_, said, found := strings.Cut(got.stdout, "\n\n# Capacity:")
	require.True(t, found)
	said = regexp.MustCompile(`loops: \d+ \(\d+ CPUs?\)`).ReplaceAllString("# Capacity:"+said, "loops: 8 (8 CPUs)")
	require.Equal(t, shown["text"], said)
}

func TestConfigPrintSaysWhyACapacityIsNotKnown(t *testing.T) {
	t.Parallel()
	got := call(t, "", "config", "print", "reward.custom_reward_function.path=builtin://nothing")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "# It is not known here:\n#   override \"reward.custom_reward_function.path=builtin://nothing\": reward.custom_reward_function: unknown scorer \"nothing\"")
	_, err := config.Parse("printed", []byte(got.stdout), nil, nil)
	require.NoError(t, err, "it is still a configuration")
}

func TestScorersSayHowManyCallsAreExecutedAtATime(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"gsm8k": "At a time: a call for each CPU.", "python": "an async def function: 256 calls in one process", "judge": "the engine's concurrency (256 questions at a time)",
		"pairwise": "as many groups as", "http": "as many requests as concurrency allows (256 by default)", "sandbox_fusion": "max_concurrent test cases", "pickscore": "pool.onnx.slots",
		"vlm": "pool.onnx.max_batch", "ocr": "pool.tesseract.slots",
	} {
		got := call(t, "", "scorers", name)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Contains(t, strings.Join(strings.Fields(got.stdout), " "), says, name)
	}
}

func TestConfigSchemaWritesWhatEditorsCheckKeysBy(t *testing.T) {
	t.Parallel()
	got := call(t, "", "config", "schema")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.True(t, json.Valid([]byte(got.stdout)))
	require.Contains(t, got.stdout, `"resume_grace"`)
}
