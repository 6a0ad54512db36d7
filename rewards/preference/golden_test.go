package preference_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/preference"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// reference is golden.json of a tiny model: what transformers and PyTorch made of the
// golden pictures and of texts.
type reference struct {
	Images []struct {
		File   string    `json:"file"`
		Pixels string    `json:"pixels"`
		Width  int       `json:"width"`
		Height int       `json:"height"`
		Embeds []float64 `json:"image_embeds"`
	} `json:"images"`
	Texts []struct {
		Text   string    `json:"text"`
		IDs    []int64   `json:"input_ids"`
		Embeds []float64 `json:"text_embeds"`
	} `json:"texts"`
	Logits [][]float64                `json:"logits_per_image"`
	Scores map[string]json.RawMessage `json:"scores"`
	Cases  []struct {
		Prompt, Response string
		IDs              []int64 `json:"input_ids"`
		Score            float64 `json:"score"`
	} `json:"cases"`
}

func read(t *testing.T, dir string) reference {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	var r reference
	require.NoError(t, json.Unmarshal(data, &r))
	return r
}

func (r reference) grid(t *testing.T, name string) [][]float64 {
	t.Helper()
	var g [][]float64
	require.Contains(t, r.Scores, name)
	require.NoError(t, json.Unmarshal(r.Scores[name], &g))
	return g
}

// inBoth runs a test with ONNX Runtime in this process and in a child process.
func inBoth(t *testing.T, test func(t *testing.T, nets infer.Nets)) {
	t.Helper()
	for _, isolation := range []ort.Isolation{ort.Inline, ort.Process} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			test(t, onnx.CPU(t, isolation))
		})
	}
}

// closeTo checks numbers to a tolerance that is by the largest where that is above 1.
func closeTo(t *testing.T, want, got []float64, tolerance float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	top := 1.0
	for _, w := range want {
		top = max(top, math.Abs(w))
	}
	for i := range want {
		assert.InDelta(t, want[i], got[i], tolerance*top, "%s[%d]", what, i)
	}
}

var embedders = []string{"tiny-clip", "tiny-clip-combined", "tiny-hpsv2", "tiny-siglip"}

func TestGoldenEmbeddings(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, nets infer.Nets) {
		t.Helper()
		for _, name := range embedders {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := folder(t, name)
				f, err := preference.Open(t.Context(), nets, dir, "cpu")
				require.NoError(t, err)
				r := read(t, dir)
				for i, im := range r.Images {
					px := golden(t, im.File)
					text := r.Texts[i%len(r.Texts)]
					image, words, err := f.Embeds(t.Context(), px, text.Text)
					require.NoError(t, err)
					closeTo(t, im.Embeds, image, 1e-4, im.File)
					closeTo(t, text.Embeds, words, 1e-4, fmt.Sprintf("%.40q", text.Text))
				}
				for _, text := range r.Texts {
					_, words, err := f.Embeds(t.Context(), plain(9), text.Text)
					require.NoError(t, err)
					closeTo(t, text.Embeds, words, 1e-4, fmt.Sprintf("%.40q", text.Text))
				}
			})
		}
	})
}

func TestGoldenEmbeddingsInHalfPrecision(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, nets infer.Nets) {
		t.Helper()
		dir := inHalf(t, "tiny-clip")
		f, err := preference.Open(t.Context(), nets, dir, "cpu")
		require.NoError(t, err)
		r := read(t, dir)
		for i, im := range r.Images {
			text := r.Texts[i%len(r.Texts)]
			image, words, err := f.Embeds(t.Context(), golden(t, im.File), text.Text)
			require.NoError(t, err)
			closeTo(t, im.Embeds, image, 2e-2, im.File)
			closeTo(t, text.Embeds, words, 2e-2, fmt.Sprintf("%.40q", text.Text))
		}
	})
}

// inHalf is a model of two towers whose sidecar names the files in half precision.
func inHalf(tb testing.TB, name string) string {
	tb.Helper()
	from, err := filepath.Abs(folder(tb, name))
	require.NoError(tb, err)
	dir := tb.TempDir()
	data, err := os.ReadFile(filepath.Join(from, preference.SidecarFile))
	require.NoError(tb, err)
	var side map[string]any
	require.NoError(tb, json.Unmarshal(data, &side))
	side["files"] = map[string]string{"vision": "vision_model_fp16.onnx", "text": "text_model_fp16.onnx"}
	data, err = json.Marshal(side)
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(filepath.Join(dir, preference.SidecarFile), data, 0o600))
	for _, file := range []string{"vision_model_fp16.onnx", "text_model_fp16.onnx", "tokenizer.json", "golden.json"} {
		require.NoError(tb, os.Symlink(filepath.Join(from, file), filepath.Join(dir, file)))
	}
	return dir
}

func TestGoldenPicturesAndTokens(t *testing.T) {
	t.Parallel()
	nets := onnx.CPU(t, ort.Inline)
	for _, name := range append([]string{"tiny-graph", "tiny-aesthetic"}, embedders...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, name)
			f, err := preference.Open(t.Context(), nets, dir, "cpu")
			require.NoError(t, err)
			r := read(t, dir)
			for _, im := range r.Images {
				want, err := os.ReadFile(filepath.Join(dir, im.Pixels))
				require.NoError(t, err)
				got, err := f.Picture(golden(t, im.File))
				require.NoError(t, err)
				require.Len(t, got, len(want))
				n := im.Width * im.Height
				for i, w := range want { // the file is HWC, the tensor CHW
					if g := got[i%3*n+i/3]; math.Abs(float64(g)-float64(w)) > 1 {
						t.Fatalf("%s: byte %d is %d, want %d", im.File, i, g, w)
					}
				}
			}
			for _, text := range r.Texts {
				ids, count, err := f.Tokens(text.Text, "")
				require.NoError(t, err)
				if f.Sidecar().Text.Pad != "max_length" {
					ids = ids[:count]
				}
				require.Equal(t, text.IDs, ids, "%.60q", text.Text)
			}
		})
	}
}

// TestGoldenScores goes through the scorers as the configuration makes them.
func TestGoldenScores(t *testing.T) {
	t.Parallel()
	options := map[string]string{
		"pickscore": "", "clipscore.flow_grpo": `"formula": "flow_grpo"`, "clipscore.paper": `"formula": "paper"`,
		"clipscore.cosine": `"formula": "cosine"`, "hpsv2": "", "siglip.sigmoid": `"formula": "sigmoid"`, "siglip.logit": `"formula": "logit"`,
	}
	inBoth(t, func(t *testing.T, nets infer.Nets) {
		t.Helper()
		for _, model := range embedders {
			t.Run(model, func(t *testing.T) {
				t.Parallel()
				dir := folder(t, model)
				r := read(t, dir)
				for key, option := range options {
					if _, has := r.Scores[key]; !has {
						continue
					}
					s := scorer(t, nets, before(key), object(dir, option))
					grid := r.grid(t, key)
					for i, im := range r.Images {
						px := golden(t, im.File)
						j := 1 + (i+len(key))%(len(r.Texts)-1) // the first text is empty
						got, err := s.Score(t.Context(), sample(r.Texts[j].Text, px))
						require.NoError(t, err)
						closeTo(t, []float64{grid[i][j]}, []float64{got.Value}, 1e-3, key+" "+im.File)
						closeTo(t, []float64{r.Logits[i][j]}, []float64{got.Extra["logit"].(float64)}, 1e-3, "logit")
					}
				}
			})
		}
	})
}

func before(key string) string {
	for i := range key {
		if key[i] == '.' {
			return key[:i]
		}
	}
	return key
}

// object is the options of a scorer with a model and one more.
func object(dir, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(`{"model": %q%s}`, filepath.ToSlash(dir), more)
}

func TestGoldenImageSimilarity(t *testing.T) {
	t.Parallel()
	nets := onnx.CPU(t, ort.Process)
	for _, model := range []string{"tiny-clip", "tiny-clip-combined"} {
		dir := folder(t, model)
		r := read(t, dir)
		if r.Scores["image_similarity"] == nil {
			continue
		}
		grid := r.grid(t, "image_similarity")
		first, last := scorer(t, nets, "image_similarity", object(dir, "")), scorer(t, nets, "image_similarity", object(dir, `"result": "last"`))
		for i := range min(len(grid), 2) {
			for j := range grid[i] {
				a, b := golden(t, r.Images[i].File), golden(t, r.Images[j].File)
				got, err := first.Score(t.Context(), sample("", a, b))
				require.NoError(t, err)
				assert.InDelta(t, grid[i][j], got.Value, 1e-3)
				if i == 0 {
					got, err = last.Score(t.Context(), sample("", a, plain(3), b))
					require.NoError(t, err)
					assert.InDelta(t, grid[i][j], got.Value, 1e-3)
				}
			}
		}
	}
}

func TestGoldenAesthetic(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, nets infer.Nets) {
		t.Helper()
		dir := folder(t, "tiny-aesthetic")
		r := read(t, dir)
		var want []float64
		require.NoError(t, json.Unmarshal(r.Scores["aesthetic"], &want))
		s := scorer(t, nets, "aesthetic", object(dir, ""))
		half := scorer(t, nets, "aesthetic", object(dir, `"scale": 0.5`))
		for i, im := range r.Images {
			px := golden(t, im.File)
			got, err := s.Score(t.Context(), sample("", px))
			require.NoError(t, err)
			closeTo(t, []float64{want[i]}, []float64{got.Value}, 1e-3, im.File)
			again, err := half.Score(t.Context(), sample("", px))
			require.NoError(t, err)
			assert.InDelta(t, got.Value/2, again.Value, 1e-5)
			assert.InDelta(t, got.Value, again.Extra["output"], 1e-5)
		}
	})
}

func TestGoldenTextRewardModels(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, nets infer.Nets) {
		t.Helper()
		for _, model := range []string{"tiny-textrm-bert", "tiny-textrm-qwen2"} {
			t.Run(model, func(t *testing.T) {
				t.Parallel()
				dir := folder(t, model)
				f, err := preference.Open(t.Context(), nets, dir, "cpu")
				require.NoError(t, err)
				s := scorer(t, nets, "text_rm", object(dir, ""))
				for _, c := range read(t, dir).Cases {
					ids, count, err := f.Tokens(c.Prompt, c.Response)
					require.NoError(t, err)
					require.Equal(t, c.IDs, ids[:count], "%.60q", c.Prompt)
					if c.Prompt == "" {
						continue
					}
					got, err := s.Score(t.Context(), &rewards.Sample{ID: "r", Prompt: c.Prompt, Response: c.Response})
					require.NoError(t, err)
					closeTo(t, []float64{c.Score}, []float64{got.Value}, 1e-3, fmt.Sprintf("%.40q", c.Prompt))
					assert.Equal(t, int64(count), got.Extra["tokens"])
				}
			})
		}
	})
}

func TestGoldenGraph(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, nets infer.Nets) {
		t.Helper()
		dir := folder(t, "tiny-graph")
		r := read(t, dir)
		grid := r.grid(t, "onnx")
		s := scorer(t, nets, "onnx", object(dir, ""))
		for i, im := range r.Images {
			px := golden(t, im.File)
			for j, text := range r.Texts {
				if text.Text == "" || (i+j)%5 != 0 {
					continue
				}
				got, err := s.Score(t.Context(), sample(text.Text, px))
				require.NoError(t, err)
				closeTo(t, []float64{grid[i][j]}, []float64{got.Value}, 1e-3, im.File)
			}
		}
	})
}

func TestTheSelfTestOfEveryTinyModelPasses(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, nets infer.Nets) {
		t.Helper()
		for _, name := range append([]string{"tiny-aesthetic", "tiny-graph", "tiny-textrm-bert", "tiny-textrm-qwen2"}, embedders...) {
			dir := folder(t, name)
			f, err := preference.Open(t.Context(), nets, dir, "cpu")
			require.NoError(t, err)
			require.NoError(t, f.SelfTest(t.Context(), dir), name)
		}
	})
}
