package preference_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards/preference"
)

// net is a graph made of functions.
type net struct {
	info  func(ctx context.Context) (infer.Info, error)
	infer func(ctx context.Context, req infer.Request) ([]infer.Tensor, error)
}

func (n net) Info(ctx context.Context) (infer.Info, error) { return n.info(ctx) }

func (n net) Infer(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
	return n.infer(ctx, req)
}

// nets are graphs by the base name of their file.
type nets map[string]net

func (n nets) Net(m infer.Model) (infer.Net, error) {
	found, ok := n[filepath.Base(m.Path)]
	if !ok {
		return nil, fmt.Errorf("%w: no file %s", infer.ErrModel, m.Path)
	}
	return found, nil
}

func declares(in, out []infer.Port) func(context.Context) (infer.Info, error) {
	return func(context.Context) (infer.Info, error) { return infer.Info{Inputs: in, Outputs: out}, nil }
}

func floats(name string, shape ...int) infer.Port {
	return infer.Port{Name: name, DType: "F32", Shape: shape}
}

func whole(name string) infer.Port { return infer.Port{Name: name, DType: "I64", Shape: []int{-1, -1}} }

// towers are CLIP's two graphs. Their embeddings are of 2 numbers: of a picture 1 and its
// first byte, of a text 1 and its length.
func towers() nets {
	return nets{
		"vision_model.onnx": net{
			declares([]infer.Port{floats("pixel_values", -1, 3, -1, -1)}, []infer.Port{floats("image_embeds", -1, 2), floats("last_hidden_state", -1, -1, 2)}),
			func(_ context.Context, req infer.Request) ([]infer.Tensor, error) {
				return []infer.Tensor{infer.Floats("image_embeds", []float32{1, float32(req.Inputs[0].U8[0])}, 2)}, nil
			},
		},
		"text_model.onnx": net{
			declares([]infer.Port{whole("input_ids")}, []infer.Port{floats("text_embeds", -1, 2)}),
			func(_ context.Context, req infer.Request) ([]infer.Tensor, error) {
				return []infer.Tensor{infer.Floats("text_embeds", []float32{1, 0}, 2)}, nil
			},
		},
	}
}

// clipFolder is one with the sidecar and the tokenizer of tiny-clip, changed by pairs of
// old and new texts, and without graphs.
func clipFolder(tb testing.TB, change ...string) string {
	tb.Helper()
	from, to := folder(tb, "tiny-clip"), tb.TempDir()
	side, err := os.ReadFile(filepath.Join(from, preference.SidecarFile))
	require.NoError(tb, err)
	text := string(side)
	for i := 0; i < len(change); i += 2 {
		require.Contains(tb, text, change[i])
		text = strings.Replace(text, change[i], change[i+1], 1)
	}
	require.NoError(tb, os.WriteFile(filepath.Join(to, preference.SidecarFile), []byte(text), 0o600))
	data, err := os.ReadFile(filepath.Join(from, "tokenizer.json"))
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(filepath.Join(to, "tokenizer.json"), data, 0o600))
	return to
}

// counted counts the runs of each file beside the probes.
type counted struct {
	infer.Nets

	mu   sync.Mutex
	runs map[string]int // guarded by mu
}

type countedNet struct {
	infer.Net

	file string
	all  *counted
}

func count(n infer.Nets) *counted { return &counted{Nets: n, runs: map[string]int{}} }

func (c *counted) Net(m infer.Model) (infer.Net, error) {
	n, err := c.Nets.Net(m)
	return countedNet{n, filepath.Base(m.Path), c}, err
}

func (n countedNet) Infer(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
	if !strings.HasPrefix(req.Name, "probe") && !strings.HasPrefix(req.Name, "self-test") {
		n.all.mu.Lock()
		n.all.runs[n.file]++
		n.all.mu.Unlock()
	}
	return n.Net.Infer(ctx, req)
}

func (c *counted) of(file string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[file]
}
