package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
)

// Chatter asks a question. chat.Client is one; it calls Request.Accept once.
type Chatter interface {
	Chat(ctx context.Context, r *chat.Request) (*chat.Reply, error)
}

var _ Chatter = (*chat.Client)(nil)

// Clients gives scorers whom they ask.
type Clients interface {
	// Client returns the client for an engine and model, or an error that says what is
	// missing. Empty names are the configuration's own. It connects nowhere. The client
	// stays its owner's, who closes it, and asks its own model where a request names none.
	Client(engine, model string) (Chatter, error)
}

// ClientsFunc is a function that is Clients.
type ClientsFunc func(engine, model string) (Chatter, error)

// Client implements Clients.
func (f ClientsFunc) Client(engine, model string) (Chatter, error) { return f(engine, model) }

// Specs describes every scorer of the package for a registry. Nil clients are missed
// only by a configuration that names a scorer needing them.
func Specs(c Clients) []rewards.Spec {
	return append([]rewards.Spec{pairwiseSpec(c), listwiseSpec(c)}, standingSpecs()...)
}

// judged is the options of a scorer that asks.
type judged interface {
	// validate names everything that is wrong.
	validate() error
	// asker says who is asked, and how.
	asker() (*asker, *asking)
}

// build makes the BuildGroup function of a scorer that asks: it decodes the options over
// their defaults, checks them, makes the scorer, and gives it its client.
func build[O judged](c Clients, defaults func() O, scorerOf func(O, *asker) rewards.GroupScorer) func(json.RawMessage) (rewards.GroupScorer, error) {
	return func(raw json.RawMessage) (rewards.GroupScorer, error) {
		o := defaults()
		if err := rewards.DecodeOptions(raw, o); err != nil {
			return nil, err //nolint:wrapcheck // it names the option
		}
		if err := o.validate(); err != nil {
			return nil, err
		}
		if c == nil {
			return nil, errors.New("compare: there is no engine to ask; configure reward_model.rollout.base_urls, or an engine and its name here")
		}
		a, who := o.asker()
		var err error
		if a.client, err = c.Client(who.Engine, who.Model); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
		return scorerOf(o, a), nil
	}
}
