package infer

import (
	"context"
	"fmt"
	"strconv"
)

// Generate selects what a language model computes for one item. The inputs of the item are
//
//   - "input_ids" I64 [L], the prompt;
//   - "image_features" F32 [N, D], which replace, in order, the embeddings of the N tokens ImageToken
//     in the prompt; absent if there are none;
//   - "position_ids" I64 [L], or [3, L] for models with three axes of positions; if absent, 0 to L-1.
//
// If MaxNew is 0, the outputs are the logits of the prompt:
//
//   - "logits" F32 [Keep, V], or with Pick [Keep, len(Pick)]: the logits of the last Keep positions,
//     the last position last;
//   - with Pick, "logsumexp" F32 [Keep]: log Σ exp over the whole vocabulary, so that exp(logit −
//     logsumexp) is a probability.
//
// If MaxNew is above 0, the model generates greedily, always the token with the largest logit (the
// first of several), until it generates one of Stop, which is not part of the output:
//
//   - "tokens" I64 [MaxNew], -1 after the end;
//   - "logprobs" F32 [MaxNew], the log probabilities of the tokens, 0 after the end;
//   - "stopped" I64 [1]: 1 if one of Stop was generated, 0 if MaxNew tokens were generated first;
//   - with Top, "top_ids" I64 and "top_logprobs" F32 [MaxNew, Top]: the most likely tokens of every
//     position, the most likely first, -1 and 0 after the end.
type Generate struct {
	ImageToken int64   `json:"image_token"`
	Keep       int     `json:"keep,omitempty"`
	Pick       []int64 `json:"pick,omitempty"`
	MaxNew     int     `json:"max_new,omitempty"`
	Stop       []int64 `json:"stop,omitempty"`
	Top        int     `json:"top,omitempty"`
}

// Limits of a Generate.
const (
	MaxKeep = 512
	MaxNew  = 8192
	MaxTop  = 20
	// maxIDs bounds Pick and Stop.
	maxIDs = 4096
)

// Check returns an error that wraps ErrInput if a field is out of its range. A nil Generate is
// valid.
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

// Net is a model. *pool.Model implements Net.
type Net interface {
	// Info returns the description of the model, and loads the model if it is not loaded yet.
	Info(ctx context.Context) (Info, error)
	// Infer runs the model on one item, in one batch with other items of the same Key, and returns
	// the item's outputs without a batch axis. The caller owns the outputs.
	Infer(ctx context.Context, req Request) ([]Tensor, error)
}

// enterer is a model that bounds what is made ready for it at a time. *pool.Model is one.
type enterer interface {
	// Enter waits for leave to make an item ready, such as to decode a picture. Its errors are
	// as of Infer. The caller calls leave when it has the last answer about the item.
	Enter(ctx context.Context) (leave func(), err error)
}

// Enter waits until the model admits another item that is prepared for it, such as a picture to be
// decoded. The caller calls leave when it has the last output for the item. A model without a limit
// admits every item at once.
func Enter(ctx context.Context, model any) (leave func(), err error) {
	if e, ok := model.(enterer); ok {
		return e.Enter(ctx)
	}
	return func() {}, nil
}

// Nets opens models. Two equal Models are the same Net.
type Nets interface {
	// Net returns the Net of m without loading it. The errors wrap those of this package.
	Net(m Model) (Net, error)
}
