package compare

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// each calls f for 0 … n−1, at most limit at once, on goroutines that have all ended
// when it returns. The first error ends the others. A panic is an error.
func each(ctx context.Context, n, limit int, f func(ctx context.Context, i int) error) error {
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for i := range n {
		if inner.Err() != nil {
			break
		}
		g.Go(func() error {
			return rewards.Guard(func() error { return f(inner, i) }) // on a goroutine of its own nobody else would catch a panic
		})
	}
	if err := g.Wait(); err != nil {
		return err // it is f's
	}
	if err := ctx.Err(); err != nil {
		return rewards.Ended(ctx, false, rewards.BlameDependency, err) // the caller says what was being done
	}
	return nil
}

// asker asks questions, and says for its scorer how many groups are executed at a time. It
// holds no state of groups and may be used by any number of goroutines.
type asker struct {
	client  chat.Chatter
	asking  asking
	breadth outbound.Breadth
}

// Concurrency is how many groups the engine's questions at a time are enough for.
func (a *asker) Concurrency() int { return a.breadth.Calls(rewards.ConcurrencyOf(a.client)) }

// Dependency is the engine.
func (a *asker) Dependency() rewards.Dependency { return rewards.DependencyOf(a.client) }

// ConcurrencyReason is the engine's, with how many questions a group has at a time.
func (a *asker) ConcurrencyReason() string {
	return a.breadth.Reason(rewards.ConcurrencyReason(a.client))
}

// each asks n questions of one group, as many at a time as the options say.
func (a *asker) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	if n > 0 {
		a.breadth.Saw(min(n, a.asking.Concurrency))
	}
	return each(ctx, n, a.asking.Concurrency, f)
}

// said is what the details hold of an answer.
type said struct {
	// First is who was shown as A.
	First string `json:"first,omitempty"`
	// Text is the answer, its last 400 bytes: the verdict stands at the end.
	Text string `json:"text,omitempty"`
	// Tries counts the questions it took to get an answer that can be read.
	Tries int `json:"tries"`
	// Cached says that the answer was there already.
	Cached bool `json:"cached,omitempty"`
	// Error says why there is no answer.
	Error string `json:"error,omitempty"`
}

// ask asks a question, pictures before text, until read is content with an answer.
func (a *asker) ask(ctx context.Context, pictures []chat.Part, text string, read func(answer string) error) (said, error) {
	r := chat.Question(a.asking.Asking, a.asking.Sampling, a.asking.System, pictures, text)
	reply, tries, err := chat.Ask(ctx, a.client, r, a.asking.AnswerRetries, func(reply chat.Reply) error { return read(reply.Text) })
	if err != nil {
		return said{}, err // it names endpoint and class
	}
	return said{Text: tail(reply.Text), Tries: tries, Cached: reply.Cached}, nil
}
