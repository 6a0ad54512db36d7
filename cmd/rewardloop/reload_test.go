package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestReloadAndSIGHUPChangeTheWeightOfAServerThatRuns(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cfg.yaml")
	write := func(weight, more string) {
		text := fmt.Sprintf("reward:\n  num_workers: 2\n  reward_functions:\n    size: {path: builtin://jpeg_incompressibility, weight: %s}\n%s", weight, more)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("1", "")
	server, addr := serving(t, "-c", file)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "r"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	picture, want := drawing(t, 1)
	n := 0
	score := func() float64 {
		n++
		f, err := c.Submit(t.Context(), &rewards.Sample{ID: fmt.Sprint(n), Media: []*rewards.Media{{
			Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(picture)}, Data: picture,
		}}}, 0)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		res, err := f.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, "%v", res.Errors)
		return *res.RewardScore
	}
	require.InDelta(t, want, score(), 1e-9)

	reload := func() outcome { return call(t, "", "reload", "--server", "http://"+addr) }
	write("2", "")
	got := reload()
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Equal(t, "reward.reward_functions.size.weight: applied\n", got.stdout)
	require.InDelta(t, 2*want, score(), 1e-9)
	got = reload()
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "nothing is written otherwise")

	write("heavy", "loop: {max_attempts: many}\n")
	got = reload()
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "weight")
	require.Contains(t, got.stderr, "max_attempts", "all faults at once")
	require.NoError(t, server.Process.Signal(syscall.SIGHUP))
	server.stderr.await(t, "the configuration was not reloaded")
	require.InDelta(t, 2*want, score(), 1e-9, "it serves on")

	write("3", "loop: {max_attempts: 7}\n")
	got = reload()
	require.Equal(t, exitFailure, got.code, got.stderr)
	require.Equal(t, "reward.reward_functions.size.weight: applied\nloop.max_attempts: needs a restart\n", got.stdout)
	require.InDelta(t, 3*want, score(), 1e-9)
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, server.code(t))
}
