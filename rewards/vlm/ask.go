package vlm

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// encoded is a question as the language model takes it.
type encoded struct {
	ids       []int64
	positions *infer.Tensor // nil: the usual ones
	views     int
}

// bytes are what the ids take, and the positions of three axes.
func (p encoded) bytes() int { return 32 * len(p.ids) }

// picture is a frame as the language model takes it.
type picture struct {
	view     *view
	features []float32 // [view.Tokens, width]
	width    int
}

// maxText bounds a text of a question in bytes: more than any context here holds.
const maxText = 1 << 20

// prompt renders a conversation, forces the answer to begin with prefix, and makes
// tokens of it. The turns have one picture for each view.
func (m *model) prompt(ctx context.Context, l *loaded, turns []turn, prefix string, views []*view) (encoded, error) {
	clean := make([]turn, len(turns))
	size := 0
	for i, t := range turns {
		clean[i] = turn{Role: t.Role, Parts: slices.Clone(t.Parts)}
		for k, p := range t.Parts {
			size += len(p.Text)
			clean[i].Parts[k].Text = l.harmless.Replace(p.Text)
		}
	}
	if size > maxText {
		return encoded{}, fmt.Errorf("%w: the question has %d bytes of text, a judge is shown at most %d", rewards.BadInput, size, maxText)
	}
	text, err := l.render(clean)
	if err != nil {
		return encoded{}, fmt.Errorf("%w: the chat template: %w", rewards.BadInput, err)
	}
	text += prefix
	if n := strings.Count(text, l.family.ImageToken()); n != len(views) {
		return encoded{}, fmt.Errorf("%w: the prompt has %d places for %d pictures", rewards.Internal, n, len(views))
	}
	var key strings.Builder
	for _, v := range views {
		fmt.Fprintf(&key, "%d×%d:%d ", v.Grid[0], v.Grid[1], v.Tokens)
	}
	key.WriteString("|" + text)
	return m.prompts.Get(ctx, key.String(), func(context.Context) (encoded, error) { return l.tokens(text, views) })
}

// tokens makes tokens of a rendered prompt.
func (l *loaded) tokens(text string, views []*view) (encoded, error) {
	special := l.bos == "" || !strings.HasPrefix(text, l.bos) // as transformers' processors do
	ids, err := l.tokenizer.Encode(l.family.Expand(text, views), special)
	if err != nil {
		return encoded{}, fmt.Errorf("%w: the prompt: %w", rewards.BadInput, err)
	}
	want, got := 0, 0
	for _, v := range views {
		want += v.Tokens
	}
	for _, id := range ids {
		if id == l.image {
			got++
		}
	}
	if got != want {
		return encoded{}, fmt.Errorf("%w: the prompt has %d tokens for pictures, but the pictures need %d", rewards.Internal, got, want)
	}
	p := encoded{ids: ids, views: len(views)}
	if p.positions, err = l.family.Positions(ids, l.image, views); err != nil {
		return encoded{}, err
	}
	return p, nil
}

// with adds a view to others, as long as the model has room for all of them: their tiles
// are in memory.
func (l *loaded) with(views []*view, v *view) ([]*view, error) {
	tokens := v.Tokens
	for _, other := range views {
		tokens += other.Tokens
	}
	if tokens > l.context {
		return nil, fmt.Errorf("%w: %d pictures need %d tokens, but the model has a context of %d; show fewer frames, or no tiles (split)",
			rewards.BadInput, len(views)+1, tokens, l.context)
	}
	return append(views, v), nil
}

// fits checks that a prompt and its answer are within the model's context.
func (l *loaded) fits(p encoded, more int) error {
	if n := len(p.ids) + more; n > l.context {
		return fmt.Errorf("%w: the question needs %d tokens and its answer up to %d, but the model has a context of %d; show fewer frames, no tiles (split), or a shorter text",
			rewards.BadInput, len(p.ids), more, l.context)
	}
	return nil
}

// maxItemsAtOnce bounds the runs of the vision encoder that one question has under way.
const maxItemsAtOnce = 64

// see runs the vision encoder on views.
func (l *loaded) see(ctx context.Context, views []*view) ([]picture, error) {
	type place struct{ view, item int }
	var places []place
	features := make([][]infer.Tensor, len(views))
	for i, v := range views {
		features[i] = make([]infer.Tensor, len(v.Items))
		for k := range v.Items {
			places = append(places, place{i, k})
		}
	}
	one := func(ctx context.Context, p place) error {
		out, err := l.vision.Infer(ctx, views[p.view].Items[p.item])
		if err != nil {
			return fmt.Errorf("vision encoder: %w", err)
		}
		features[p.view][p.item], err = named(out, featurePort, infer.F32)
		return err
	}
	if len(places) == 1 { // the usual question: no goroutine
		if err := one(ctx, places[0]); err != nil {
			return nil, err
		}
	} else {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(maxItemsAtOnce)
		for _, p := range places {
			g.Go(func() error { return rewards.Guard(func() error { return one(ctx, p) }) })
		}
		if err := g.Wait(); err != nil {
			return nil, err //nolint:wrapcheck // one says where
		}
	}
	out := make([]picture, len(views))
	for i, v := range views {
		var err error
		if out[i], err = join(v, features[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// join puts the features of a view's items together.
func join(v *view, items []infer.Tensor) (picture, error) {
	p := picture{view: v}
	rows := 0
	for _, t := range items {
		if len(t.Shape) < 2 {
			return p, fmt.Errorf("%w: the vision encoder returned features of unexpected shape %v", rewards.Internal, t.Shape)
		}
		width := t.Shape[len(t.Shape)-1]
		if p.width == 0 {
			p.width = width
		}
		if width != p.width || width == 0 {
			return p, fmt.Errorf("%w: the vision encoder returned features of %d and of %d numbers, want equal lengths", rewards.Internal, p.width, width)
		}
		rows += t.Len() / width
		if len(items) == 1 {
			p.features = t.F32
		} else {
			p.features = append(p.features, t.F32...)
		}
	}
	if rows != v.Tokens {
		return p, fmt.Errorf("%w: the vision encoder returned %d features for a picture of %d tokens: the files of the folder belong to different models", rewards.Internal, rows, v.Tokens)
	}
	return p, nil
}

// run has the language model do something with a prompt, about pictures, with some of
// the answer said already.
func (l *loaded) run(ctx context.Context, name string, p encoded, seen []picture, said []int64, g infer.Generate) ([]infer.Tensor, error) {
	if err := l.fits(p, len(said)+g.MaxNew); err != nil {
		return nil, err
	}
	if len(seen) != p.views {
		return nil, fmt.Errorf("%w: %d pictures for a prompt of %d", rewards.Internal, len(seen), p.views)
	}
	g.ImageToken = l.image
	ids := p.ids
	if len(said) > 0 {
		ids = append(slices.Clip(ids), said...)
	}
	req := infer.Request{Name: name, Generate: &g, Inputs: []infer.Tensor{
		{Name: infer.InputIDs, DType: infer.I64, Shape: []int{len(ids)}, I64: ids},
	}}
	if len(seen) > 0 {
		rows, all := 0, seen[0].features
		for i, s := range seen {
			rows += s.view.Tokens
			if i > 0 {
				all = append(slices.Clip(all), s.features...)
			}
			if s.width != seen[0].width {
				return nil, fmt.Errorf("%w: features of %d and of %d numbers", rewards.Internal, seen[0].width, s.width)
			}
		}
		req.Inputs = append(req.Inputs, infer.Floats(featurePort, all, rows, seen[0].width))
	}
	if p.positions != nil {
		req.Inputs = append(req.Inputs, lengthened(p.positions, len(said)))
	}
	out, err := l.language.Infer(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("the ONNX graph of the language model: %w", err)
	}
	return out, nil
}

// lengthened adds places behind a prompt's positions, [3, L] or [L]: they count on after
// the largest.
func lengthened(t *infer.Tensor, more int) infer.Tensor {
	if more == 0 {
		return *t
	}
	axes, length := 1, t.Shape[len(t.Shape)-1]
	if len(t.Shape) == 2 {
		axes = t.Shape[0]
	}
	next := int64(0)
	if length > 0 {
		next = slices.Max(t.I64) + 1
	}
	out := infer.Tensor{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape)}
	out.Shape[len(out.Shape)-1] = length + more
	for a := range axes {
		out.I64 = append(out.I64, t.I64[a*length:(a+1)*length]...)
		for i := range more {
			out.I64 = append(out.I64, next+int64(i))
		}
	}
	return out
}

// pick asks how likely some tokens are to come next, after what was said: at as many of
// the last places as keep says. The ids must be sorted, so that equal questions share
// batches.
func (l *loaded) pick(ctx context.Context, name string, p encoded, seen []picture, said []int64, keep int, ids []int64) ([]logits, error) {
	out, err := l.run(ctx, name, p, seen, said, infer.Generate{Keep: keep, Pick: ids})
	if err != nil {
		return nil, err
	}
	of, err := named(out, "logits", infer.F32)
	if err != nil {
		return nil, err
	}
	totals, err := named(out, "logsumexp", infer.F32)
	if err != nil {
		return nil, err
	}
	if of.Len() != keep*len(ids) || totals.Len() != keep {
		return nil, fmt.Errorf("%w: the model returned logits of shape %v, want [%d %d]", rewards.Internal, of.Shape, keep, len(ids))
	}
	places := make([]logits, keep)
	for i := range places {
		total := float64(totals.F32[i])
		if math.IsNaN(total) || math.IsInf(total, 0) {
			return nil, fmt.Errorf("%w: the sum of all probabilities is %v", infer.ErrNumbers, total)
		}
		places[i] = logits{ids: ids, of: of.F32[i*len(ids) : (i+1)*len(ids)], total: total}
	}
	return places, nil
}

// answer is what the model said.
type answer struct {
	tokens   []int64
	logprobs []float32
	top      [][]alternative // of each token, where they were asked for
	stopped  bool            // by itself
	text     string
}

type alternative struct {
	id      int64
	logprob float32
}

// say has the model answer, greedily.
func (l *loaded) say(ctx context.Context, name string, p encoded, seen []picture, most, top int) (answer, error) {
	out, err := l.run(ctx, name, p, seen, nil, infer.Generate{MaxNew: most, Stop: l.stops, Top: top})
	if err != nil {
		return answer{}, err
	}
	a, err := readAnswer(out, top)
	if err != nil {
		return answer{}, err
	}
	if a.text, err = l.tokenizer.Decode(a.tokens, true); err != nil {
		return answer{}, fmt.Errorf("%w: the answer's tokens: %w", rewards.Internal, err)
	}
	return a, nil
}

// readAnswer reads the outputs of a generation.
func readAnswer(out []infer.Tensor, top int) (answer, error) {
	tokens, err := named(out, "tokens", infer.I64)
	if err != nil {
		return answer{}, err
	}
	logprobs, err := named(out, "logprobs", infer.F32)
	if err != nil {
		return answer{}, err
	}
	stopped, err := named(out, "stopped", infer.I64)
	if err != nil {
		return answer{}, err
	}
	n := slices.Index(tokens.I64, -1)
	if n < 0 {
		n = len(tokens.I64)
	}
	if logprobs.Len() < n || stopped.Len() != 1 {
		return answer{}, fmt.Errorf("%w: %d tokens with %d log probabilities", rewards.Internal, n, logprobs.Len())
	}
	a := answer{tokens: tokens.I64[:n], logprobs: logprobs.F32[:n], stopped: stopped.I64[0] == 1}
	for i, v := range a.logprobs {
		if !finite(float64(v)) { // then the tokens are none of the model's choice
			return answer{}, fmt.Errorf("%w: the log probability of token %d of the answer is %v", infer.ErrNumbers, i, v)
		}
	}
	if top == 0 {
		return a, nil
	}
	topIDs, err := named(out, "top_ids", infer.I64)
	if err != nil {
		return answer{}, err
	}
	topLogs, err := named(out, "top_logprobs", infer.F32)
	if err != nil {
		return answer{}, err
	}
	if topIDs.Len() < n*top || topLogs.Len() < n*top {
		return answer{}, fmt.Errorf("%w: %d tokens with %d alternatives", rewards.Internal, n, topIDs.Len())
	}
	for i := range n {
		var place []alternative
		for k := i * top; k < (i+1)*top; k++ {
			if topIDs.I64[k] >= 0 {
				place = append(place, alternative{topIDs.I64[k], topLogs.F32[k]})
			}
		}
		a.top = append(a.top, place)
	}
	return a, nil
}

// mean is the mean log probability of the answer's tokens; 0 for none.
func (a answer) mean() float64 {
	sum := 0.0
	for _, v := range a.logprobs {
		sum += float64(v)
	}
	return sum / float64(max(len(a.logprobs), 1))
}
