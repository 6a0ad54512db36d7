//go:build cgo

package ort_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// tiny is a small model of a true architecture with what PyTorch made of it
// (models/export/tiny_vlm.py).
type tiny struct {
	Tokens struct {
		Stop []int64 `json:"stop"`
	} `json:"tokens"`
	Batches [][]string `json:"batches"`
	Cases   []tinyCase `json:"cases"`

	dir        string
	imageToken int64
}

type tinyCase struct {
	Name      string    `json:"name"`
	IDs       []int64   `json:"input_ids"`
	Features  *inFile   `json:"image_features"`
	Positions [][]int64 `json:"position_ids"`
	Logits    inFile    `json:"last_logits"`
	Greedy    []int64   `json:"greedy"`
	Logprobs  []float32 `json:"greedy_logprobs"`
	Stopped   bool      `json:"greedy_stopped"`
}

// inFile is a tensor of floats in a file.
type inFile struct {
	File  string `json:"file"`
	Shape []int  `json:"shape"`
}

// readTiny reads a model's goldens; without them the test is skipped.
func readTiny(tb testing.TB, name string) *tiny {
	tb.Helper()
	m := &tiny{dir: filepath.Join("..", "..", "testdata", "models", name)}
	if !exists(filepath.Join(m.dir, "golden.json")) {
		tb.Skipf("SKIPPED: no goldens in %s: models/export/tiny_vlm.py makes them", m.dir)
	}
	var config struct {
		ImageToken int64 `json:"image_token_id"`
	}
	for file, to := range map[string]any{"golden.json": m, "config.json": &config} {
		data, err := os.ReadFile(filepath.Join(m.dir, file))
		require.NoError(tb, err)
		require.NoError(tb, json.Unmarshal(data, to))
	}
	m.imageToken = config.ImageToken
	return m
}

func (m *tiny) floats(tb testing.TB, f inFile) []float32 {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(m.dir, f.File))
	require.NoError(tb, err)
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	require.Len(tb, out, infer.Elements(f.Shape))
	return out
}

func (m *tiny) model(decoder string) infer.Model {
	if decoder == "" {
		decoder = filepath.Join(m.dir, "onnx", "decoder_model_merged.onnx")
	}
	return infer.Model{Name: filepath.Base(decoder), Path: decoder, Embed: filepath.Join(m.dir, "onnx", "embed_tokens.onnx"), Device: "cpu"}
}

func (m *tiny) request(tb testing.TB, c tinyCase, g infer.Generate) infer.Request {
	tb.Helper()
	g.ImageToken = m.imageToken
	r := infer.Request{Inputs: []infer.Tensor{int64s("input_ids", c.IDs, len(c.IDs))}, Generate: &g}
	if c.Features != nil {
		data := m.floats(tb, *c.Features)
		d := c.Features.Shape[len(c.Features.Shape)-1]
		r.Inputs = append(r.Inputs, infer.Floats("image_features", data, len(data)/d, d))
	}
	if c.Positions != nil {
		t := int64s("position_ids", nil, 3, len(c.IDs))
		for _, row := range c.Positions {
			t.I64 = append(t.I64, row...)
		}
		r.Inputs = append(r.Inputs, t)
	}
	return r
}

// check compares the logits of the last position and the greedy answer of cases that
// run as one batch.
func (m *tiny) check(t *testing.T, d *device, model infer.Model, cases ...tinyCase) {
	t.Helper()
	m.checkWithin(t, 1e-3, d, model, cases...)
}

// checkWithin is check where logits may be so far apart, in parts of the largest, and log
// probabilities a tenth of that.
func (m *tiny) checkWithin(t *testing.T, near float64, d *device, model infer.Model, cases ...tinyCase) {
	t.Helper()
	const room = 16
	var scores, answers []infer.Request
	for _, c := range cases {
		scores = append(scores, m.request(t, c, infer.Generate{Keep: 1}))
		answers = append(answers, m.request(t, c, infer.Generate{MaxNew: room, Stop: m.Tokens.Stop}))
	}
	for i, got := range say(t, d, model, scores...) {
		want := m.floats(t, cases[i].Logits)
		largest := 0.0
		for _, v := range want {
			largest = max(largest, math.Abs(float64(v)))
		}
		require.InDeltaSlice(t, want, got["logits"].F32, near*largest, "%s of %s", cases[i].Name, model.Name)
	}
	for i, got := range say(t, d, model, answers...) {
		c := cases[i]
		n := len(c.Greedy)
		require.Equal(t, c.Greedy, got["tokens"].I64[:n], "%s of %s", c.Name, model.Name)
		require.InDeltaSlice(t, c.Logprobs, got["logprobs"].F32[:n], near/10)
		if n < room {
			require.Equal(t, int64(-1), got["tokens"].I64[n])
		}
		require.Equal(t, c.Stopped, got["stopped"].I64[0] == 1)
	}
}

func TestGoldenModelsOfTrueArchitecturesAnswerAsPyTorchDoes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tiny-idefics3", "tiny-qwen2_5_vl"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := readTiny(t, name)
			d := openCPU(t, ort.Config{})
			byName := make(map[string]tinyCase)
			for _, c := range m.Cases {
				byName[c.Name] = c
				m.check(t, d, m.model(""), c)
			}
			for _, batch := range m.Batches {
				var cases []tinyCase
				for _, name := range batch {
					cases = append(cases, byName[name])
				}
				m.check(t, d, m.model(""), cases...)
			}
		})
	}
}

func TestGoldenExoticExportsAnswerOrAreRefusedByName(t *testing.T) {
	t.Parallel()
	m := readTiny(t, "tiny-idefics3")
	exotic := filepath.Join("..", "..", "testdata", "models", "exotic")
	d := openCPU(t, ort.Config{})
	for _, name := range []string{"no_position_ids", "use_cache_branch", "num_logits_to_keep"} {
		m.check(t, d, m.model(filepath.Join(exotic, name+".onnx")), m.Cases[0])
		m.check(t, d, m.model(filepath.Join(exotic, name+".onnx")), m.Cases[:3]...)
	}
	m.checkWithin(t, nearHalf, d, m.model(filepath.Join(exotic, "fp16_kv.onnx")), m.Cases[0])
	m.checkWithin(t, nearHalf, d, m.model(filepath.Join(exotic, "fp16_kv.onnx")), m.Cases[:3]...)
	for name, says := range map[string]string{
		"unknown_input":          "cross_attention_mask",
		"missing_attention_mask": `no input "attention_mask"`, "no_past": `no inputs "past_key_values.*"`,
	} {
		_, err := d.Load(t.Context(), m.model(filepath.Join(exotic, name+".onnx")))
		require.ErrorIs(t, err, infer.ErrModel, name)
		require.ErrorContains(t, err, says)
	}
}
