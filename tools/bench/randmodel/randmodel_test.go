package randmodel_test

import (
	"crypto/sha256"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
	"github.com/rewardloop/rewardloop/tools/bench/randmodel"
)

func TestMain(m *testing.M) { onnx.Main(m) }

func TestHalfRoundsToTheNearest(t *testing.T) {
	t.Parallel()
	for v, want := range map[float32]uint16{
		0: 0, 1: 0x3c00, -2: 0xc000, 65504: 0x7bff, 65519: 0x7bff, 65520: 0x7c00, 1e9: 0x7c00, -1e9: 0xfc00,
		0.1: 0x2e66, 1.0 / 3: 0x3555, 6.1035156e-05: 0x0400, 5.9604645e-08: 0x0001, 2.9e-08: 0, 3e-08: 1,
		2049: 0x6800, 2051: 0x6802, float32(math.Inf(1)): 0x7c00,
	} {
		require.Equal(t, want, randmodel.Half(v), "%v", v)
	}
	require.Equal(t, uint16(0x7e00), randmodel.Half(float32(math.NaN()))&0x7e00)
}

// sum is that of a file.
func sum(t *testing.T, path string) [32]byte {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	h := sha256.New()
	_, err = io.Copy(h, file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return [32]byte(h.Sum(nil))
}

func TestTheSameSizesMakeTheSameModel(t *testing.T) {
	t.Parallel()
	a, b := filepath.Join(t.TempDir(), "a.onnx"), filepath.Join(t.TempDir(), "b.onnx")
	require.NoError(t, randmodel.TinyCLIP(100).WriteVision(a, randmodel.Float32))
	require.NoError(t, randmodel.TinyCLIP(100).WriteVision(b, randmodel.Float32))
	require.Equal(t, sum(t, a), sum(t, b))
	require.NoError(t, randmodel.TinyCLIP(100).WriteVision(b, randmodel.Float16))
	require.NotEqual(t, sum(t, a), sum(t, b))
}

func TestFoldersAppearWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	require.Error(t, randmodel.WriteCLIPFolder(filepath.Join(parent, "clip"), parent, randmodel.TinyCLIP(856)), "there is no tokenizer")
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, left)
	tiny := filepath.Join("..", "..", "..", "testdata", "models")
	require.NoError(t, randmodel.WriteSmolVLMFolder(filepath.Join(parent, "smolvlm"), filepath.Join(tiny, "tiny-idefics3"), randmodel.TinySmol(856)))
	require.NoError(t, randmodel.WriteCLIPFolder(filepath.Join(parent, "clip"), filepath.Join(tiny, "tiny-clip"), randmodel.TinyCLIP(856)))
	for _, name := range []string{"smolvlm/onnx/vision_encoder.onnx", "smolvlm/onnx/embed_tokens.onnx", "smolvlm/onnx/decoder_model_merged.onnx", "clip/vision_model.onnx", "clip/text_model.onnx"} {
		require.FileExists(t, filepath.Join(parent, name))
	}
}

// TestTheDecodersCacheGivesWhatTheWholePromptGives says a token after a prompt, and asks for the
// same place in one go: the cache, the positions and the mask are right if both agree.
func TestTheDecodersCacheGivesWhatTheWholePromptGives(t *testing.T) {
	t.Parallel()
	for name, floats := range map[string]randmodel.DType{"in floats": randmodel.Float32, "in half precision": randmodel.Float16} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sayAndAsk(t, floats)
		})
	}
}

func sayAndAsk(t *testing.T, floats randmodel.DType) {
	t.Helper()
	folder, s := t.TempDir(), randmodel.TinySmol(300)
	m := infer.Model{Name: "tiny", Path: filepath.Join(folder, "decoder.onnx"), Embed: filepath.Join(folder, "embed.onnx"), Device: "cpu"}
	require.NoError(t, s.WriteDecoder(m.Path, floats))
	require.NoError(t, s.WriteEmbed(m.Embed))
	net, err := onnx.CPU(t, ort.Inline).Net(m)
	require.NoError(t, err)
	ask := func(g infer.Generate, ids ...int64) []infer.Tensor {
		out, err := net.Infer(t.Context(), infer.Request{Name: "a", Generate: &g, Inputs: []infer.Tensor{{Name: infer.InputIDs, DType: infer.I64, Shape: []int{len(ids)}, I64: ids}}})
		require.NoError(t, err)
		return out
	}
	prompt := []int64{5, 17, 200, 3, 41}
	said := ask(infer.Generate{MaxNew: 4}, prompt...)
	for i, token := range said[0].I64 {
		logits := ask(infer.Generate{Keep: 1}, append(append([]int64{}, prompt...), said[0].I64[:i]...)...)[0].F32
		best := 0
		for k, v := range logits {
			if v > logits[best] {
				best = k
			}
		}
		require.Equal(t, token, int64(best), "token %d of %v", i, said[0].I64)
	}
}
