//go:build cgo

package ort

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Which outputs' shapes are foreseen, so that they are written into memory of ours.
const (
	trustNone   = iota // none: ONNX Runtime makes every output and it is copied
	trustScalar        // only those of outputs that have no axes
	trustAll           // also the shapes that outputs had the last time
)

// maxShapes bounds Session.shapes.
const maxShapes = 1024

// foresee returns the shapes of the outputs; nil is one that is not foreseen.
func (s *Session) foresee(inputs []infer.Tensor, trust int32) [][]int {
	shapes := make([][]int, len(s.info.Outputs))
	if trust == trustAll {
		s.mu.Lock()
		copy(shapes, s.shapes[key(inputs)])
		s.mu.Unlock()
	}
	for i, p := range s.info.Outputs {
		switch {
		case slices.ContainsFunc(s.info.Inputs, func(in infer.Port) bool { return in.Name == p.Name }):
			shapes[i] = nil // ORT answers with the input itself and leaves our memory alone
		case len(p.Shape) == 0 && trust >= trustScalar:
			shapes[i] = []int{} // the bindings cannot make one
		}
	}
	return shapes
}

// remember notes the shapes that outputs had.
func (s *Session) remember(inputs, outputs []infer.Tensor) {
	if s.trust.Load() < trustAll {
		return
	}
	k := key(inputs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shapes[k] != nil {
		return
	}
	if len(s.shapes) >= maxShapes {
		clear(s.shapes)
	}
	shapes := make([][]int, len(outputs))
	for i, t := range outputs {
		shapes[i] = t.Shape
	}
	s.shapes[k] = shapes
}

func key(inputs []infer.Tensor) string {
	var b strings.Builder
	for _, t := range inputs {
		fmt.Fprint(&b, t.Shape)
	}
	return b.String()
}
