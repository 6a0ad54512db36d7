package compare

import (
	"context"
	"fmt"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/chat"
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
		g.Go(func() (err error) {
			// On a goroutine of its own nobody else would catch it.
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("%w: %v\n%s", rewards.Panicked, p, debug.Stack())
				}
			}()
			return f(inner, i)
		})
	}
	if err := g.Wait(); err != nil {
		return err //nolint:wrapcheck // it is f's
	}
	return ctx.Err() //nolint:wrapcheck // the caller says what was being done
}

// asker asks questions. It holds no state of groups and may be used by any number of
// goroutines.
type asker struct {
	client Chatter
	asking asking
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

// ask asks a question, pictures before text, until read is content with an answer, at
// most answer_retries times more. What read cannot use is InvalidScore in the end.
func (a *asker) ask(ctx context.Context, pictures []chat.Part, text string, read func(answer string) error) (said, error) {
	r := chat.Request{
		Model: a.asking.Model, Temperature: a.asking.Temperature, TopP: a.asking.TopP,
		MaxTokens: a.asking.MaxTokens, Seed: a.asking.Seed, Extra: a.asking.ExtraBody,
	}
	if a.asking.System != "" {
		r.Messages = append(r.Messages, chat.Message{Role: chat.System, Parts: []chat.Part{chat.Text(a.asking.System)}})
	}
	r.Messages = append(r.Messages, chat.Message{Role: chat.User, Parts: append(pictures, chat.Text(text))})
	var unreadable error
	for try := range a.asking.AnswerRetries + 1 {
		r.Attempt = try
		if s := a.asking.Seed; s != nil {
			seed := *s + int64(try) // the same seed would draw the same answer
			r.Seed = &seed
		}
		var refused error // what read says; other errors are the engine's
		r.Accept = func(reply chat.Reply) error {
			if refused = readBounded(read, reply.Text); refused != nil {
				refused = fmt.Errorf("%w; the answer begins with %s", refused, chat.Excerpt(reply.Text))
			}
			return refused
		}
		reply, err := a.client.Chat(ctx, &r)
		switch {
		case err == nil:
			return said{Text: tail(reply.Text), Tries: try + 1, Cached: reply.Cached}, nil
		case refused == nil && rewards.ClassOf(err) != rewards.InvalidScore:
			return said{}, err //nolint:wrapcheck // it names endpoint and class
		}
		unreadable = err
	}
	return said{}, fmt.Errorf("%w: no answer can be read, asked %d times: %w", rewards.InvalidScore, a.asking.AnswerRetries+1, unreadable)
}

// maxAnswer bounds the answers that are read, in bytes.
const maxAnswer = 1 << 20

func readBounded(read func(string) error, answer string) error {
	if n := len(answer); n > maxAnswer {
		return fmt.Errorf("the answer has %d bytes, at most %d are read", n, maxAnswer)
	}
	return read(answer)
}
