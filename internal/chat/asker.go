package chat

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/rewardloop/rewardloop/rewards"
)

// Chatter asks a question. Client is one; it calls Request.Accept once.
type Chatter interface {
	Chat(ctx context.Context, r *Request) (*Reply, error)
}

var (
	_ Chatter = (*Client)(nil)
	_ Chatter = Seeded{}
)

// Endpoint says who is asked.
type Endpoint struct {
	// Engine names an entry of the configuration; empty: the engines of reward_model.
	Engine string `json:"engine"`
	// Model overrides the engine's own.
	Model string `json:"model"`
}

// Clients gives scorers whom they ask.
type Clients interface {
	// Client returns the client for an endpoint, or an error that says what is
	// missing. It connects nowhere. The client stays its owner's, who closes it, and
	// asks the endpoint's model where a request names none. sample is a question with all
	// that the scorer's questions ask for, with which the endpoint is tried when it starts;
	// one without messages says that it need not be.
	Client(e Endpoint, sample Request) (Chatter, error)
}

// ClientsFunc is a function that is Clients, and tries nobody.
type ClientsFunc func(e Endpoint) (Chatter, error)

// Client implements Clients.
func (f ClientsFunc) Client(e Endpoint, _ Request) (Chatter, error) { return f(e) }

// ErrNoEngine is for a scorer that was given nobody to ask.
var ErrNoEngine = errors.New("no engine is configured; set reward_model.rollout.base_urls, or configure an engine and write its name")

// maxReadable bounds the answers that are read, in bytes: patterns run over all of it.
const maxReadable = 1 << 20

// Ask asks c until read is content with an answer, at most so many times more as retries
// says; each time the seed of the request, if it has one, is 1 more, for the same one
// would draw the same answer. It returns the answer and the number of questions it took.
// Answers that cannot be read are InvalidScore in the end; the errors of c are its own.
func Ask(ctx context.Context, c Chatter, r Request, retries int, read func(Reply) error) (*Reply, int, error) {
	seed := r.Seed
	var unreadable error
	for try := range retries + 1 {
		r.Attempt = try
		if seed != nil {
			r.Seed = new(*seed + int64(try))
		}
		var refused error // what read says; other errors are the engine's
		r.Accept = func(reply Reply) error {
			if refused = readBounded(read, reply); refused != nil {
				refused = fmt.Errorf("%w; the answer begins with %s", refused, Excerpt(reply.Text))
			}
			return refused
		}
		reply, err := c.Chat(ctx, &r)
		switch {
		case err == nil:
			return reply, try + 1, nil
		case refused == nil && rewards.ClassOf(err) != rewards.InvalidScore:
			return nil, try + 1, err // it names endpoint and class
		}
		unreadable = err
	}
	return nil, retries + 1, fmt.Errorf("%w: no answer can be read, after %s: %w", rewards.InvalidScore, times(retries+1), unreadable)
}

func readBounded(read func(Reply) error, reply Reply) error {
	if n := len(reply.Text); n > maxReadable {
		return fmt.Errorf("the answer has %d bytes, at most %d are read", n, maxReadable)
	}
	return read(reply)
}

func times(n int) string {
	if n == 1 {
		return "asking once"
	}
	return "asking " + strconv.Itoa(n) + " times"
}
