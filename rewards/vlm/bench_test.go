package vlm_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// BenchmarkQuestion is what a question takes without the networks: the picture made
// ready, the prompt, the value.
func BenchmarkQuestion(b *testing.B) {
	for _, side := range []int{64, 512, 1024} {
		b.Run(strconv.Itoa(side), func(b *testing.B) {
			t := newBench(b)
			sc, err := t.build(`{}`)
			require.NoError(b, err)
			s := sample(grey(side, side, 1))
			for b.Loop() {
				_, err := sc.Score(b.Context(), s)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkRuntime is a question to the tiny model with its networks.
func BenchmarkRuntime(b *testing.B) {
	registry := judges(b, onnx.CPU(b, ort.Inline))
	sc := scorer(b, registry, map[string]any{"model": tiny(b, "tiny-idefics3")})
	s := sample(grey(64, 64, 1))
	for b.Loop() {
		_, err := sc.Score(b.Context(), s)
		require.NoError(b, err)
	}
}
