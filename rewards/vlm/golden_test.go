package vlm_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/vlm"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// golden is what transformers' processors and its eager float32 model say.
type golden struct {
	Tokens struct {
		Yes  []int64 `json:"yes"`
		No   []int64 `json:"no"`
		Stop []int64 `json:"stop"`
	} `json:"tokens"`
	Batches [][]string   `json:"batches"`
	Cases   []goldenCase `json:"cases"`
}

type goldenFile struct {
	File string `json:"file"`
}

type goldenCase struct {
	Name     string   `json:"name"`
	Images   []string `json:"images"`
	Messages []struct {
		Role    string `json:"role"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"messages"`
	Split          bool       `json:"split"`
	LongestEdge    int        `json:"longest_edge"`
	Rows           []int      `json:"rows"`
	Cols           []int      `json:"cols"`
	Grids          [][3]int   `json:"grids"`
	PositionIDs    [][]int64  `json:"position_ids"`
	Pixels         goldenFile `json:"pixels"`
	ImageFeatures  goldenFile `json:"image_features"`
	InputIDs       []int64    `json:"input_ids"`
	LastLogits     goldenFile `json:"last_logits"`
	Greedy         []int64    `json:"greedy"`
	GreedyLogprobs []float64  `json:"greedy_logprobs"`
	GreedyStopped  bool       `json:"greedy_stopped"`
	GreedyText     string     `json:"greedy_text"`
	PYes           float64    `json:"p_yes"`
	Mass           float64    `json:"mass"`
	Digit          float64    `json:"digit"`
	DigitMass      float64    `json:"digit_mass"`
	DigitScore     float64    `json:"digit_score"`
	Candidates     []struct {
		Text    string  `json:"text"`
		Logprob float64 `json:"logprob"`
	} `json:"candidates"`
}

func (c goldenCase) turns() []vlm.Turn {
	var turns []vlm.Turn
	for _, m := range c.Messages {
		t := vlm.Turn{Role: m.Role}
		for _, p := range m.Content {
			t.Parts = append(t.Parts, vlm.Part{Text: p.Text, Image: p.Type == "image"})
		}
		turns = append(turns, t)
	}
	return turns
}

func (c goldenCase) pixels(tb testing.TB) []*rewards.Pixels {
	tb.Helper()
	px := make([]*rewards.Pixels, len(c.Images))
	for i, name := range c.Images {
		px[i] = decoded(tb, name)
	}
	return px
}

func (c goldenCase) candidates() []string {
	texts := make([]string, len(c.Candidates))
	for i, k := range c.Candidates {
		texts[i] = k.Text
	}
	return texts
}

func readGolden(tb testing.TB, folder string) golden {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "golden.json"))
	require.NoError(tb, err)
	var g golden
	require.NoError(tb, json.Unmarshal(data, &g))
	require.NotEmpty(tb, g.Cases)
	return g
}

func (g golden) find(tb testing.TB, name string) goldenCase {
	tb.Helper()
	i := slices.IndexFunc(g.Cases, func(c goldenCase) bool { return c.Name == name })
	require.GreaterOrEqual(tb, i, 0, name)
	return g.Cases[i]
}

// settings are the variants of a folder by what cases set.
type settings map[string]string

// asked are the options of a case, and a folder with its settings.
func (s settings) asked(tb testing.TB, c goldenCase, folder string) vlm.Options {
	tb.Helper()
	if c.LongestEdge > 0 {
		judge := fmt.Sprintf(`{"format": 1, "split": %t, "longest_edge": %d}`, c.Split, c.LongestEdge)
		if s[judge] == "" {
			s[judge] = variant(tb, folder, map[string][]byte{"judge.json": []byte(judge)})
		}
		folder = s[judge]
	}
	return vlm.Options{Model: folder, Split: &c.Split}
}

// check compares everything that is made on the way with what transformers makes.
func (c goldenCase) check(tb testing.TB, folder string, got vlm.Inspection) {
	tb.Helper()
	require.Equal(tb, c.InputIDs, got.IDs, "%s: token ids", c.Name)
	var positions []int64
	for _, axis := range c.PositionIDs {
		positions = append(positions, axis...)
	}
	require.Equal(tb, positions, got.Positions, "%s: positions", c.Name)
	for i := range c.Images {
		var want [2]int
		if len(c.Grids) > 0 {
			want = [2]int{c.Grids[i][1] / 2, c.Grids[i][2] / 2}
		} else {
			want = [2]int{c.Rows[i], c.Cols[i]}
		}
		require.Equal(tb, want, got.Grids[i], "%s: grid of picture %d", c.Name, i)
	}
	levels, features := 0, 0.0
	if len(c.Images) > 0 {
		want, err := os.ReadFile(filepath.Join(folder, c.Pixels.File))
		require.NoError(tb, err)
		require.Len(tb, got.Pixels, len(want), c.Name)
		for i := range want {
			levels = max(levels, int(math.Abs(float64(want[i])-float64(got.Pixels[i]))))
		}
		features = apart(tb, floats(tb, filepath.Join(folder, c.ImageFeatures.File)), got.Features)
		assert.LessOrEqual(tb, levels, 1, "%s: levels between the pixels", c.Name)
		assert.LessOrEqual(tb, features, 1e-4, "%s: features", c.Name)
	}
	logits := apart(tb, floats(tb, filepath.Join(folder, c.LastLogits.File)), got.Logits)
	assert.LessOrEqual(tb, logits, 1e-3, "%s: logits", c.Name)
	tb.Logf("%s: pixels are up to %d levels apart, features %.1e, logits %.1e", c.Name, levels, features, logits)
	assert.Equal(tb, c.Greedy, got.Greedy, "%s: what is said", c.Name)
	assert.Equal(tb, c.GreedyStopped, got.Stopped, c.Name)
	assert.Equal(tb, c.GreedyText, got.Text, c.Name)
	assert.InDeltaSlice(tb, c.GreedyLogprobs, got.Logprobs, 1e-3, c.Name)
	for i, k := range c.Candidates {
		assert.InDelta(tb, k.Logprob, got.Candidates[i], 1e-3, "%s: log P(%q)", c.Name, k.Text)
	}
}

// checkHalf is check for models in half precision: what is computed is within 2e-2, and what
// is said the same.
func (c goldenCase) checkHalf(tb testing.TB, folder string, got vlm.Inspection) {
	tb.Helper()
	const near = 2e-2
	require.Equal(tb, c.InputIDs, got.IDs, "%s: token ids", c.Name)
	if len(c.Images) > 0 {
		features := apart(tb, floats(tb, filepath.Join(folder, c.ImageFeatures.File)), got.Features)
		assert.LessOrEqual(tb, features, near, "%s: features", c.Name)
	}
	logits := apart(tb, floats(tb, filepath.Join(folder, c.LastLogits.File)), got.Logits)
	assert.LessOrEqual(tb, logits, near, "%s: logits", c.Name)
	tb.Logf("%s in half precision: logits are %.1e apart", c.Name, logits)
	assert.Equal(tb, c.Greedy, got.Greedy, "%s: what is said", c.Name)
	assert.InDeltaSlice(tb, c.GreedyLogprobs, got.Logprobs, near, c.Name)
	for i, k := range c.Candidates {
		assert.InDelta(tb, k.Logprob, got.Candidates[i], 5*near, "%s: log P(%q), the sum over its tokens", c.Name, k.Text)
	}
}

// apart is the largest difference, by the largest value where that is above 1.
func apart(tb testing.TB, want, got []float32) float64 {
	tb.Helper()
	require.Len(tb, got, len(want))
	largest, off := 1.0, 0.0
	for i := range want {
		largest = max(largest, math.Abs(float64(want[i])))
		off = max(off, math.Abs(float64(want[i])-float64(got[i])))
	}
	return off / largest
}

func tinies() []string { return []string{"tiny-idefics3", "tiny-qwen2_5_vl"} }

func TestGoldenEverythingOnTheWayFromAConversationToItsAnswersIsAsTransformersMakesIt(t *testing.T) {
	t.Parallel()
	for _, name := range tinies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, folders := tiny(t, name), settings{}
			g := readGolden(t, folder)
			registry := judges(t, onnx.CPU(t, ort.Inline))
			for _, c := range g.Cases {
				j, err := registry.Judge(folders.asked(t, c, folder))
				require.NoError(t, err)
				got, err := j.Inspect(t.Context(), c.turns(), c.pixels(t), c.candidates(), 16)
				require.NoError(t, err, c.Name)
				c.check(t, folder, got)
				stops, yes, no, err := j.Words(t.Context())
				require.NoError(t, err)
				require.Equal(t, g.Tokens.Yes, yes)
				require.Equal(t, g.Tokens.No, no)
				for _, id := range g.Tokens.Stop {
					require.Contains(t, stops, id)
				}
			}
		})
	}
}

// TestGoldenQuestionsThatShareBatchesGetTheAnswersTheyGetAlone asks them at the same
// time, through child processes.
func TestGoldenQuestionsThatShareBatchesGetTheAnswersTheyGetAlone(t *testing.T) {
	t.Parallel()
	for _, name := range tinies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, folders := tiny(t, name), settings{}
			g := readGolden(t, folder)
			registry := judges(t, onnx.CPU(t, ort.Process))
			for _, batch := range g.Batches {
				first := g.find(t, batch[0])
				j, err := registry.Judge(folders.asked(t, first, folder))
				require.NoError(t, err)
				require.NoError(t, j.Warm(t.Context()))
				got := make([]vlm.Inspection, len(batch))
				pixels := make([][]*rewards.Pixels, len(batch))
				for i, name := range batch {
					pixels[i] = g.find(t, name).pixels(t)
				}
				var all errgroup.Group
				for i, name := range batch {
					c := g.find(t, name)
					all.Go(func() (err error) {
						got[i], err = j.Inspect(t.Context(), c.turns(), pixels[i], c.candidates(), 16)
						return err
					})
				}
				require.NoError(t, all.Wait())
				for i, name := range batch {
					g.find(t, name).check(t, folder, got[i])
				}
			}
		})
	}
}

func TestGoldenTheScorerGivesPYesTheDigitAndTheCandidates(t *testing.T) {
	t.Parallel()
	for _, name := range tinies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, folders := tiny(t, name), settings{}
			registry := judges(t, onnx.CPU(t, ort.Inline))
			for _, c := range readGolden(t, folder).Cases {
				last := c.Messages[len(c.Messages)-1].Content
				if len(c.Images) != 1 || len(last) != 2 {
					continue // the scorer shows one picture, before the text
				}
				o := folders.asked(t, c, folder)
				options := map[string]any{"model": o.Model, "split": c.Split, "template": last[1].Text}
				if len(c.Messages) > 1 {
					options["system"] = c.Messages[0].Content[0].Text
				}
				sample := &rewards.Sample{ID: c.Name, Prompt: "p", Media: []*rewards.Media{shown(c.pixels(t)[0])}}
				score := func(set map[string]any) rewards.Score {
					t.Helper()
					maps.Copy(set, options)
					got, err := scorer(t, registry, set).Score(t.Context(), sample)
					require.NoError(t, err, c.Name)
					return got
				}
				got := score(map[string]any{})
				assert.InDelta(t, c.PYes, got.Value, 1e-4, c.Name)
				assert.InDelta(t, c.Mass, got.Extra["mass"], 1e-4, c.Name)
				got = score(map[string]any{"mode": "digit"})
				assert.InDelta(t, c.DigitScore, got.Value, 1e-4, c.Name)
				assert.InDelta(t, c.Digit, got.Extra["expected"], 1e-3, c.Name)
				assert.InDelta(t, c.DigitMass, got.Extra["mass"], 1e-4, c.Name)
				if name != "tiny-idefics3" { // which puts a space before "No"
					got = score(map[string]any{"mode": "candidates", "candidates": c.candidates(), "expected": "No"})
					var logs []float64
					for _, k := range c.Candidates {
						logs = append(logs, k.Logprob)
					}
					shares, total := vlm.Shares(logs)
					assert.InDelta(t, shares[1], got.Value, 1e-4, c.Name)
					assert.InDelta(t, c.Candidates[1].Logprob, got.Extra["logprob"], 1e-3, c.Name)
					assert.InDelta(t, math.Exp(total), got.Extra["mass"], 1e-4, c.Name)
				}
			}
		})
	}
}

// scorer builds the scorer.
func scorer(tb testing.TB, registry *vlm.Judges, options map[string]any) rewards.Scorer {
	tb.Helper()
	raw, err := json.Marshal(options)
	require.NoError(tb, err)
	s, err := vlm.Specs(registry)[0].Build(raw)
	require.NoError(tb, err)
	return s
}
