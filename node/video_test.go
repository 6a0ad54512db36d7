package node_test

import (
	"context"
	"os"
	"path/filepath"
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
	c := dialNode(t, []string{
		"++loop.sample_timeout=10m",
		component + "pair.path=builtin://clipscore", component + "pair.model=" + tiny(t, "tiny-clip"), component + "pair.frames=every:4", component + "pair.timeout=5m",
		component + "text.path=builtin://ocr", component + "text.no_target=prompt", component + "text.frames=uniform:4", component + "text.timeout=5m",
		component + "size.path=builtin://jpeg_incompressibility", component + "size.frames=fps:2", component + "size.timeout=5m",
	})

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

// dialNode starts a node with these overrides and connects a client; both end with the test.
func dialNode(t *testing.T, overrides []string) *client.Client {
	t.Helper()
	cfg, err := config.Load("", append(overrides, "++server.listen=127.0.0.1:0"), nil)
	require.NoError(t, err)
	n, err := node.New(node.Options{Config: cfg})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr.String(), Run: "videos"})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Python functions and model classes get the frames that their entry chooses, of files as of raw videos, and sounds as samples.
func TestPythonGetsTheFramesThatItsEntryChoosesAndSoundsAsSamples(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	clip.FFmpeg(t)
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	function := write("function.py", `
def compute_score(solution_image):
    return {"score": float(solution_image.shape[0]), "brightness": [round(float(f.mean())) for f in solution_image]}
`)
	model := write("model.py", `
class Sound:
    def compute_scores(self, samples):
        return [{"score": float(s.waveform[0].shape[1]), "rate": s.waveform[1], "frames": len(s.video)} for s in samples]
`)
	component := "+reward.reward_functions."
	c := dialNode(t, []string{
		"++pool.python.interpreter=" + numpyPython(t),
		component + "seen.path=" + function, component + "seen.frames=every:4", component + "seen.required=true",
		component + "heard.path=" + model, component + "heard.name=Sound", component + "heard.frames=first", component + "heard.devices=cpu", component + "heard.required=true",
		component + "heard.extra_keys={rate: number, frames: number}",
	})
	const frames, height, width = 9, 48, 64
	file := clip.MP4(t, width, height, frames)
	wav := clip.Make(t, "a.wav", "-f", "lavfi", "-i", "sine=d=1:r=8000")
	flac := clip.Make(t, "a.flac", "-f", "lavfi", "-i", "sine=d=1:r=8000")
	one := func(kind rewards.Kind, e rewards.Encoding, data []byte) *rewards.Media {
		return &rewards.Media{Kind: kind, Encoding: e, DType: "U8", Shape: []int{len(data)}, Data: data}
	}
	raw := &rewards.Media{Kind: rewards.Video, Layout: rewards.THWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{frames, height, width, 3}, Data: clip.Raw(t, file, "mp4"), FPS: 8}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var details []any
	for id, media := range map[string][]*rewards.Media{
		"files": {one(rewards.Video, rewards.MP4, file), one(rewards.Audio, rewards.WAV, wav)},
		"raw":   {raw, one(rewards.Audio, rewards.FLAC, flac)},
	} {
		f, err := c.Submit(ctx, &rewards.Sample{ID: id, Media: media}, 0)
		require.NoError(t, err)
		r, err := f.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, r.Outcome, "%s: %v", id, r.Errors)
		assert.InDelta(t, 3, r.ExtraInfo["reward/seen"], 0, "frames 0, 4 and 8")
		assert.InDelta(t, 8000, r.ExtraInfo["reward/heard"], 0)
		assert.InDelta(t, 8000, r.ExtraInfo["reward/heard/rate"], 0)
		assert.InDelta(t, 1, r.ExtraInfo["reward/heard/frames"], 0, "the first alone")
		details = append(details, r.Details)
	}
	assert.Equal(t, details[0], details[1])
}
