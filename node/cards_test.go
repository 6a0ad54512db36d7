package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/cards"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

// withCards puts a program that lists so many cards of 80 GiB on PATH in place of nvidia-smi.
func withCards(t *testing.T, n int) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a program")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$1\" in --query-gpu=*) cat <<'END'\n"
	for i := range n {
		script += fmt.Sprintf("%d, GPU-%d, NVIDIA H100, 81920, 80000, 0, Disabled\n", i, i)
	}
	script += "END\n;; esac\n"
	if n == 0 {
		script = "#!/bin/sh\necho 'No devices were found'\nexit 6\n"
	}
	executable.Write(t, filepath.Join(dir, "nvidia-smi"), script)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(cards.VisibleEnv, "") // restored afterwards
	require.NoError(t, os.Unsetenv(cards.VisibleEnv))
}

// onCards is a reward of two tiny models, one of them on a device of the pool.
func onCards(t *testing.T, device string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("c.yaml", fmt.Appendf(nil, `reward: {reward_functions: {clip: {path: builtin://clipscore, model: %q, device: %q}}}
rewards: {plain: {custom_reward_function: {path: builtin://jpeg_incompressibility}}}
`, tiny(t, "tiny-clip"), device), nil, nil)
	require.NoError(t, err)
	return cfg
}

func TestAModelOnEveryCardHasThePlacesOfAll(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 3)
	s, err := node.NewScorers(onCards(t, "cuda"), nil)
	require.NoError(t, err)
	defer s.Close()
	one := rewards.ConcurrencyOf(s.Readers.Devices.On("cuda:0"))
	assert.Equal(t, 3*one, rewards.ConcurrencyOf(s.Readers.Devices.On("cuda")))
}

// The pool is opened with the plan: the uuids of the cards for its children, a copy of the model on
// each card, and a budget of memory for each.
func TestThePoolIsOpenedWithThePlan(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 2)
	if _, err := ort.Find(""); err != nil && os.Getenv("REQUIRE_ORT") != "1" {
		t.Skipf("SKIPPED: no ONNX Runtime: %v", err)
	}
	s, err := node.NewScorers(onCards(t, "cuda"), nil)
	require.NoError(t, err)
	defer s.Close()
	net, err := s.Readers.Devices.Net(infer.Model{Name: "clip", Path: filepath.Join(tiny(t, "tiny-clip"), "image.onnx"), Device: "cuda"})
	require.NoError(t, err)
	assert.Equal(t, s.Readers.Devices.On("cuda").(rewards.Concurrent).Concurrency(), rewards.ConcurrencyOf(net))
	visible, memory := s.Readers.Devices.Opened()
	assert.Equal(t, []string{"GPU-0", "GPU-1"}, visible)
	assert.Equal(t, map[string]int64{"cuda:0": 80<<30 - 600<<20, "cuda:1": 80<<30 - 600<<20}, memory)
}

func TestAModelOnACardThatIsNotThereIsUnavailable(t *testing.T) { //nolint:paralleltest // t.Setenv
	for n, want := range map[int]string{0: "this process sees no card", 2: "this process sees 2 cards"} {
		withCards(t, n)
		s, err := node.NewScorers(onCards(t, "cuda:2"), nil)
		require.NoError(t, err)
		_, err = s.Readers.Devices.Net(infer.Model{Name: "clip", Path: filepath.Join(tiny(t, "tiny-clip"), "image.onnx"), Device: "cuda:2"})
		require.ErrorIs(t, err, infer.ErrUnavailable)
		require.ErrorIs(t, err, infer.ErrMissing)
		require.ErrorContains(t, err, want)
		require.NoError(t, s.Close())
	}
}

func TestAWorkerLeavesTheRewardsForWhichItLacksCardsToOthers(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 1)
	w, err := node.NewWorker(node.Options{Config: onCards(t, "cuda:1"), Version: "test"})
	require.NoError(t, err)
	defer w.Stop()
	served := w.Capacities()
	require.Len(t, served, 1)
	assert.Equal(t, "plain", served[0].Reward)
}

func TestACheckedConfigurationHasANoteOfCardsThatOthersUse(t *testing.T) {
	withCards(t, 1)
	cfg := onCards(t, "cuda:0")
	require.NoError(t, node.Check(t.Context(), cfg, nil, true))
	t.Setenv(cards.VisibleEnv, "0,7")
	require.NoError(t, node.Check(t.Context(), cfg, nil, true))
	notes := cfg.Notes()
	require.NotEmpty(t, notes)
	assert.Contains(t, notes[len(notes)-1].String(), `entry 2, "7", is not one of the machine's 1 cards`)
}
