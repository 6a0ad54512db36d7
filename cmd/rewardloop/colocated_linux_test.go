package main_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

// trainer is one that shares its card's memory with an engine: a lock of a file, which has one holder at a time.
type trainer struct {
	*client.Client
	t      *testing.T
	memory *os.File
}

func newTrainer(t *testing.T, addr, memory string) *trainer {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "colocated"})
	require.NoError(t, err)
	f, err := os.OpenFile(memory, os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(); _ = f.Close() })
	return &trainer{c, t, f}
}

// take takes the memory, which must be free.
func (r *trainer) take() {
	r.t.Helper()
	require.NoError(r.t, syscall.Flock(int(r.memory.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), "an engine holds the memory in rollout")
}

func (r *trainer) give() { _ = syscall.Flock(int(r.memory.Fd()), syscall.LOCK_UN) }

// phase begins one.
func (r *trainer) phase(name string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	require.NoError(r.t, r.Phase(ctx, name))
}

// colocatedServer is a server whose engine has the memory of a file.
func colocatedServer(t *testing.T, memory, device string, more ...string) string {
	t.Helper()
	overrides := append(quickStart(), "pool.colocated=true", "++reward.reward_model.rollout.device="+device, "reward.reward_model.rollout.tensor_model_parallel_size=1")
	_, addr := engineServer(t, "--stub-memory="+memory, append(overrides, more...)...)
	return addr
}

// Each step: rollout with the memory, samples that are sent meanwhile and wait, the reward phase, rewards.
func TestATrainerAndAnEngineNeverHaveTheMemoryAtOnceAndTheRewardsAreThoseOfAServerOfTheirOwn(t *testing.T) {
	t.Parallel()
	const steps, samples = 3, 8
	for name, device := range map[string]string{"it sleeps": "cuda", "it cannot sleep and is ended": "cpu"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := filepath.Join(t.TempDir(), "memory")
			r := newTrainer(t, colocatedServer(t, memory, device), memory)
			_, alone := engineServer(t, "", quickStart()...)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			other := newTrainer(t, alone, memory+".other")
			for step := range steps {
				r.phase(wire.PhaseRollout)
				r.take()
				futures, wanted := make([]*client.Future, samples), make([]*client.Future, samples)
				for i := range futures {
					id := fmt.Sprintf("%d/%d", step, i)
					var err error
					futures[i], err = r.Submit(ctx, stubPicture(t, id, i), 0)
					require.NoError(t, err)
					wanted[i], err = other.Submit(ctx, stubPicture(t, id, i), 0)
					require.NoError(t, err)
				}
				_, err := wanted[0].Wait(ctx)
				require.NoError(t, err)
				select {
				case <-futures[0].Done():
					require.Fail(t, "a sample was scored in rollout")
				default:
				}
				r.give()
				r.phase(wire.PhaseReward)
				for i := range futures {
					got, err := futures[i].Wait(ctx)
					require.NoError(t, err)
					want, err := wanted[i].Wait(ctx)
					require.NoError(t, err)
					require.NotNil(t, got.RewardScore)
					assert.Equal(t, want.RewardScore, got.RewardScore)
					assert.Zero(t, got.Attempts-1, "a sample that waits is not tried")
				}
			}
			r.phase(wire.PhaseRollout)
			r.take()
			_, err := os.Stat(memory + ".conflict")
			require.ErrorIs(t, err, os.ErrNotExist, "an engine took the memory while the trainer had it")
		})
	}
}

// Whichever phase a trainer dies in, the next one has the memory.
func TestATrainerThatDiesLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{wire.PhaseRollout, wire.PhaseReward} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			memory := filepath.Join(t.TempDir(), "memory")
			addr := colocatedServer(t, memory, "cuda", "loop.resume_grace=1s")
			r := newTrainer(t, addr, memory)
			r.phase(phase)
			if phase == wire.PhaseReward {
				awaitServers(t, addr, allReady)
			} else {
				r.take()
			}
			r.give() // as its death does
			require.NoError(t, r.Close())
			awaitServers(t, addr, func(list []server.EngineServer) bool { return len(list) == 1 && list[0].State == "asleep" })
			next := newTrainer(t, addr, memory)
			next.phase(wire.PhaseRollout)
			next.take()
			next.give()
			next.phase(wire.PhaseReward)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 3 {
				f, err := next.Submit(ctx, stubPicture(t, strconv.Itoa(i), i), 0)
				require.NoError(t, err)
				got, err := f.Wait(ctx)
				require.NoError(t, err)
				require.NotNil(t, got.RewardScore)
			}
		})
	}
}

// A person who asks why nothing is scored is told.
func TestASampleThatWaitsForTheRewardPhaseSaysSo(t *testing.T) {
	t.Parallel()
	memory := filepath.Join(t.TempDir(), "memory")
	addr := colocatedServer(t, memory, "cuda")
	r := newTrainer(t, addr, memory)
	f, err := r.Submit(t.Context(), stubPicture(t, "waits", 1), 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, out := main.Call(t, "status", "--server", "http://"+addr)
		return strings.Contains(out, "waiting for the reward phase of the trainer")
	}, 30*time.Second, 50*time.Millisecond)
	require.NoError(t, r.Cancel("waits"))
	got, err := f.Wait(t.Context())
	require.NoError(t, err)
	assert.Nil(t, got.RewardScore)
}
