package node_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/clip"
)

// The whole chain: a clip comes over a websocket as its file and as raw frames, and has the same scores of a text reader, of a
// preference model in batches and of the JPEG reward.
func TestAClipHasTheScoresOfItsRawFrames(t *testing.T) {
	t.Parallel()
	clip.FFmpeg(t)
	if _, err := ort.Find(""); err != nil && os.Getenv("REQUIRE_ORT") != "1" {
		t.Skipf("SKIPPED: no ONNX Runtime: %v", err)
	}
	const frames, height, width = 81, 480, 832
	component := "+reward.reward_functions."
	cfg, err := config.Load("", []string{
		"++server.listen=127.0.0.1:0", "++loop.sample_timeout=10m",
		component + "pair.path=builtin://clipscore", component + "pair.model=" + tiny(t, "tiny-clip"), component + "pair.frames=every:4", component + "pair.timeout=5m",
		component + "text.path=builtin://ocr", component + "text.no_target=prompt", component + "text.frames=uniform:4", component + "text.timeout=5m",
		component + "size.path=builtin://jpeg_incompressibility", component + "size.frames=fps:2", component + "size.timeout=5m",
	}, nil)
	require.NoError(t, err)
	n, err := node.New(node.Options{Config: cfg})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	defer n.Stop()
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr.String(), Run: "videos"})
	require.NoError(t, err)
	defer c.Close()

	file := clip.MP4(t, width, height, frames)
	raw := clip.Raw(t, file, "mp4")
	require.Len(t, raw, frames*height*width*3)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var extra []map[string]any
	for id, m := range map[string]*rewards.Media{
		"raw": {Kind: rewards.Video, Layout: rewards.THWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{frames, height, width, 3}, Data: raw, FPS: 8},
		"mp4": {Kind: rewards.Video, Encoding: rewards.MP4, DType: "U8", Shape: []int{len(file)}, Data: file},
	} {
		f, err := c.Submit(ctx, &rewards.Sample{ID: id, Prompt: "a clock", Media: []*rewards.Media{m}}, 0)
		require.NoError(t, err)
		r, err := f.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, r.Outcome, "%v", r.Errors)
		extra = append(extra, map[string]any{
			"pair": r.ExtraInfo["reward/pair"], "text": r.ExtraInfo["reward/text"], "size": r.ExtraInfo["reward/size"], "reward": *r.RewardScore,
		})
	}
	for name, value := range extra[0] {
		assert.NotNil(t, value, name)
	}
	assert.Equal(t, extra[0], extra[1])
}
