package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

// numpyPython is a Python that has NumPy: REWARDLOOP_PYTHON, the project's own environment, or python3.
func numpyPython(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	python := os.Getenv("REWARDLOOP_PYTHON")
	if own, err := filepath.Abs("../.venv/bin/python"); python == "" && err == nil {
		python = "python3"
		if _, err := os.Stat(own); err == nil {
			python = own
		}
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import numpy").Run(); err != nil {
		t.Skipf("SKIPPED: %s has no numpy: make deps, or name one in REWARDLOOP_PYTHON", python)
	}
	return python
}

// Pictures go through a model in Python in batches, over a real websocket, while a process of the
// model is killed, crashed, aborted or stopped every second: each gets one result, computed from its own pixels.
func TestPicturesGetOneResultEachWhileProcessesOfAModelInPythonDie(t *testing.T) {
	t.Parallel()
	python := numpyPython(t)
	path := function(t, `
import time
class Last:
    def compute_scores(self, samples):
        time.sleep(0.005 + 0.02 * len(samples))
        return [float(s.image[-1, -1, -1]) for s in samples]
`)
	samples := 200
	if full() {
		samples = 2000
	}
	n, addr := start(t, "pool.python.interpreter="+python,
		"+reward.reward_functions.mine.path="+path, "+reward.reward_functions.mine.name=Last", "+reward.reward_functions.mine.required=true",
		"+reward.reward_functions.mine.num_replicas=2", "+reward.reward_functions.mine.max_batch_size=16", "+reward.reward_functions.mine.timeout=12")
	protos := make([]*rewards.Sample, 40)
	for i := range protos {
		data := make([]byte, 8*8*3)
		data[len(data)-1] = byte(i)
		protos[i] = &rewards.Sample{Prompt: "p" + strconv.Itoa(i), Media: []*rewards.Media{{
			Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{8, 8, 3}, Data: data,
		}}}
	}
	s := &storm{addr: addr, protos: protos, pids: func() (pids []int) {
		for name, stats := range n.Children() {
			if strings.HasPrefix(name, "python cpu/") {
				pids = append(pids, stats.PIDs...)
			}
		}
		return pids
	}}
	s.run(t, samples)
}

// Each process of a model on two cards of the machine has its card in CUDA_VISIBLE_DEVICES when its
// file is imported, by the name that the driver gives it.
func TestEachReplicaOfAModelInPythonSeesItsCardOfTheMachine(t *testing.T) { //nolint:paralleltest // t.Setenv
	withCards(t, 2)
	path := function(t, `
import os, time
CARD = os.environ.get("CUDA_VISIBLE_DEVICES")
class Where:
    def __init__(self, device):
        self.device = device
    def compute_scores(self, samples):
        time.sleep(0.02)
        return [{"score": 1.0, "saw": f"{CARD} as {self.device} in {os.getpid()}"} for _ in samples]
`)
	_, addr := start(t, "pool.python.interpreter=python3",
		"+reward.reward_functions.mine.path="+path, "+reward.reward_functions.mine.name=Where", "+reward.reward_functions.mine.required=true",
		"+reward.reward_functions.mine.devices=[cuda:0, cuda:1]", "+reward.reward_functions.mine.num_replicas=2", "+reward.reward_functions.mine.max_batch_size=2")
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "cards"})
	require.NoError(t, err)
	defer c.Close()
	cards, sent := map[string]string{}, 0
	require.Eventually(t, func() bool {
		var futures []*client.Future
		for range 32 {
			sent++
			f, err := c.Submit(t.Context(), &rewards.Sample{ID: strconv.Itoa(sent), Response: "r"}, 0)
			require.NoError(t, err)
			futures = append(futures, f)
		}
		for _, f := range futures {
			res, err := f.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
			card, pid, found := strings.Cut(fmt.Sprint(res.ExtraInfo["reward/mine/saw"]), " as cuda:0 in ")
			require.True(t, found, res.ExtraInfo)
			if known := cards[pid]; known != "" {
				require.Equal(t, known, card)
			}
			cards[pid] = card
		}
		return len(cards) == 4
	}, time.Minute, time.Millisecond, "all four processes have scored")
	count := map[string]int{}
	for _, card := range cards {
		count[card]++
	}
	assert.Equal(t, map[string]int{"GPU-0": 2, "GPU-1": 2}, count)
}
