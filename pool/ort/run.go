//go:build cgo

package ort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Answer is the result of a run.
type Answer struct {
	Outputs []infer.Tensor

	buffers *buffers
	memory  [][]byte
}

// Release lets later runs reuse the memory of the outputs, which must not be read afterwards.
// Without Release, the garbage collector frees the memory.
func (a *Answer) Release() {
	for _, b := range a.memory {
		a.buffers.put(b)
	}
	a.memory, a.Outputs = nil, nil
}

// Run runs the model on a batch. Bytes with a Norm are converted to floats first, and floats to F16
// if an input is F16; outputs of F16 are returned as F32. Outputs that are not requested are
// computed but not returned, because the bindings always compute all outputs of a session. The
// inputs are bound in place, are not modified, and are read only until Run returns. When ctx ends,
// the run ends between two nodes of the graph. Errors wrap infer.ErrInput (a batch that does not
// fit the model, or contains a NaN, an infinity, or a number too large for F16), infer.ErrMemory,
// infer.ErrFault (for example NaN or an infinity in an output), infer.ErrTimeout or ctx's
// cancellation. After infer.ErrFault the process should be replaced.
func (s *Session) Run(ctx context.Context, b infer.Batch) (*Answer, error) {
	if b.Generate != nil {
		return nil, fmt.Errorf("%w: %q is not a language model and cannot generate", infer.ErrInput, s.cfg.Model.Name)
	}
	inputs, err := s.arrange(b)
	if err != nil {
		return nil, err
	}
	wanted, err := s.wanted(b)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	var a *Answer
	memory, err := s.converted(inputs)
	if err == nil {
		a, err = s.run(ctx, inputs)
	}
	for _, m := range memory {
		s.buffers.put(m)
	}
	if err != nil {
		return nil, err
	}
	if err := s.finish(a, b, wanted); err != nil {
		a.Release()
		return nil, err
	}
	return a, nil
}

// run tries with as much foresight as has not been wrong yet.
func (s *Session) run(ctx context.Context, inputs []infer.Tensor) (*Answer, error) {
	for {
		trust := s.trust.Load()
		a, err := s.attempt(ctx, inputs, s.foresee(inputs, trust))
		switch {
		case err == nil:
			s.remember(inputs, a.Outputs)
			return a, nil
		case ctx.Err() != nil:
			return nil, s.ended(ctx, "while it ran")
		case trust > trustNone && otherShape.MatchString(err.Error()):
			// A model whose outputs' shapes depend on values, or that does not say the truth.
			s.trust.CompareAndSwap(trust, trust-1)
		default:
			return nil, fmt.Errorf("%q: %w", s.cfg.Model.Name, failedRun(err))
		}
	}
}

func (s *Session) ended(ctx context.Context, when string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %q %s: %w", infer.ErrTimeout, s.cfg.Model.Name, when, ctx.Err())
	}
	return fmt.Errorf("%q %s: %w", s.cfg.Model.Name, when, ctx.Err())
}

// arrange checks a batch against the model and puts its inputs in the model's order.
func (s *Session) arrange(b infer.Batch) ([]infer.Tensor, error) {
	want := s.info.Inputs
	fail := func(what string) error {
		return fmt.Errorf("%w: %q %s: the model takes %s, the batch has %s", infer.ErrInput, s.cfg.Model.Name, what, list(want), list(portsOf(b.Inputs)))
	}
	if len(b.Inputs) != len(want) {
		return nil, fail("has another number of inputs")
	}
	out := make([]infer.Tensor, len(want))
	for i, w := range want {
		k := slices.IndexFunc(b.Inputs, func(t infer.Tensor) bool { return t.Name == w.Name || (t.Name == "" && len(want) == 1) })
		if k < 0 {
			return nil, fail(fmt.Sprintf("lacks its input %q", w.Name))
		}
		t := b.Inputs[k]
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("%q: %w", s.cfg.Model.Name, err)
		}
		got := t.DType
		if t.Norm != nil {
			got = infer.F32
		}
		if !w.Carries(got) || !fits(t.Shape, w.Shape) {
			return nil, fail(fmt.Sprintf("cannot take its input %q", w.Name))
		}
		out[i] = t
	}
	return out, nil
}

// wanted are the places of the outputs that a batch asks for; nil: all.
func (s *Session) wanted(b infer.Batch) ([]int, error) {
	var at []int
	for _, name := range b.Outputs {
		k := slices.IndexFunc(s.info.Outputs, func(p infer.Port) bool { return p.Name == name })
		if k < 0 || slices.Contains(at, k) {
			return nil, fmt.Errorf("%w: %q: output %q was requested; request only outputs of %s, each at most once", infer.ErrInput, s.cfg.Model.Name, name, list(s.info.Outputs))
		}
		at = append(at, k)
	}
	return at, nil
}

// finish leaves the outputs away that nobody wants, looks for numbers that are none,
// and reduces.
func (s *Session) finish(a *Answer, b infer.Batch, wanted []int) error {
	if wanted != nil {
		all := a.Outputs
		a.Outputs = make([]infer.Tensor, len(wanted))
		for i, k := range wanted {
			a.Outputs[i] = all[k]
		}
	}
	for _, t := range a.Outputs {
		at := unreal(t.F32)
		if at < 0 {
			continue
		}
		for _, in := range b.Inputs {
			if k := unreal(in.F32); k >= 0 {
				return fmt.Errorf("%w: %q: input %q has %v at %d", infer.ErrInput, s.cfg.Model.Name, cmp.Or(in.Name, s.info.Inputs[0].Name), in.F32[k], k)
			}
		}
		return fmt.Errorf("%w: %q: output %q has %v at %d", infer.ErrNumbers, s.cfg.Model.Name, t.Name, t.F32[at], at)
	}
	switch b.Reduce {
	case infer.AsIs:
		return nil
	case infer.ArgMax:
		return a.argMax()
	}
	return fmt.Errorf("%w: %q: unknown reduction %q", infer.ErrInput, s.cfg.Model.Name, b.Reduce)
}

// argMax reduces the outputs of floats.
func (a *Answer) argMax() error {
	var out []infer.Tensor
	for _, t := range a.Outputs {
		if t.DType != infer.F32 {
			out = append(out, t)
			continue
		}
		index, value, err := reduceArgMax(t)
		if err != nil {
			return err
		}
		out = append(out, index, value)
	}
	a.Outputs = out
	return nil
}

// unreal finds the first NaN or infinity, whose exponent has all bits set; -1 if
// there is none.
func unreal(all []float32) int {
	const exponent = 0x7f800000
	for i, v := range all {
		if math.Float32bits(v)&exponent == exponent {
			return i
		}
	}
	return -1
}
