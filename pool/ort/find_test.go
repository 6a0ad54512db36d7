package ort

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

func TestAnErrorListsEveryPlaceThatWasLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "lib[1]") // no pattern
	require.NoError(t, os.Mkdir(bad, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(bad, "libonnxruntime.so.1"), []byte("text"), 0o600))
	_, err := find("", "", []place{{"the first", filepath.Join(dir, "none")}, {"the second", bad}}, false)
	require.ErrorIs(t, err, infer.ErrUnavailable)
	require.ErrorContains(t, err, LibraryEnv+" is not set")
	require.ErrorContains(t, err, "none (from the first): not found")
	require.ErrorContains(t, err, "lib[1] (from the second): libonnxruntime.so.1: not a shared library")

	_, err = find("", filepath.Join(dir, "env.so"), []place{{"the second", bad}}, false)
	require.ErrorContains(t, err, "env.so (from "+LibraryEnv+"): not found")
	require.NotContains(t, err.Error(), "the second")
}

func TestDefaultPlacesComeInTheirOrder(t *testing.T) {
	t.Parallel()
	all := places(nil)
	require.GreaterOrEqual(t, len(all), 4)
	require.Equal(t, "the working directory", all[0].from)
	require.True(t, filepath.IsAbs(all[0].path))
	require.Contains(t, all[0].path, filepath.Join(".cache", "ort", release))
	require.Equal(t, "the program's folder", all[1].from)
}

func TestVersionsCompareByNumber(t *testing.T) {
	t.Parallel()
	require.Positive(t, compare("1.29.0", "1.9.3"))
	require.Positive(t, compare("1.29.0", minVersion))
	require.Negative(t, compare("1.28.2", minVersion))
	require.Negative(t, compare("", "1.0"))
	require.Zero(t, compare("1.29", "1.29"))
}

func TestADeviceIsFoundThroughWhatTheProcessSees(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n         int
		inherited string
		set       bool
		want      string
	}{
		{3, "", false, "3"},
		{1, "3,5", true, "5"},
		{0, " GPU-8f2 , MIG-1/2/3", true, "GPU-8f2"},
		{1, "0,1,-1,2", true, "1"},
		{2, "0,1,-1,2", true, ""},
		{0, "", true, ""},
		{0, "-1", true, ""},
	} {
		got, err := inheritedCard(tt.n, tt.inherited, tt.set)
		require.Equal(t, tt.want, got)
		if tt.want == "" {
			require.ErrorIs(t, err, infer.ErrUnavailable)
			require.ErrorContains(t, err, "CUDA_VISIBLE_DEVICES=")
		} else {
			require.NoError(t, err)
		}
	}
	for _, bad := range []string{"", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda:01", "CPU"} {
		_, err := parseDevice(bad)
		require.ErrorIs(t, err, infer.ErrUnavailable, bad)
	}
}

func TestADeviceIsTheCardThatTheConfigurationNames(t *testing.T) {
	t.Setenv(visibleEnv, "7")
	cfg := Config{Cards: []string{"GPU-1", "MIG-2"}}
	got, err := cfg.visible(1)
	require.NoError(t, err)
	require.Equal(t, "MIG-2", got)
	_, err = cfg.visible(2)
	require.ErrorIs(t, err, infer.ErrMissing)
	require.ErrorContains(t, err, "this process has 2 cards")
	_, err = Config{Cards: []string{}}.visible(0)
	require.ErrorIs(t, err, infer.ErrMissing, "a machine without cards")
	got, err = Config{}.visible(0)
	require.NoError(t, err)
	require.Equal(t, "7", got)
	_, err = NewOpener(Config{Cards: []string{"GPU-1", "", "0,1"}})
	require.ErrorContains(t, err, `cards: "" of cuda:1`)
	require.ErrorContains(t, err, `cards: "0,1" of cuda:2`)
}

func TestChildrenAreGivenNothingOfOurs(t *testing.T) {
	t.Setenv("REWARDLOOP_TOKEN", "secret")
	t.Setenv(visibleEnv, "7")
	t.Setenv("CUDA_CACHE_PATH", "/tmp/c")
	t.Setenv(loaderEnv, "/theirs")
	env := environment([]string{"/a", "/b"}, visibleEnv+"=3")
	require.Contains(t, env, "LD_LIBRARY_PATH=/theirs:/a:/b")
	require.NotContains(t, env, "REWARDLOOP_TOKEN=secret")
	require.NotContains(t, env, visibleEnv+"=7")
	require.Contains(t, env, visibleEnv+"=3")
	require.Contains(t, env, "CUDA_CACHE_PATH=/tmp/c")
}

func TestAConfigurationNamesAllItsFaults(t *testing.T) {
	t.Parallel()
	_, err := NewOpener(Config{Slots: -1, Isolation: "thread", RunTimeout: -1, LoadTimeout: -1, Grace: -1, MaxBatchBytes: -1, Recycle: -1, CUDA: CUDA{ConvAlgoSearch: "BEST"}})
	for _, says := range []string{"slots: want 0…1024, got -1", `isolation: "thread"`, "ort: timeout", "load_timeout", "grace", "max_batch_bytes", "recycle", `conv_algo_search: "BEST"`} {
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, Config{}.WithDefaults().Validate())
}

func TestTheLibraryOfABundleLiesBesideTheModels(t *testing.T) {
	t.Setenv("REWARDLOOP_MODELS", "/data/models")
	require.Equal(t, filepath.Join("/data", "onnxruntime"), Kept(os.LookupEnv))
	require.Contains(t, places(nil), place{"a bundle", Kept(os.LookupEnv)})
}
