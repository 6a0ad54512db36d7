//go:build cgo

package ort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// prompt is a batch for a language model, checked.
type prompt struct {
	infer.Generate

	batch, tokens int
	ids           []int64 // [B, L]
	features      infer.Tensor
	positions     []int64 // [axes, B, L]
	next          []int64 // [B], the position behind the prompt
}

// errBudget marks a batch that our own bound on memory refuses, not the device.
var errBudget = errors.New("over the bound on memory")

// read checks a batch and takes it apart.
func (l *Language) read(b infer.Batch) (*prompt, error) {
	name := l.decoder.cfg.Model.Name
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %q: "+format, append([]any{infer.ErrInput, name}, args...)...)
	}
	ids, ok := infer.Request{Inputs: b.Inputs}.Input(infer.InputIDs)
	if b.Generate == nil || !ok || len(ids.Shape) != 2 || ids.Shape[0] == 0 {
		return nil, refuse("a language model takes %q as I64[batch L] and generation settings, but the batch has %s", infer.InputIDs, list(portsOf(b.Inputs)))
	}
	p := &prompt{Generate: *b.Generate, batch: ids.Shape[0], tokens: ids.Shape[1], ids: ids.I64}
	if l.ports.batch == 1 && p.batch > 1 {
		return nil, refuse("batch of %d, want batches of 1", p.batch)
	}
	for i := range p.batch {
		if err := row(b, i).Check(); err != nil {
			return nil, fmt.Errorf("%q: item %s: %w", name, titleOf(b, i), err)
		}
	}
	longest := p.tokens + p.MaxNew
	if longest > l.limits.Positions {
		return nil, refuse("a prompt of %d tokens with %d new ones is longer than the limit of %d positions", p.tokens, p.MaxNew, l.limits.Positions)
	}
	if i := slices.IndexFunc(p.Pick, func(id int64) bool { return id < 0 || id >= int64(l.ports.vocabulary) }); i >= 0 {
		return nil, refuse("logits of token %d were requested, but the vocabulary has %d tokens", p.Pick[i], l.ports.vocabulary)
	}
	if p.features, ok = (infer.Request{Inputs: b.Inputs}).Input(infer.ImageFeatures); ok {
		if width := p.features.Shape[2]; width != l.ports.width {
			return nil, refuse("%q has rows of %d, and the model is %d wide", infer.ImageFeatures, width, l.ports.width)
		}
		if at := unreal(p.features.F32); at >= 0 {
			return nil, refuse("%q has %v at %d", infer.ImageFeatures, p.features.F32[at], at)
		}
	}
	if err := l.place(p, b, refuse); err != nil {
		return nil, err
	}
	return p, l.afford(p, refuse)
}

// row is an item of a batch. What does not come apart is as it was, and fails a check.
func row(b infer.Batch, i int) infer.Request {
	r := infer.Request{Generate: b.Generate, Reduce: b.Reduce, Whole: b.Whole}
	for _, t := range b.Inputs {
		if part, err := t.Row(i); err == nil {
			t = part
		}
		r.Inputs = append(r.Inputs, t)
	}
	return r
}

// titleOf names an item: a child knows no names.
func titleOf(b infer.Batch, i int) string {
	if i < len(b.Names) {
		return fmt.Sprintf("%q", b.Names[i])
	}
	return fmt.Sprintf("%d of %d", i+1, b.Inputs[0].Shape[0])
}

// place lays the positions out as the decoder takes them.
func (l *Language) place(p *prompt, b infer.Batch, refuse func(string, ...any) error) error {
	given, ok := infer.Request{Inputs: b.Inputs}.Input(infer.PositionIDs)
	axes := 1 // that were given
	if len(given.Shape) == 3 {
		axes = 3
	}
	p.positions = make([]int64, max(l.ports.axes, 1)*p.batch*p.tokens)
	p.next = make([]int64, p.batch)
	for i := range p.positions {
		at := i % p.tokens
		item := i / p.tokens % p.batch
		axis := i / p.tokens / p.batch
		v := int64(at)
		if ok {
			v = given.I64[(item*axes+min(axis, axes-1))*p.tokens+at]
		}
		p.positions[i] = v
		p.next[item] = max(p.next[item], v+1)
		if v >= int64(l.limits.Positions) {
			return refuse("%q has %d, and the limit is %d", infer.PositionIDs, v, l.limits.Positions)
		}
		if l.ports.axes == 0 && v != int64(at) {
			return refuse("%q has %d at %d, but the model has no such input: the model counts from 0 by itself", infer.PositionIDs, v, at)
		}
	}
	if axes > 1 && l.ports.axes < 3 {
		return refuse("%q has three axes, but the model takes positions of %d", infer.PositionIDs, l.ports.axes)
	}
	return nil
}

// afford compares what the batch needs with the bound. A batch of several is told to be
// out of memory, because a smaller one will fit.
func (l *Language) afford(p *prompt, refuse func(string, ...any) error) error {
	logits := cmp.Or(p.Keep, 1)
	switch {
	case l.rows == rowsAll:
		logits = p.tokens
	case p.MaxNew > 0:
		logits = 1
	}
	need := l.ports.bytes(p.batch, p.tokens, p.MaxNew, logits)
	if need <= l.limits.Memory && l.ports.fits(p.batch, p.tokens+p.MaxNew, logits) {
		return nil
	}
	if p.batch > 1 {
		return fmt.Errorf("%w: %w: %q: %d prompts of %d tokens and %d new ones need %d bytes, the bound is %d, and 2^31-1 numbers a tensor",
			infer.ErrMemory, errBudget, l.decoder.cfg.Model.Name, p.batch, p.tokens, p.MaxNew, need, l.limits.Memory)
	}
	return refuse("a prompt of %d tokens with %d new ones needs %d bytes for cache and logits, the bound is %d, and 2^31-1 numbers a tensor", p.tokens, p.MaxNew, need, l.limits.Memory)
}

// embeddings are those of ids, [B, n, D]. The caller releases them.
func (l *Language) embeddings(ctx context.Context, ids []int64, batch int) (*Answer, error) {
	var want []string
	if len(l.embed.info.Outputs) > 1 {
		want = []string{embedsPort}
	}
	return l.embed.Run(ctx, infer.Batch{
		Inputs:  []infer.Tensor{{Name: infer.InputIDs, DType: infer.I64, Shape: []int{batch, len(ids) / batch}, I64: ids}},
		Outputs: want,
	})
}

// insert replaces the embeddings of image tokens by the images' features, in order:
// how many there are of either has been compared.
func (p *prompt) insert(embeds []float32, width int) {
	features := p.features.F32
	if len(features) == 0 {
		return
	}
	for i, id := range p.ids {
		if id == p.ImageToken {
			copy(embeds[i*width:(i+1)*width], features)
			features = features[width:]
		}
	}
}
