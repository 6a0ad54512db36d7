package preference_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// BenchmarkOwnWork is what a sample costs beside the graphs: resizing 512×512 to 224×224,
// the cache, the formula.
func BenchmarkOwnWork(b *testing.B) {
	s := scorer(b, towers(), "pickscore", object(clipFolder(b, `"size": 48`, `"size": 224`, `"width": 48`, `"width": 224`, `"height": 48`, `"height": 224`), ""))
	px := &rewards.Pixels{Width: 512, Height: 512, Count: 1, RGB: make([]byte, 512*512*3)}
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.Score(b.Context(), sample("a red cube", px))
		require.NoError(b, err)
	}
}

// BenchmarkTinyModel is a sample through the pool and a child process.
func BenchmarkTinyModel(b *testing.B) {
	s := scorer(b, onnx.CPU(b, ort.Process), "pickscore", object(folder(b, "tiny-clip"), ""))
	px := &rewards.Pixels{Width: 512, Height: 512, Count: 1, RGB: make([]byte, 512*512*3)}
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.Score(b.Context(), sample("a red cube", px))
		require.NoError(b, err)
	}
}
