package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/models"
	nodes "github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/randmodel"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// cardJob is a load on a card.
type cardJob struct {
	name string
	// stages are the graphs that the bare loop runs one behind the other.
	stages []string
	bare   func(c *cardModels) []bareStage
	// side is that of the samples' pictures.
	side func(c *cardModels) (width, height int)
	// scorer is what scores them.
	scorer func(c *cardModels, s *nodes.Scorers) (rewards.Scorer, error)
}

// bareStage is one graph of the bare loop and an item of its batches.
type bareStage struct {
	name  string
	model infer.Model
	item  infer.Request
}

func cardJobs() []cardJob {
	return []cardJob{
		{
			name: "clip", stages: []string{"vision"},
			side: func(c *cardModels) (int, int) { return c.clip.Picture, c.clip.Picture },
			bare: func(c *cardModels) []bareStage {
				return []bareStage{{"vision", c.model("clip/vision_model.onnx"), ready("pixel_values", 3, c.clip.Picture, c.clip.Picture)}}
			},
			scorer: func(c *cardModels, s *nodes.Scorers) (rewards.Scorer, error) {
				return build(s, "clipscore", map[string]any{"model": filepath.Join(c.folder, "clip"), "device": c.device})
			},
		},
		{
			name: "smolvlm", stages: []string{"vision", "language"},
			side: func(c *cardModels) (int, int) { return c.smol.Tile, c.smol.Tile },
			bare: func(c *cardModels) []bareStage {
				return []bareStage{{"vision", c.model("smolvlm/onnx/vision_encoder.onnx"), ready("pixel_values", 3, c.smol.Tile, c.smol.Tile)}, c.language()}
			},
			scorer: func(c *cardModels, s *nodes.Scorers) (rewards.Scorer, error) {
				return build(s, "vlm", map[string]any{"model": filepath.Join(c.folder, "smolvlm"), "device": c.device, "mode": "yes_no"})
			},
		},
		{
			name: "detector", stages: []string{"detector"},
			side: func(c *cardModels) (int, int) { return c.page, c.page },
			bare: func(c *cardModels) []bareStage {
				return []bareStage{{"detector", c.detector(), ready("", 3, c.page, c.page)}}
			},
			scorer: func(c *cardModels, s *nodes.Scorers) (rewards.Scorer, error) { return planar(s, c.detector(), "") },
		},
		{
			name: "recogniser", stages: []string{"recogniser"},
			side: func(c *cardModels) (int, int) { return c.line, 48 },
			bare: func(c *cardModels) []bareStage {
				item := ready("", 3, 48, c.line)
				item.Reduce = infer.ArgMax
				return []bareStage{{"recogniser", c.recogniser(), item}}
			},
			scorer: func(c *cardModels, s *nodes.Scorers) (rewards.Scorer, error) {
				return planar(s, c.recogniser(), infer.ArgMax)
			},
		},
	}
}

// cardModels are the models of the suite and where they lie.
type cardModels struct {
	device, folder string
	readers        string // the folder of PP-OCR's
	small          bool
	clip           randmodel.CLIP
	smol           randmodel.SmolVLM
	page, line     int // sides of pictures for PP-OCR, in pixels
}

// newCardModels makes the models, which takes half a minute and 2 GB the first time, or on the
// CPU a second.
func newCardModels(o Options) (*cardModels, error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	store, err := models.FromEnvironment(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	const words = 856 // of the tokenizer of tiny-clip, and more than that of tiny-idefics3
	c := &cardModels{device: o.Device, readers: store.Dir, small: o.Device == "cpu", clip: randmodel.Base32(words), smol: randmodel.Smol256M(), page: 736, line: 320}
	size := "full"
	if c.small {
		size = "small"
		c.clip, c.smol, c.page, c.line = randmodel.TinyCLIP(words), randmodel.TinySmol(words), 64, 64
	}
	c.folder = filepath.Join(root, ".cache", "bench-gpu", size)
	tiny := filepath.Join(root, "testdata", "models")
	if err := randmodel.WriteCLIPFolder(filepath.Join(c.folder, "clip"), filepath.Join(tiny, "tiny-clip"), c.clip); err != nil {
		return nil, err
	}
	if err := randmodel.WriteSmolVLMFolder(filepath.Join(c.folder, "smolvlm"), filepath.Join(tiny, "tiny-idefics3"), c.smol); err != nil {
		return nil, err
	}
	return c, nil
}

// model is one of the folder's, on the device.
func (c *cardModels) model(name string) infer.Model {
	return infer.Model{Name: name, Path: filepath.Join(c.folder, filepath.FromSlash(name)), Device: c.device}
}

func (c *cardModels) detector() infer.Model   { return c.reader("ch_PP-OCRv4_det_mobile.onnx") }
func (c *cardModels) recogniser() infer.Model { return c.reader("ch_PP-OCRv4_rec_mobile.onnx") }

// reader is a model of PP-OCR, where make models puts it.
func (c *cardModels) reader(name string) infer.Model {
	return infer.Model{Name: name, Path: filepath.Join(c.readers, name), Device: c.device}
}

// language is a prompt of a tile and forty tokens, as a question of yes or no has them.
func (c *cardModels) language() bareStage {
	const image, question = 738, 40
	ids := make([]int64, 0, question+c.smol.Tokens())
	for i := range question / 2 {
		ids = append(ids, int64(100+i))
	}
	for range c.smol.Tokens() {
		ids = append(ids, image)
	}
	for i := range question / 2 {
		ids = append(ids, int64(300+i))
	}
	features := make([]float32, c.smol.Tokens()*c.smol.Decoder.Width)
	rng := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // noise
	for i := range features {
		features[i] = float32(rng.NormFloat64())
	}
	m := c.model("smolvlm/onnx/decoder_model_merged.onnx")
	m.Embed = filepath.Join(filepath.Dir(m.Path), "embed_tokens.onnx")
	return bareStage{"language", m, infer.Request{
		Name: "prompt",
		Inputs: []infer.Tensor{
			{Name: infer.InputIDs, DType: infer.I64, Shape: []int{len(ids)}, I64: ids},
			infer.Floats(infer.ImageFeatures, features, c.smol.Tokens(), c.smol.Decoder.Width),
		},
		Generate: &infer.Generate{ImageToken: image, Keep: 1},
	}}
}

// ready is an item of noise as floats.
func ready(name string, shape ...int) infer.Request {
	t := infer.Floats(name, make([]float32, infer.Elements(shape)), shape...)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // noise
	for i := range t.F32 {
		t.F32[i] = 2*rng.Float32() - 1
	}
	return infer.Request{Name: "ready", Inputs: []infer.Tensor{t}}
}

func build(s *nodes.Scorers, kind string, options map[string]any) (rewards.Scorer, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	return s.Registry.Build(kind, text)
}

// planar is a scorer that takes a raw picture as planes of bytes, lets the card's child
// normalise them, and gives the first number of the answer.
func planar(s *nodes.Scorers, m infer.Model, reduce infer.Reduction) (rewards.Scorer, error) {
	net, err := s.Readers.Devices.Net(m)
	if err != nil {
		return nil, err
	}
	return rewards.ScorerFunc(func(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
		px, giveBack, err := sample.Media[0].Borrow(ctx)
		if err != nil {
			return rewards.Score{}, err
		}
		defer giveBack()
		out, err := net.Infer(ctx, planes(sample.ID, px, reduce))
		if err != nil {
			return rewards.Score{}, fmt.Errorf("%w: %w", rewards.Unavailable, err)
		}
		for _, t := range out {
			if len(t.F32) > 0 {
				return rewards.Score{Value: float64(t.F32[0])}, nil
			}
		}
		return rewards.Score{}, fmt.Errorf("%w: no floats in the answer", rewards.Internal)
	}), nil
}

func planes(name string, px *rewards.Pixels, reduce infer.Reduction) infer.Request {
	return infer.Request{Name: name, Reduce: reduce, Inputs: []infer.Tensor{{
		DType: infer.U8, Shape: []int{3, px.Height, px.Width}, U8: px.RGB,
		Norm: &infer.Normalize{Rescale: 1.0 / 255, Mean: []float32{0.5, 0.5, 0.5}, Std: []float32{0.5, 0.5, 0.5}, Inner: px.Height * px.Width},
	}}}
}

// cardSamples are raw pictures of noise, each another.
func cardSamples(n, width, height int) []*rewards.Sample {
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // noise
	out := make([]*rewards.Sample, n)
	for i := range out {
		data := make([]byte, width*height*3)
		// One in four bytes follows from the picture's number, so that scores differ.
		for k := range data {
			data[k] = byte(rng.Uint32() >> (i % 4)) //nolint:gosec // truncation is meant
		}
		out[i] = &rewards.Sample{ID: strconv.Itoa(i), Prompt: "a photo of a cat", Media: []*rewards.Media{{
			Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.HWC, DType: "U8", Shape: []int{height, width, 3}, Data: data,
		}}}
	}
	return out
}

// farthest is the largest difference of two outputs, over the largest magnitude of the second or 1.
func farthest(a, b []infer.Tensor) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	most, size := 0.0, 1.0
	for i := range a {
		if len(a[i].F32) != len(b[i].F32) {
			return math.Inf(1)
		}
		for k, v := range b[i].F32 {
			most, size = max(most, math.Abs(float64(a[i].F32[k])-float64(v))), max(size, math.Abs(float64(v)))
		}
	}
	return most / size
}
