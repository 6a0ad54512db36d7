//go:build cgo

package ort_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// The echo model costs nothing but a copy, so this is what a call costs: in this
// process, and through a child, of a line of text for the recogniser and a picture
// for the detector. The answer is as large as the input, or next to nothing.
func BenchmarkCall(b *testing.B) {
	for _, shape := range [][]int{{1, 3, 48, 320}, {1, 3, 736, 736}} {
		in := infer.Floats("x", make([]float32, infer.Elements(shape)), shape...)
		for _, reduce := range []infer.Reduction{infer.AsIs, infer.ArgMax} {
			batch := infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{in}, Reduce: reduce}
			name := fmt.Sprintf("%dx%d/%s", shape[2], shape[3], map[infer.Reduction]string{infer.AsIs: "whole", infer.ArgMax: "argmax"}[reduce])
			b.Run(name+"/session", func(b *testing.B) {
				s := open(b, "echo")
				b.ReportAllocs()
				b.SetBytes(int64(4 * in.Len()))
				for b.Loop() {
					a, err := s.Run(b.Context(), batch)
					require.NoError(b, err)
					a.Release()
				}
			})
			b.Run(name+"/child", func(b *testing.B) {
				d := openCPU(b, ort.Config{})
				_, err := d.Load(b.Context(), model("echo"))
				require.NoError(b, err)
				b.ReportAllocs()
				b.SetBytes(int64(4 * in.Len()))
				for b.Loop() {
					_, err := d.Run(b.Context(), model("echo"), batch)
					require.NoError(b, err)
				}
			})
		}
	}
}

// A decoder of two layers and 16 tokens costs next to nothing, so this is what a prompt
// and what a token cost here: in this process, and a prompt through a child.
func BenchmarkLanguage(b *testing.B) {
	flat, _ := golden(b)
	g := infer.Generate{ImageToken: imageToken, Keep: 1, Pick: []int64{1, 2}}
	prompt := batchOf(b, flat[2].request(g), flat[3].request(g))
	b.Run("prompt/session", func(b *testing.B) {
		l := openLanguage(b, "flat")
		b.ReportAllocs()
		for b.Loop() {
			_, err := l.Run(b.Context(), prompt)
			require.NoError(b, err)
		}
	})
	b.Run("prompt/child", func(b *testing.B) {
		d := openCPU(b, ort.Config{})
		_, err := d.Load(b.Context(), language("flat"))
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			_, err := d.Run(b.Context(), language("flat"), prompt)
			require.NoError(b, err)
		}
	})
	b.Run("token/session", func(b *testing.B) {
		l := openLanguage(b, "flat")
		const tokens = 50
		answer := batchOf(b, flat[0].request(infer.Generate{MaxNew: tokens}))
		b.ReportAllocs()
		for b.Loop() {
			_, err := l.Run(b.Context(), answer)
			require.NoError(b, err)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(tokens*b.N), "µs/token")
	})
}
