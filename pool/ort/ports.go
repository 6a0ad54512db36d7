package ort

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// match compares a model with what is wanted of it.
func match(m infer.Model, have, want infer.Info) error {
	lacks := func(have, want []infer.Port) bool {
		return slices.ContainsFunc(want, func(w infer.Port) bool {
			return !slices.ContainsFunc(have, func(h infer.Port) bool {
				return h.Name == w.Name && h.Carries(infer.DType(w.DType)) && compatible(h.Shape, w.Shape)
			})
		})
	}
	if lacks(have.Inputs, want.Inputs) || lacks(have.Outputs, want.Outputs) {
		return fmt.Errorf("%w: %q from %s has inputs %s and outputs %s, want inputs %s and outputs %s", infer.ErrModel, m.Name, m.Path,
			list(have.Inputs), list(have.Outputs), list(want.Inputs), list(want.Outputs))
	}
	return nil
}

// compatible reports whether some shape fits both.
func compatible(a, b []int) bool {
	return len(a) == len(b) && !slices.ContainsFunc(zip(a, b), func(p [2]int) bool { return p[0] != p[1] && p[0] >= 0 && p[1] >= 0 })
}

// fits reports whether a tensor of that shape may be put into a port.
func fits(shape, port []int) bool {
	return len(shape) == len(port) && !slices.ContainsFunc(zip(shape, port), func(p [2]int) bool { return p[0] != p[1] && p[1] >= 0 })
}

func zip(a, b []int) [][2]int {
	out := make([][2]int, len(a))
	for i := range a {
		out[i] = [2]int{a[i], b[i]}
	}
	return out
}

// list writes ports as people write them: [x F32[-1 3 48 320]].
func list(ports []infer.Port) string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = fmt.Sprintf("%s %s%v", p.Name, p.DType, p.Shape)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func portsOf(tensors []infer.Tensor) []infer.Port {
	out := make([]infer.Port, len(tensors))
	for i, t := range tensors {
		out[i] = infer.Port{Name: t.Name, DType: string(t.DType), Shape: t.Shape}
	}
	return out
}
