package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/cards"
)

// withCards puts a program that lists so many cards of 80 GiB on PATH in place of nvidia-smi.
// It returns a file that is there once the program was called.
func withCards(t *testing.T, n int) (called string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a program")
	}
	dir := t.TempDir()
	called = filepath.Join(dir, "called")
	list := "echo 'No devices were found'; exit 6"
	if n > 0 {
		list = "cat <<'END'\n"
		for i := range n {
			list += fmt.Sprintf("%d, GPU-%d, NVIDIA H100, 81920, 80000, 0, Disabled\n", i, i)
		}
		list += "END"
	}
	script := "touch " + called + "\ncase \"$1\" in --query-gpu=*) " + list + "\n;; *) echo 'GPU-0, 77, 1024, python' ;; esac\n"
	fake(t, dir, script)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(cards.VisibleEnv, "") // restored afterwards
	require.NoError(t, os.Unsetenv(cards.VisibleEnv))
	return called
}

// fake writes a shell script in place of nvidia-smi.
func fake(t *testing.T, dir, script string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a program")
	}
	syscall.ForkLock.RLock() // a child that is forked meanwhile would have it open for writing, and nobody could run it
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+script), 0o700))
}

// pooled is a configuration with a pool of two cards and three models that run here.
const pooled = `reward:
  custom_reward_function: {path: builtin://jpeg_incompressibility}
  reward_model:
    enable: true
    enable_resource_pool: true
    n_gpus_per_node: 2
    nnodes: 1
    model_path: judge
    rollout: {name: onnx, device: cuda, fraction: 0.5}
engines:
  second: {onnx: other, device: "cuda:1", fraction: 0.25}
  third: {onnx: small}
`

func TestDevicesListsTheCardsAndWhoHasWhich(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 3)
	file := put(t, t.TempDir(), "cfg.yaml", []byte(pooled))
	got := call(t, "", "devices", "-c", file)
	require.Equal(t, exitOK, got.code, got.stderr)
	assert.Equal(t, `3 cards, from nvidia-smi
  cuda:0  NVIDIA H100, GPU-0, 80.0 GiB of which 78.1 GiB are free, no fault is known
          process 77, python, 1.0 GiB
  cuda:1  NVIDIA H100, GPU-1, 80.0 GiB of which 78.1 GiB are free, no fault is known
  cuda:2  NVIDIA H100, GPU-2, 80.0 GiB of which 78.1 GiB are free, no fault is known

plan:
  cpu     onnx model small, engine third
  cuda:0  onnx model judge, engine reward_model, fraction 0.5 (40.0 GiB)
          40.0 GiB planned, 40.0 GiB left
  cuda:1  onnx model other, engine second, fraction 0.25 (20.0 GiB)
          onnx model judge, engine reward_model, fraction 0.5 (40.0 GiB)
          60.0 GiB planned, 20.0 GiB left
  cuda:2  nothing
`, got.stdout)

	got = call(t, "", "devices", "--json", "-c", file)
	require.Equal(t, exitOK, got.code, got.stderr)
	var rep deviceReport
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &rep), got.stdout)
	assert.Len(t, rep.Cards, 3)
	assert.Equal(t, []string{"cuda:0", "cuda:1"}, rep.Plan.Pool)
	assert.Len(t, rep.Plan.Owners, 3)
}

func TestDevicesSaysPlainlyThatThereIsNoCard(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 0)
	got := call(t, "", "devices")
	require.Equal(t, exitOK, got.code, got.stderr)
	assert.Equal(t, "no card: models run on the CPU\nnote: nvidia-smi: No devices were found\n", got.stdout)

	got = call(t, "", "devices", "reward.custom_reward_function.path=builtin://jpeg_incompressibility", "+engines.e.onnx=m")
	require.Equal(t, exitOK, got.code, got.stderr)
	assert.Contains(t, got.stdout, "\nplan:\n  cpu     onnx model m, engine e\n")
}

func TestDevicesSaysThatTheCardsAreNotKnownAndWhy(t *testing.T) {
	dir := t.TempDir()
	fake(t, dir, "echo what\n")
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	got := call(t, "", "devices")
	require.Equal(t, exitFailure, got.code)
	assert.Contains(t, got.stdout, "the cards are not known: nvidia-smi lists cards in a way that is not understood")
	assert.NotContains(t, got.stdout, "CPU")

	file := put(t, dir, "cfg.yaml", []byte(pooled))
	got = call(t, "", "devices", "-c", file, "--json")
	require.Equal(t, exitFailure, got.code)
	var rep deviceReport
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &rep), got.stdout)
	assert.Contains(t, rep.Unknown, "is not understood")
	assert.Len(t, rep.Faults, 2, "each model that asks for a card")
	got = call(t, "", "config", "check", "-c", file)
	require.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.stderr, "engines.second.device: nvidia-smi lists cards in a way that is not understood")
}

func TestDevicesSaysWhichModelDoesNotFitAndPlansTheOthers(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 1)
	file := put(t, t.TempDir(), "cfg.yaml", []byte(pooled))
	got := call(t, "", "devices", "-c", file)
	require.Equal(t, exitFailure, got.code, got.stdout)
	assert.Contains(t, got.stdout, "cpu     onnx model small, engine third")
	assert.Contains(t, got.stderr, file+":9:35: reward.reward_model.rollout.device: the reward pool needs 2 cards (reward_model.n_gpus_per_node), but 1 of 1 card is left")
	assert.Contains(t, got.stderr, file+":11:33: engines.second.device: no device cuda:1: this process sees 1 card, cuda:0")
}

func TestConfigCheckRefusesAPlanThatDoesNotFit(t *testing.T) { //nolint:paralleltest // t.Setenv
	called := withCards(t, 1)
	file := put(t, t.TempDir(), "cfg.yaml", []byte(pooled))
	got := call(t, "", "config", "check", "-c", file)
	require.Equal(t, exitUsage, got.code, got.stdout)
	require.FileExists(t, called)
	assert.Contains(t, got.stderr, "reward.reward_model.rollout.device: the reward pool needs 2 cards")
	assert.Contains(t, got.stderr, "engines.second.device: no device cuda:1")

	got = call(t, "", "config", "check", "-c", file, "engines.second.device=cuda:0", "reward.reward_model.n_gpus_per_node=1")
	require.Equal(t, exitOK, got.code, got.stderr)
	got = call(t, "", "config", "check", "-c", file, "engines.second.device=cuda:0", "reward.reward_model.n_gpus_per_node=1", "engines.second.fraction=0.6")
	require.Equal(t, exitUsage, got.code, got.stdout)
	assert.Contains(t, got.stderr, "with the fraction 0.5 of this model the fractions on cuda:0 add up to 1.1: cuda:0 has engine second (0.6)")
}

func TestServeDoesNotStartOnAPlanThatDoesNotFit(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 1)
	got := call(t, "", "serve", "-c", put(t, t.TempDir(), "cfg.yaml", []byte(pooled)), "--listen", "127.0.0.1:0")
	require.Equal(t, exitUsage, got.code, got.stdout)
	assert.Contains(t, got.stderr, "the reward pool needs 2 cards")
}

func TestAConfigurationWithoutCardsAsksTheMachineForNone(t *testing.T) { //nolint:paralleltest // t.Setenv
	called := withCards(t, 1)
	for _, overrides := range [][]string{
		{"reward.custom_reward_function.path=builtin://jpeg_incompressibility", "+engines.e.onnx=m"},
		{"reward.custom_reward_function.path=builtin://jpeg_incompressibility", "+engines.e.onnx=m", "+engines.e.device=cuda:7", "reward.num_workers=0", "queue.nats_listen=127.0.0.1:0"},
	} {
		got := call(t, "", append([]string{"config", "check"}, overrides...)...)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.NoFileExists(t, called)
	}
}

func TestTheDoctorListsTheCards(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 2)
	x := &exam{}
	c := x.cards(t.Context())
	assert.Equal(t, stateOK, c.State)
	assert.Equal(t, "2 cards, from nvidia-smi", strings.Split(c.Detail, "\n")[0])
	assert.Contains(t, c.Detail, "\ncuda:1 NVIDIA H100, GPU-1, 80.0 GiB of which 78.1 GiB are free")
}
