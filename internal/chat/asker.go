package chat

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/rewardloop/rewardloop/rewards"
)

// Chatter asks an engine a question. *Client implements Chatter. Chat calls Request.Accept once.
type Chatter interface {
	Chat(ctx context.Context, r *Request) (*Reply, error)
}

var (
	_ Chatter = (*Client)(nil)
	_ Chatter = Seeded{}
)

// Endpoint selects the engine and the model for questions.
type Endpoint struct {
	// Engine is the name of an entry of the configuration; empty: the engines of reward_model.
	Engine string `json:"engine"`
	// Model replaces the model of the engine.
	Model string `json:"model"`
}

// Clients provides the clients of scorers.
type Clients interface {
	// Client returns the client for an endpoint, or an error that describes what is missing. Client
	// opens no connection. The caller must not close the client, which uses the endpoint's model
	// for requests without a model. sample is a request with all features of the scorer's
	// questions; the endpoint is tested with it when it starts. A sample without messages means
	// that no test is needed.
	Client(e Endpoint, sample Request) (Chatter, error)
}

// ClientsFunc is a function that implements Clients and tests no endpoint.
type ClientsFunc func(e Endpoint) (Chatter, error)

// Client implements Clients.
func (f ClientsFunc) Client(e Endpoint, _ Request) (Chatter, error) { return f(e) }

// ErrNoEngine means that no engine is configured for a scorer.
var ErrNoEngine = errors.New("no engine is configured; set reward_model.rollout.base_urls, or configure an engine and write its name")

// maxReadable bounds the answers that are read, in bytes: patterns run over all of it.
const maxReadable = 1 << 20

// Ask asks c until read accepts a reply, with up to retries repetitions. If the request has a seed,
// each repetition adds 1 to the seed, because the same seed would result in the same reply. Ask
// returns the reply and the number of questions. If no reply is accepted, the error wraps
// rewards.InvalidScore; errors of c are returned unchanged.
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
