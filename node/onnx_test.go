package node_test

import (
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
)

// tiny is the folder of a tiny model of a true architecture.
func tiny(t *testing.T, name string) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "testdata", "models", name))
	require.NoError(t, err)
	return folder
}

// golden reads what Python made of a tiny model.
func golden(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tiny(t, name), "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}

// rawPicture is one of the golden pictures, raw, as a generator has it.
func rawPicture(t *testing.T, name string) *rewards.Media {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", "golden", "images", name))
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	var data []byte
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			data = append(data, byte(r>>8), byte(g>>8), byte(b>>8)) //nolint:gosec // 16 bits, the upper 8
		}
	}
	size := img.Bounds().Size()
	return &rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.HWC, DType: "U8", Shape: []int{size.Y, size.X, 3}, Data: data}
}

// The whole chain: a group of 16 samples with one prompt comes over a websocket, is scored
// by a preference model, a graph of one's own, a judge from its logits and one that
// writes, all in child processes, as Python scores it, and its text is encoded once.
func TestGoldenONNXModelsScoreAGroupThroughTheWholeChain(t *testing.T) {
	t.Parallel()
	if testing.Short() && os.Getenv("REQUIRE_ORT") != "1" {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	if _, err := ort.Find(""); err != nil && os.Getenv("REQUIRE_ORT") != "1" {
		t.Skipf("SKIPPED: no ONNX Runtime: %v", err)
	}
	scoreAGroup(t, "cpu", 1e-3)
}

func scoreAGroup(t *testing.T, device string, tolerance float64) {
	t.Helper()
	const prompt, name = "a photo of a cat", "img_02_97x131.png"
	const question = `"Does this figure show \"a red car\"? Please answer yes or no."` // of the golden case
	var clip, graph struct {                                                           // the same pictures and texts
		Images []struct{ File string }
		Texts  []struct{ Text string }
		Scores map[string][][]float64
	}
	golden(t, "tiny-clip", &clip)
	golden(t, "tiny-graph", &graph)
	var judge struct {
		Cases []struct {
			Name string
			PYes float64 `json:"p_yes"`
		}
	}
	golden(t, "tiny-idefics3", &judge)
	require.Equal(t, "whole-97x131", judge.Cases[2].Name)
	at, text := 0, 0
	for clip.Images[at].File != name {
		at++
	}
	for clip.Texts[text].Text != prompt {
		text++
	}

	component := "+reward.reward_functions."
	cfg, err := config.Load("", []string{
		"++server.listen=127.0.0.1:0",
		component + "pair.path=builtin://clipscore", component + "pair.model=" + tiny(t, "tiny-clip"), component + "pair.device=" + device,
		component + "own.path=onnx://" + tiny(t, "tiny-graph"), component + "own.device=" + device,
		component + "shown.path=builtin://vlm", component + "shown.model=" + tiny(t, "tiny-idefics3"), component + "shown.device=" + device,
		component + "half.path=builtin://vlm", component + "half.model=" + tiny(t, "tiny-idefics3"), component + "half.device=" + device, component + "half.dtype=fp16",
		component + "says.path=builtin://judge", component + "says.engine=here", component + `says.regex="([0-9])"`, component + "says.max_tokens=16",
		component + "says.template=" + question, component + "shown.template=" + question, component + "half.template=" + question,
		"+engines.here.onnx=" + tiny(t, "tiny-idefics3"), "+engines.here.device=" + device,
	}, nil)
	require.NoError(t, err)
	book := new(logbook)
	n, err := node.New(node.Options{Config: cfg, Log: slog.New(slog.NewTextHandler(book, nil))})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	defer n.Stop()
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr.String(), Run: "onnx"})
	require.NoError(t, err)
	defer c.Close()

	before := answered(t, addr.String(), "tiny-clip/text")
	var futures []*client.Future
	for i := range 16 {
		s := rewards.Sample{ID: fmt.Sprint(i), UID: "group", GroupSize: 16, Prompt: prompt, Media: []*rewards.Media{rawPicture(t, name)}}
		f, err := c.Submit(t.Context(), &s, 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	for _, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		assert.InDelta(t, judge.Cases[2].PYes, res.ExtraInfo["reward/shown"], tolerance)
		assert.InDelta(t, judge.Cases[2].PYes, res.ExtraInfo["reward/half"], 2e-2)
		assert.InDelta(t, 1, res.ExtraInfo["reward/says"], 0, "the digit among what the judge writes")
		assert.InDelta(t, clip.Scores["clipscore.flow_grpo"][at][text], res.ExtraInfo["reward/pair"], tolerance)
		assert.InDelta(t, graph.Scores["onnx"][at][text], res.ExtraInfo["reward/own"], tolerance)
	}
	require.InDelta(t, 1, answered(t, addr.String(), "tiny-clip/text")-before, 0, "the text of a group is encoded once")
	for _, says := range []string{
		`decoder_model_merged.onnx device=` + device, `past_key_values F32" outputs="logits F32, present F32"`,
		`decoder_model_merged_fp16.onnx device=` + device, `past_key_values F16" outputs="logits F16, present F16"`,
	} {
		require.Contains(t, book.String(), says)
	}
}

// answered is how many items a model has answered, as the metrics say.
func answered(t *testing.T, addr, model string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	m := regexp.MustCompile(`pool_items_total\{[^}]*end="answered"[^}]*model="` + regexp.QuoteMeta(model) + `"[^}]*\} (\d+)`).FindSubmatch(text)
	if m == nil {
		return 0
	}
	var n float64
	require.NoError(t, json.Unmarshal(m[1], &n))
	return n
}
