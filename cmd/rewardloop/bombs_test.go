//go:build linux

package main_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/bombs"
	"github.com/rewardloop/rewardloop/testkit/race"
	"github.com/rewardloop/rewardloop/testkit/resident"
	"github.com/rewardloop/rewardloop/wire"
)

// Sixteen pictures at a time of each kind, all of which begin to be decoded at once, and beside
// them a run of small pictures.
func TestPicturesThatAreBombsTakeNoMoreThanTheBudget(t *testing.T) { //nolint:paralleltest // it measures the memory of a process
	const budget, atATime = 400 << 20, 16
	pid, addr := main.Serving(t, fmt.Sprintf(`reward:
  concurrency: 64
  reward_functions:
    size: {path: "builtin://jpeg_incompressibility", required: true, concurrency: %d}
pool: {decode: {budget_bytes: %d}}
`, atATime, budget))
	dial := func(run string) *client.Client {
		c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: run})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() }) // whatever it says
		return c
	}
	neighbour, attacker := dial("neighbour"), dial("attacker")

	var scored atomic.Int64
	stop := make(chan struct{})
	var beside sync.WaitGroup
	for lane := range 4 {
		beside.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				file, want := main.Drawing(t, lane)
				res, err := scoreOf(t, neighbour, fmt.Sprint("n", lane, "-", i), file)
				if !assert.NoError(t, err) || !assert.Equal(t, rewards.Scored, res.Outcome, "%+v", res.Errors) { //nolint:testifylint // require must not stop a goroutine
					return
				}
				assert.InDelta(t, want, *res.RewardScore, 1e-9)
				scored.Add(1)
			}
		})
	}
	side := 4096
	if race.Enabled {
		side = 2048 // 80 MiB each in place of 320, and a quarter of the time
	}
	for name, made := range bombs.All(side) {
		file, before := made(), scored.Load()
		var all sync.WaitGroup
		n := atATime
		if race.Enabled && name == "webp_groups" {
			n = 4 // 770 MiB without a budget, and each takes seconds under the race detector
		}
		for i := range n {
			all.Go(func() {
				res, err := scoreOf(t, attacker, fmt.Sprint(name, "-", i), file)
				if !assert.NoError(t, err) { //nolint:testifylint // require must not stop a goroutine
					return
				}
				switch name {
				case "png_65535", "jpeg_scans_large", "zlib_tail":
					assert.Equal(t, rewards.Failed, res.Outcome)
					if assert.NotEmpty(t, res.Errors) {
						assert.Equal(t, rewards.BadInput, res.Errors[0].Class)
					}
				default:
					assert.Equal(t, rewards.Scored, res.Outcome, "%s: %+v", name, res.Errors)
				}
			})
		}
		all.Wait()
		peak, err := resident.Peak(pid)
		require.NoError(t, err)
		t.Logf("%s: %d MiB; %d samples of the neighbour", name, peak>>20, scored.Load()-before)
		assert.LessOrEqual(t, peak, int64(budget+resident.Beyond), name)
	}
	close(stop)
	beside.Wait()
	assert.Positive(t, scored.Load())
}

// scoreOf has one picture scored.
func scoreOf(t *testing.T, c *client.Client, id string, file []byte) (*wire.Result, error) {
	t.Helper()
	f, err := c.Submit(t.Context(), &rewards.Sample{
		ID: id, Media: []*rewards.Media{{Kind: rewards.Image, Encoding: media.Sniff(file), DType: "U8", Shape: []int{len(file)}, Data: file}},
	}, 0)
	if err != nil {
		return nil, err
	}
	return f.Wait(t.Context())
}
