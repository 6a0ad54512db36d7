package preference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// embedding is what a tower makes of a picture or a text.
type embedding struct {
	values []float32
	// norm is its length, above 0 and finite.
	norm float64
	// truncated says that the text was longer than the tower reads.
	truncated bool
}

// bytes are what its numbers take.
func (e embedding) bytes() int { return 4 * len(e.values) }

// errNorm is wrapped where an embedding has no direction.
var errNorm = errors.New("the embedding has norm 0")

// tensor prepares a frame, in the goroutine of its caller: bytes, which are normalised
// where the model runs.
func (e *network) tensor(px *rewards.Pixels, frame int) (*infer.Tensor, error) {
	p, err := e.side.Image.Apply(px, frame)
	if err != nil {
		return nil, err //nolint:wrapcheck // of class BadInput, and says what it is about
	}
	t := e.side.Image.Tensor("", p)
	return &t, nil
}

// embed takes an embedding's length.
func embed(t infer.Tensor) (embedding, error) {
	sum := 0.0
	for _, v := range t.F32 {
		sum += float64(v) * float64(v)
	}
	norm := math.Sqrt(sum)
	if !(norm > 0) || !finite(norm) {
		return embedding{}, fmt.Errorf("%w: %w: output %q of %d numbers has the length %v", rewards.InvalidScore, errNorm, t.Name, t.Len(), norm)
	}
	// The rows of a batch share their memory, which a kept row would hold on to.
	return embedding{values: slices.Clone(t.F32), norm: norm}, nil
}

// cosine is the cosine of the angle between two embeddings, computed in float64: −1 to 1.
func cosine(a, b embedding) float64 {
	dot := 0.0
	for i, v := range a.values {
		dot += float64(v) * float64(b.values[i])
	}
	return max(-1, min(1, dot/(a.norm*b.norm)))
}

// picture makes the embedding of a frame. A graph that wants a text with it gets t.
func (e *network) picture(ctx context.Context, item string, px *rewards.Pixels, frame int, t *tokens) (embedding, error) {
	in, err := e.tensor(px, frame)
	if err != nil {
		return embedding{}, err
	}
	return e.pictureOf(ctx, item, in, t)
}

// looks is the graph that looks at pictures.
func (e *network) looks() *graph {
	if e.vision != nil {
		return e.vision
	}
	return e.whole
}

// enter waits for leave to make pictures ready for the model.
func (e *network) enter(ctx context.Context) (leave func(), err error) {
	g := e.looks()
	if leave, err = infer.Enter(ctx, g.net); err != nil {
		return nil, fmt.Errorf("%s: %w", g.file, err)
	}
	return leave, nil
}

func (e *network) pictureOf(ctx context.Context, item string, in *infer.Tensor, t *tokens) (embedding, error) {
	out, err := e.looks().run(ctx, item, in, t, e.out.Image)
	if err != nil {
		return embedding{}, err
	}
	return embed(out[0])
}

// sentence makes the embedding of a text in a tower of its own.
func (e *network) sentence(ctx context.Context, item string, t tokens) (embedding, error) {
	out, err := e.text.run(ctx, item, nil, &t, e.out.Text)
	if err != nil {
		return embedding{}, err
	}
	made, err := embed(out[0])
	made.truncated = t.truncated
	return made, err
}

// both makes both embeddings in the one graph of kind combined. Other items of the batch
// do not matter: the row of an item has its own embeddings, of which its place on the
// diagonal of logits_per_image is the product.
func (e *network) both(ctx context.Context, item string, px *rewards.Pixels, frame int, t tokens) (image, text embedding, err error) {
	in, err := e.tensor(px, frame)
	if err != nil {
		return image, text, err
	}
	out, err := e.whole.run(ctx, item, in, &t, e.out.Image, e.out.Text)
	if err != nil {
		return image, text, err
	}
	if image, err = embed(out[0]); err != nil {
		return image, text, err
	}
	text, err = embed(out[1])
	return image, text, err
}

// output asks the one graph of a kind that scores, and returns the number at the sidecar's
// index before and after its transform.
func (e *network) output(ctx context.Context, item string, in *infer.Tensor, t *tokens) (rated, error) {
	out, err := e.whole.run(ctx, item, in, t, e.out.Score)
	if err != nil {
		return rated{}, err
	}
	return e.side.Score.rate(out[0].F32)
}

// rated is a number of a graph, and what the sidecar makes of it.
type rated struct{ output, value float64 }

// rate applies the rules to all places of a score.
func (s scoreRules) rate(all []float32) (rated, error) {
	if s.Index >= len(all) {
		return rated{}, fmt.Errorf("%w: score.index is %d, but the graph returned %d numbers", infer.ErrModel, s.Index, len(all))
	}
	r := rated{output: float64(all[s.Index])}
	x := r.output
	switch s.Transform {
	case transformSigmoid:
		x = logistic(x)
	case transformSoftmax:
		x = share(all, s.Index)
	}
	if r.value = x*s.Scale + s.Offset; !finite(r.value) {
		return rated{}, fmt.Errorf("%w: the graph returned %v; by the rules of %s the score is %v, want a finite number", rewards.InvalidScore, r.output, sidecarFile, r.value)
	}
	return r, nil
}

// logistic is 1/(1+e^−x), without overflow on either side.
func logistic(x float64) float64 {
	if x < 0 {
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

// share is the softmax of all at index i.
func share(all []float32, i int) float64 {
	top := float64(slices.Max(all))
	sum := 0.0
	for _, v := range all {
		sum += math.Exp(float64(v) - top)
	}
	return math.Exp(float64(all[i])-top) / sum
}
