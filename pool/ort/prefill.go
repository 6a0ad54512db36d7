//go:build cgo

package ort

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// generation is one batch on its way through the decoder. It belongs to the goroutine
// that runs it.
type generation struct {
	l     *Language
	batch int
	past  int         // tokens in the cache
	cache [2][][]byte // memory of every cache: that of the past, and that which a step writes
	ones  []int64     // of the mask
	spare []byte      // memory of the logits
	half  []byte      // memory of the embeddings, for a decoder that takes them in F16
}

// generation begins with an empty cache, for so many tokens an item at most.
func (l *Language) generation(batch, longest int) *generation {
	g := &generation{l: l, batch: batch, ones: make([]int64, batch*longest)}
	for i := range g.ones {
		g.ones[i] = 1
	}
	for k := range g.cache {
		g.cache[k] = make([][]byte, len(l.ports.caches))
	}
	return g
}

// release gives the memory back.
func (g *generation) release() {
	for _, m := range append(slices.Concat(g.cache[0], g.cache[1]), g.spare, g.half) {
		if m != nil {
			g.l.decoder.buffers.put(m)
		}
	}
	g.cache, g.spare, g.half = [2][][]byte{}, nil, nil
}

// room returns memory of at least size bytes, of which the first are used: m if it is
// large enough.
func (g *generation) room(m []byte, size int) []byte {
	if m != nil && len(m) >= size {
		return m
	}
	if m != nil {
		g.l.decoder.buffers.put(m)
	}
	return g.l.decoder.buffers.get(size)
}

// step runs the decoder over n more tokens: their embeddings [B, n, D], their positions
// [axes, B, n]. It returns the logits [B, rows, V] of keep positions, or of others where
// the model gives others (see logitRows), in memory that the next step writes anew.
func (g *generation) step(ctx context.Context, embeds []float32, n int, positions []int64, keep int) (infer.Tensor, error) {
	s := g.l.decoder
	c := &call{}
	defer c.destroy()
	logits, err := g.bind(c, embeds, n, positions, keep)
	if err == nil {
		err = s.once(ctx, c)
	}
	runtime.KeepAlive(embeds)
	runtime.KeepAlive(positions)
	runtime.KeepAlive(g)
	switch {
	case err == nil:
	case errors.Is(err, infer.ErrInput):
		return logits, err
	case ctx.Err() != nil:
		return logits, s.ended(ctx, fmt.Sprintf("after %d tokens", g.past))
	case otherShape.MatchString(err.Error()): // such as a cache that forgets
		return logits, fmt.Errorf("%w: %q: after %d tokens the shape of the logits or of the cache differs from the shape at load: %w", infer.ErrModel, s.cfg.Model.Name, g.past, err)
	default:
		return logits, fmt.Errorf("%q: after %d tokens: %w", s.cfg.Model.Name, g.past, failedRun(err))
	}
	g.past += n
	g.cache[0], g.cache[1] = g.cache[1], g.cache[0]
	if logits.F32 == nil { // of a shape that was not known
		at := slices.Index(g.l.ports.outs, -1)
		err = collect(&logits, s.info.Outputs[at], c.outputs[at])
	}
	return logits, err
}

// bind makes the values of a step. Those of the cache's memory are made anew for each,
// which costs some 0.4 µs a value; so every value has one owner, its call.
func (g *generation) bind(c *call, embeds []float32, n int, positions []int64, keep int) (logits infer.Tensor, err error) {
	if err := c.prepare(); err != nil {
		return logits, err
	}
	for _, f := range g.l.ports.feeds {
		t, err := g.input(f, embeds, n, positions, keep)
		if err != nil {
			return logits, fmt.Errorf("%q: after %d tokens: input %s: %w", g.l.decoder.cfg.Model.Name, g.past, list([]infer.Port{f.port}), err)
		}
		v, err := value(c, t)
		if err != nil {
			return logits, err
		}
		c.inputs = append(c.inputs, v)
	}
	for _, k := range g.l.ports.outs {
		var t infer.Tensor
		switch {
		case k >= 0:
			t = g.l.ports.caches[k].tensor(g.batch, g.past+n, func(size int) []byte {
				g.cache[1][k] = g.room(g.cache[1][k], size)
				return g.cache[1][k]
			})
		case g.l.rows == rowsUnknown:
			c.outputs = append(c.outputs, nil)
			continue
		default:
			t = infer.Tensor{Name: logitsPort, DType: infer.F32, Shape: []int{g.batch, g.l.logitsOf(n, keep), g.l.ports.vocabulary}}
			size := 4 * infer.Elements(t.Shape)
			g.spare = g.room(g.spare, size)
			setRaw(&t, g.spare[:size])
			logits = t
		}
		v, err := value(c, t)
		if err != nil {
			return logits, err
		}
		c.outputs = append(c.outputs, v)
	}
	return logits, nil
}

// input is what an input of the decoder is fed with in a step.
func (g *generation) input(f decoderFeed, embeds []float32, n int, positions []int64, keep int) (infer.Tensor, error) {
	switch f.role {
	case feedEmbeds:
		t := infer.Floats(embedsPort, embeds, g.batch, n, g.l.ports.width)
		if f.port.DType == string(infer.F32) {
			return t, nil
		}
		half := infer.Tensor{DType: infer.F16, Shape: t.Shape}
		size := half.DType.Size() * len(embeds)
		g.half = g.room(g.half, size)
		setRaw(&half, g.half[:size])
		return half, fill(half, t)
	case feedMask:
		total := g.past + n
		return infer.Tensor{DType: infer.I64, Shape: []int{g.batch, total}, I64: g.ones[:g.batch*total]}, nil
	case feedPositions:
		shape := []int{g.batch, n}
		if g.l.ports.axes == 3 {
			shape = []int{3, g.batch, n}
		}
		return infer.Tensor{DType: infer.I64, Shape: shape, I64: positions}, nil
	case feedCache:
		return g.l.ports.caches[f.cache].tensor(g.batch, g.past, func(int) []byte { return g.cache[0][f.cache] }), nil
	case feedBranch:
		t := infer.Tensor{DType: infer.Bool, Shape: single(f.port.Shape), U8: []byte{0}}
		if g.past > 0 {
			t.U8[0] = 1
		}
		return t, nil
	default: // feedKeep
		return infer.Tensor{DType: infer.I64, Shape: single(f.port.Shape), I64: []int64{int64(keep)}}, nil
	}
}

// single is the shape of one element for a port that takes one, with an axis or without.
func single(port []int) []int {
	if len(port) == 0 {
		return nil
	}
	return []int{1}
}

// logitsOf is of how many positions there are logits after a step of n tokens.
func (l *Language) logitsOf(n, keep int) int {
	switch l.rows {
	case rowsAll:
		return n
	case rowsLast:
		return 1
	default:
		return keep
	}
}

// Run runs the model on a batch whose Generate is set; infer.Generate documents its inputs and
// outputs. The inputs are not modified, and are read only until Run returns. When ctx ends, the run
// ends between two nodes of the graph. Errors are like those of Session.Run.
func (l *Language) Run(ctx context.Context, b infer.Batch) (*Answer, error) {
	p, err := l.read(b)
	if err != nil {
		return nil, err
	}
	if err := l.decoder.begin(ctx); err != nil {
		return nil, err
	}
	defer l.decoder.end()
	g := l.generation(p.batch, p.tokens+p.MaxNew)
	defer g.release()
	embeds, err := l.embeddings(ctx, p.ids, p.batch)
	if err != nil {
		return nil, err
	}
	defer embeds.Release()
	p.insert(embeds.Outputs[0].F32, l.ports.width)
	var out []infer.Tensor
	if p.MaxNew == 0 {
		out, err = g.score(ctx, p, embeds.Outputs[0].F32)
	} else {
		out, err = g.greedy(ctx, p, embeds)
	}
	if err != nil {
		return nil, err
	}
	out, err = choose(l.decoder.cfg.Model.Name, out, b.Outputs)
	return &Answer{Outputs: out}, err
}

// choose takes the tensors that are wanted.
func choose(model string, all []infer.Tensor, wanted []string) ([]infer.Tensor, error) {
	if len(wanted) == 0 {
		return all, nil
	}
	var out []infer.Tensor
	for _, name := range wanted {
		k := slices.IndexFunc(all, func(t infer.Tensor) bool { return t.Name == name })
		if k < 0 || slices.ContainsFunc(out, func(t infer.Tensor) bool { return t.Name == name }) {
			return nil, fmt.Errorf("%w: %q: output %q was requested; request only outputs of %s, each at most once", infer.ErrInput, model, name, list(portsOf(all)))
		}
		out = append(out, all[k])
	}
	return out, nil
}

// score is the answer of logits: those of the last Keep positions of the prompt.
func (g *generation) score(ctx context.Context, p *prompt, embeds []float32) ([]infer.Tensor, error) {
	vocabulary, width := g.l.ports.vocabulary, g.l.ports.width
	columns := vocabulary
	if p.Pick != nil {
		columns = len(p.Pick)
	}
	scores := make([]float32, p.batch*p.Keep*columns)
	sums := make([]float32, p.batch*p.Keep)
	// take keeps the last rows of logits as the answer's rows from first.
	take := func(logits infer.Tensor, first, rows int) error {
		have := logits.Shape[1]
		for i := range p.batch * rows {
			item, k := i/rows, i%rows
			at := item*have + have - rows + k
			row := logits.F32[at*vocabulary : (at+1)*vocabulary]
			if j := unreal(row); j >= 0 {
				return g.notReal(item, j, row[j])
			}
			to := item*p.Keep + first + k
			if p.Pick == nil {
				copy(scores[to*columns:], row)
				continue
			}
			for j, id := range p.Pick {
				scores[to*columns+j] = row[id]
			}
			_, largest := argMax(row)
			sums[to] = float32(logSumExp(row, largest))
		}
		return nil
	}
	// A model that gives the last position's logits alone is asked once for each that
	// is wanted.
	whole, step := p.tokens, p.Keep
	if g.l.rows == rowsLast {
		whole, step = p.tokens-p.Keep+1, 1
	}
	for done := 0; done < p.tokens; {
		n := 1
		if done == 0 {
			n = whole
		}
		logits, err := g.step(ctx, columnsOf(embeds, p.batch, p.tokens, width, done, n), n,
			columnsOf(p.positions, len(p.positions)/p.tokens, p.tokens, 1, done, n), p.Keep)
		if err != nil {
			return nil, err
		}
		if done += n; p.tokens-done+step <= p.Keep {
			if err := take(logits, p.Keep-step-(p.tokens-done), step); err != nil {
				return nil, err
			}
		}
	}
	out := []infer.Tensor{infer.Floats("logits", scores, p.batch, p.Keep, columns)}
	if p.Pick != nil {
		out = append(out, infer.Floats("logsumexp", sums, p.batch, p.Keep))
	}
	return out, nil
}

// notReal says that a logit is no number.
func (g *generation) notReal(item, id int, v float32) error {
	return fmt.Errorf("%w: %q: item %d of %d: the logit of token %d is %v after %d tokens", infer.ErrNumbers, g.l.decoder.cfg.Model.Name, item+1, g.batch, id, v, g.past)
}

// columnsOf takes n columns from each row of [rows, columns, width]; all of them are
// not copied.
func columnsOf[T any](all []T, rows, columns, width, first, n int) []T {
	if n == columns {
		return all
	}
	out := make([]T, 0, rows*n*width)
	for r := range rows {
		from := (r*columns + first) * width
		out = append(out, all[from:from+n*width]...)
	}
	return out
}
