package vlm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/vlm"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

func TestMain(m *testing.M) { onnx.Main(m) }

// models is where the tiny models lie.
func models() string { return filepath.Join("..", "..", "testdata", "models") }

// tiny is the folder of a tiny model. Without it the test is skipped.
func tiny(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(models(), name)
	if _, err := os.Stat(filepath.Join(path, "tokenizer.json")); err != nil {
		tb.Skipf("SKIPPED: testdata/models/%s is not there: models/export/tiny_vlm.py makes it", name)
	}
	return path
}

// pictures is where the pictures of the goldens lie.
func pictures() string {
	if dir := os.Getenv("REWARDLOOP_GOLDEN"); dir != "" {
		return filepath.Join(dir, "images")
	}
	return filepath.Join("..", "..", "testdata", "golden", "images")
}

func decoder(tb testing.TB) rewards.Decoder {
	tb.Helper()
	d, err := media.New(media.Config{})
	require.NoError(tb, err)
	return d
}

// judges are a registry on nets, for which a model is a path.
func judges(tb testing.TB, nets infer.Nets) *vlm.Judges {
	tb.Helper()
	return vlm.NewJudges(vlm.Deps{Nets: nets, Decoder: decoder(tb)})
}

func judgeOf(tb testing.TB, nets infer.Nets, folder string) *vlm.Judge {
	tb.Helper()
	j, err := judges(tb, nets).Judge(vlm.Options{Model: folder})
	require.NoError(tb, err)
	return j
}

// variant is a copy of a folder in which some files are others: with their contents, or
// with nil left out. What a link can stand for is one.
func variant(tb testing.TB, folder string, files map[string][]byte) string {
	tb.Helper()
	out := tb.TempDir()
	require.NoError(tb, os.Mkdir(filepath.Join(out, "onnx"), 0o755))
	from, err := filepath.Abs(folder)
	require.NoError(tb, err)
	for _, sub := range []string{".", "onnx"} {
		entries, err := os.ReadDir(filepath.Join(from, sub))
		require.NoError(tb, err)
		for _, e := range entries {
			name := filepath.Join(sub, e.Name())
			if _, other := files[name]; !other && !e.IsDir() {
				require.NoError(tb, os.Symlink(filepath.Join(from, name), filepath.Join(out, name)))
			}
		}
	}
	for name, data := range files {
		if data != nil {
			require.NoError(tb, os.WriteFile(filepath.Join(out, name), data, 0o644))
		}
	}
	return out
}

// edited is the config.json of a folder with some keys set, "a.b" below one another, or
// with nil taken out.
func edited(tb testing.TB, folder string, set map[string]any) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "config.json"))
	require.NoError(tb, err)
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	require.NoError(tb, d.Decode(&all))
	for path, v := range set {
		at := all
		steps := strings.Split(path, ".")
		for _, s := range steps[:len(steps)-1] {
			next, ok := at[s].(map[string]any)
			require.True(tb, ok, path)
			at = next
		}
		last := steps[len(steps)-1]
		if v == nil {
			delete(at, last)
		} else {
			at[last] = v
		}
	}
	out, err := json.Marshal(all)
	require.NoError(tb, err)
	return out
}

// decoded are the pixels of a golden picture.
func decoded(tb testing.TB, name string) *rewards.Pixels {
	tb.Helper()
	px, err := decoder(tb).Decode(tb.Context(), &rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG, Data: encoded(tb, name)})
	require.NoError(tb, err)
	return px
}

func encoded(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(pictures(), name))
	if os.IsNotExist(err) {
		tb.Skipf("SKIPPED: the golden pictures are not there: %v", err)
	}
	require.NoError(tb, err)
	return data
}

// grey are pixels of one shade for each frame.
func grey(width, height int, shades ...byte) *rewards.Pixels {
	px := &rewards.Pixels{Width: width, Height: height, Count: len(shades)}
	for _, s := range shades {
		px.RGB = append(px.RGB, bytes.Repeat([]byte{s}, width*height*3)...)
	}
	return px
}

// shown is a picture, or a video of several frames, that is decoded already.
func shown(px *rewards.Pixels) *rewards.Media {
	m := &rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw}
	if px.Count > 1 {
		m.Kind = rewards.Video
	}
	m.SetDecoder(already{px})
	return m
}

type already struct{ px *rewards.Pixels }

func (a already) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) { return a.px, nil }

// dot is a PNG of 8 × 8 pixels of one shade.
func dot(tb testing.TB, shade byte) []byte {
	tb.Helper()
	img := image.NewGray(image.Rect(0, 0, 8, 8))
	for i := range img.Pix {
		img.Pix[i] = color.Gray{Y: shade}.Y
	}
	var b bytes.Buffer
	require.NoError(tb, png.Encode(&b, img))
	return b.Bytes()
}

// floats reads a file of float32.
func floats(tb testing.TB, path string) []float32 {
	tb.Helper()
	data, err := os.ReadFile(path)
	require.NoError(tb, err)
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

// scripted are networks that answer as a test says. The vision encoder's features are
// the mean shade of a tile, in every place.
type scripted struct {
	vocabulary int
	// tokens is how many features an item has.
	tokens int
	// says are the tokens that are said to a prompt, and how likely some tokens are.
	says func(ids []int64) []int64
	odds func(ids []int64, id int64) float32
	// sick: what is said has log probabilities that are no numbers.
	sick bool
	// before is called with every request; its error is the answer.
	before func(ctx context.Context, m infer.Model, r infer.Request) error

	mu   sync.Mutex
	seen []infer.Request // guarded by mu; of the language model
	eyes int             // guarded by mu; requests to the vision encoder
}

func (s *scripted) Net(m infer.Model) (infer.Net, error) { return scriptedNet{s, m}, nil }

func (s *scripted) asked() []infer.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *scripted) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eyes
}

type scriptedNet struct {
	*scripted

	model infer.Model
}

func (n scriptedNet) Info(context.Context) (infer.Info, error) {
	if n.model.Embed != "" {
		return infer.Info{Metadata: map[string]string{infer.MetaVocabulary: fmt.Sprint(n.vocabulary)}}, nil
	}
	return infer.Info{
		Inputs:  []infer.Port{{Name: "pixel_values", DType: "F32", Shape: []int{-1, -1, 3, -1, -1}}},
		Outputs: []infer.Port{{Name: "image_features", DType: "F32", Shape: []int{-1, n.tokens, 2}}},
	}, nil
}

func (n scriptedNet) Infer(ctx context.Context, r infer.Request) ([]infer.Tensor, error) {
	if n.before != nil {
		if err := n.before(ctx, n.model, r); err != nil {
			return nil, err
		}
	}
	if r.Generate == nil {
		n.mu.Lock()
		n.eyes++
		n.mu.Unlock()
		out := make([]float32, 2*n.tokens)
		for i := range out {
			out[i] = float32(r.Inputs[0].U8[0])
		}
		return []infer.Tensor{infer.Floats(infer.ImageFeatures, out, n.tokens, 2)}, nil
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.seen = append(n.seen, r)
	n.mu.Unlock()
	ids, _ := r.Input(infer.InputIDs)
	if r.Generate.MaxNew == 0 {
		return n.logits(r.Generate, ids.I64), nil
	}
	return n.talk(r.Generate, ids.I64), nil
}

// logits has odds for the last place, and nothing for those before it.
func (n scriptedNet) logits(g *infer.Generate, ids []int64) []infer.Tensor {
	pick := g.Pick
	if pick == nil {
		for id := range n.vocabulary {
			pick = append(pick, int64(id))
		}
	}
	var of, totals []float32
	for k := range g.Keep {
		said := ids[:len(ids)-g.Keep+k+1]
		sum := 0.0
		for id := range n.vocabulary {
			sum += math.Exp(float64(n.odd(said, int64(id))))
		}
		totals = append(totals, float32(math.Log(sum)))
		for _, id := range pick {
			of = append(of, n.odd(said, id))
		}
	}
	return []infer.Tensor{infer.Floats("logits", of, g.Keep, len(pick)), infer.Floats("logsumexp", totals, g.Keep)}
}

func (n scriptedNet) odd(said []int64, id int64) float32 {
	if n.odds == nil {
		return 0
	}
	return n.odds(said, id)
}

// talk says what is to be said, each token with a probability of a half and the token
// before it as the alternative.
func (n scriptedNet) talk(g *infer.Generate, ids []int64) []infer.Tensor {
	tokens := make([]int64, g.MaxNew)
	logprobs := make([]float32, g.MaxNew)
	topIDs, topLogs := make([]int64, g.MaxNew*g.Top), make([]float32, g.MaxNew*g.Top)
	say := n.says(ids)
	stopped := int64(1)
	if len(say) > g.MaxNew {
		say, stopped = say[:g.MaxNew], 0
	}
	for i := range tokens {
		tokens[i] = -1
		if i < len(say) {
			tokens[i], logprobs[i] = say[i], -0.69314718
			if n.sick {
				logprobs[i] = float32(math.NaN())
			}
		}
		for k := range g.Top {
			topIDs[i*g.Top+k] = -1
			if i < len(say) && k == 0 {
				topIDs[i*g.Top], topLogs[i*g.Top] = say[i], -0.69314718
			}
			if i < len(say) && k == 1 {
				topIDs[i*g.Top+1], topLogs[i*g.Top+1] = max(say[i]-1, 0), -1.5
			}
		}
	}
	out := []infer.Tensor{
		{Name: "tokens", DType: infer.I64, Shape: []int{g.MaxNew}, I64: tokens},
		infer.Floats("logprobs", logprobs, g.MaxNew),
		{Name: "stopped", DType: infer.I64, Shape: []int{1}, I64: []int64{stopped}},
	}
	if g.Top > 0 {
		out = append(out,
			infer.Tensor{Name: "top_ids", DType: infer.I64, Shape: []int{g.MaxNew, g.Top}, I64: topIDs},
			infer.Floats("top_logprobs", topLogs, g.MaxNew, g.Top))
	}
	return out
}
