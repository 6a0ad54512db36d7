//go:build cgo

package ort

import (
	"context"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// said is what a batch has said so far, an item a row of MaxNew places.
type said struct {
	tokens, stopped, topIDs []int64
	logprobs, topLogprobs   []float32
}

func newSaid(p *prompt) *said {
	n := p.batch * p.MaxNew
	s := &said{
		tokens: make([]int64, n), stopped: make([]int64, p.batch), logprobs: make([]float32, n),
		topIDs: make([]int64, n*p.Top), topLogprobs: make([]float32, n*p.Top),
	}
	for _, list := range [][]int64{s.tokens, s.topIDs} {
		for i := range list {
			list[i] = -1
		}
	}
	return s
}

// answer makes tensors of it.
func (s *said) answer(p *prompt) []infer.Tensor {
	ints := func(name string, data []int64, shape ...int) infer.Tensor {
		return infer.Tensor{Name: name, DType: infer.I64, Shape: shape, I64: data}
	}
	out := []infer.Tensor{
		ints("tokens", s.tokens, p.batch, p.MaxNew),
		infer.Floats("logprobs", s.logprobs, p.batch, p.MaxNew),
		ints("stopped", s.stopped, p.batch, 1),
	}
	if p.Top > 0 {
		out = append(out, ints("top_ids", s.topIDs, p.batch, p.MaxNew, p.Top), infer.Floats("top_logprobs", s.topLogprobs, p.batch, p.MaxNew, p.Top))
	}
	return out
}

// greedy runs the prompt, and then one token after the other. An item that has said a
// stop goes on with it as padding, unheard, until all items have ended: it costs what it
// would have cost, and the batch keeps its shape.
func (g *generation) greedy(ctx context.Context, p *prompt, prompt *Answer) ([]infer.Tensor, error) {
	s := newSaid(p)
	next := make([]int64, p.batch)
	logits, err := g.step(ctx, prompt.Outputs[0].F32, p.tokens, p.positions, 1)
	if err != nil {
		return nil, err
	}
	prompt.Release()
	axes := max(g.l.ports.axes, 1)
	positions := make([]int64, axes*p.batch)
	for at := 0; ; at++ {
		going, err := g.say(p, s, logits, at, next)
		if err != nil {
			return nil, err
		}
		if !going || at+1 == p.MaxNew {
			return s.answer(p), nil
		}
		for i := range positions {
			positions[i] = p.next[i%p.batch] + int64(at)
		}
		embeds, err := g.l.embeddings(ctx, next, p.batch)
		if err != nil {
			return nil, err
		}
		logits, err = g.step(ctx, embeds.Outputs[0].F32, 1, positions, 1)
		embeds.Release()
		if err != nil {
			return nil, err
		}
	}
}

// say picks every item's token at a place, writes it to next, and reports whether any
// item goes on.
func (g *generation) say(p *prompt, s *said, logits infer.Tensor, at int, next []int64) (going bool, err error) {
	rows, vocabulary := logits.Shape[1], logits.Shape[2]
	for item := range p.batch {
		if s.stopped[item] != 0 {
			continue
		}
		end := (item + 1) * rows * vocabulary
		row := logits.F32[end-vocabulary : end]
		if j := unreal(row); j >= 0 {
			return false, g.notReal(item, j, row[j])
		}
		id, largest := argMax(row)
		next[item] = int64(id)
		if slices.Contains(p.Stop, int64(id)) {
			s.stopped[item] = 1
			continue
		}
		going = true
		place := item*p.MaxNew + at
		sum := logSumExp(row, largest)
		s.tokens[place], s.logprobs[place] = int64(id), float32(float64(largest)-sum)
		top := s.topIDs[place*p.Top : (place+1)*p.Top]
		for k, id := range top[:best(row, top)] {
			s.topLogprobs[place*p.Top+k] = float32(float64(row[id]) - sum)
		}
	}
	return going, nil
}
