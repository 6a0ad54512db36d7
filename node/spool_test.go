package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

func durable(dir string) []string {
	return []string{"reward.custom_reward_function.path=builtin://jpeg_compressibility", "++queue.durable=true", "++queue.spool_dir=" + dir}
}

func TestADurableNodeHasItsFolderForItself(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	n, addr := start(t, durable(dir)...)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "run"})
	require.NoError(t, err)
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "x", Media: []*rewards.Media{{
		Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{8, 8, 3}, Data: make([]byte, 192),
	}}}, 0)
	require.NoError(t, err)
	res, err := f.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, rewards.Scored, res.Outcome)
	require.NoError(t, c.Close())

	cfg, err := config.Load("", append(durable(dir), "++server.listen=127.0.0.1:0"), os.LookupEnv)
	require.NoError(t, err)
	second, err := node.New(node.Options{Config: cfg})
	require.NoError(t, err)
	require.ErrorIs(t, second.Start(t.Context()), spool.ErrInUse)
	offline, err := node.New(node.Options{Config: cfg, NoServer: true})
	require.NoError(t, err)
	require.NoError(t, offline.Start(t.Context()), "who scores files keeps nothing")
	offline.Stop()
	n.Stop()

	again, _ := start(t, durable(dir)...)
	again.Stop()
}
