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
		for _, reduce := range []infer.Reduction{infer.Whole, infer.ArgMax} {
			batch := infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{in}, Reduce: reduce}
			name := fmt.Sprintf("%dx%d/%s", shape[2], shape[3], map[infer.Reduction]string{infer.Whole: "whole", infer.ArgMax: "argmax"}[reduce])
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
