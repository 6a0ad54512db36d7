package infer

import (
	"context"
	"fmt"
	"strconv"
)

// Generate is what a language model does with one item, whose inputs are
//
//   - "input_ids" I64 [L], the prompt;
//   - "image_features" F32 [N, D], which replace, in order, the embeddings of the N
//     tokens ImageToken in the prompt; absent where there are none;
//   - "position_ids" I64 [L], or [3, L] for models with three axes of positions; absent:
//     0 to L-1.
//
// With MaxNew 0 the answer is the prompt's own logits:
//
//   - "logits" F32 [Keep, V], or with Pick [Keep, len(Pick)]: those of the last Keep
//     positions, the last position last;
//   - with Pick, "logsumexp" F32 [Keep]: log Σ exp over the whole vocabulary, so that
//     exp(logit − logsumexp) is a probability.
//
// With MaxNew above 0 the model goes on greedily, the token of the largest logit each
// time (the first of several), until it has said one of Stop, which is not part of the
// answer:
//
//   - "tokens" I64 [MaxNew], -1 behind the end;
//   - "logprobs" F32 [MaxNew], their log probabilities, 0 behind the end;
//   - "stopped" I64 [1]: 1 if one of Stop was said, 0 if MaxNew came first;
//   - with Top, "top_ids" I64 and "top_logprobs" F32 [MaxNew, Top]: the likeliest tokens
//     of every place, likeliest first, -1 and 0 behind the end.
type Generate struct {
	ImageToken int64   `json:"image_token"`
	Keep       int     `json:"keep,omitempty"`
	Pick       []int64 `json:"pick,omitempty"`
	MaxNew     int     `json:"max_new,omitempty"`
	Stop       []int64 `json:"stop,omitempty"`
	Top        int     `json:"top,omitempty"`
}

// Bounds of a Generate.
const (
	MaxKeep = 512
	MaxNew  = 8192
	MaxTop  = 20
	// maxIDs bounds Pick and Stop.
	maxIDs = 4096
)

// Check says what is wrong with it, wrapping ErrInput.
func (g *Generate) Check() error {
	switch {
	case g == nil:
		return nil
	case g.MaxNew < 0 || g.MaxNew > MaxNew:
		return fmt.Errorf("%w: %d new tokens, want 0 to %d", ErrInput, g.MaxNew, MaxNew)
	case g.MaxNew == 0 && (g.Keep < 1 || g.Keep > MaxKeep):
		return fmt.Errorf("%w: logits of %d positions, want 1 to %d", ErrInput, g.Keep, MaxKeep)
	case g.Top < 0 || g.Top > MaxTop:
		return fmt.Errorf("%w: %d alternatives, want 0 to %d", ErrInput, g.Top, MaxTop)
	case len(g.Pick) > maxIDs || len(g.Stop) > maxIDs:
		return fmt.Errorf("%w: %d tokens picked and %d that stop, want at most %d", ErrInput, len(g.Pick), len(g.Stop), maxIDs)
	}
	return nil
}

// append writes what tells it from another; nothing for nil.
func (g *Generate) append(b []byte) []byte {
	if g == nil {
		return b
	}
	b = append(b, '>')
	for _, n := range []int64{g.ImageToken, int64(g.Keep), int64(g.MaxNew), int64(g.Top)} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	for _, list := range [][]int64{g.Pick, g.Stop} {
		b = append(b, ';')
		for _, id := range list {
			b = strconv.AppendInt(append(b, ' '), id, 10)
		}
	}
	return b
}

// Net is a model that can be asked. *pool.Model is one.
type Net interface {
	// Info loads the model if nobody did before, and says what it is.
	Info(ctx context.Context) (Info, error)
	// Infer runs it on one item, together with others of the same Key, and returns the
	// item's outputs without a batch axis, which are the caller's own.
	Infer(ctx context.Context, req Request) ([]Tensor, error)
}

// enterer is a model that bounds what is made ready for it at a time. *pool.Model is one.
type enterer interface {
	// Enter waits for leave to make an item ready, such as to decode a picture. Its errors are
	// as of Infer. The caller calls leave when it has the last answer about the item.
	Enter(ctx context.Context) (leave func(), err error)
}

// Enter asks a model for leave to make an item ready for it. One that is no Enterer has it.
func Enter(ctx context.Context, model any) (leave func(), err error) {
	if e, ok := model.(enterer); ok {
		return e.Enter(ctx)
	}
	return func() {}, nil
}

// Nets opens models. Two equal Models are the same Net.
type Nets interface {
	// Net loads nothing yet. Its errors wrap those of this package.
	Net(m Model) (Net, error)
}
