package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// Endpoint says who is asked.
type Endpoint struct {
	// Engine names an entry of the configuration; empty: the engines of reward_model.
	Engine string `json:"engine"`
	// Model overrides the engine's own.
	Model string `json:"model"`
}

// Chatter asks a question. chat.Client is one; it calls Request.Accept once.
type Chatter interface {
	Chat(ctx context.Context, r *chat.Request) (*chat.Reply, error)
}

var _ Chatter = (*chat.Client)(nil)

// Clients gives scorers whom they ask.
type Clients interface {
	// Client returns the client for an endpoint, or an error that says what is
	// missing. It connects nowhere. The client stays its owner's, who closes it, and
	// asks the endpoint's model where a request names none.
	Client(e Endpoint) (Chatter, error)
}

// ClientsFunc is a function that is Clients.
type ClientsFunc func(e Endpoint) (Chatter, error)

// Client implements Clients.
func (f ClientsFunc) Client(e Endpoint) (Chatter, error) { return f(e) }

// Engines gives disrm, which does not chat, its engine.
type Engines interface {
	// Engine returns what sends calls to the engine, and the name of its model. It
	// connects nowhere.
	Engine(e Endpoint) (outbound.Doer, string, error)
}

// EnginesFunc is a function that is Engines.
type EnginesFunc func(e Endpoint) (outbound.Doer, string, error)

// Engine implements Engines.
func (f EnginesFunc) Engine(e Endpoint) (outbound.Doer, string, error) { return f(e) }

// Deps is what the scorers need from the process that runs them. What is nil is
// missed only by a configuration that names a scorer needing it.
type Deps struct {
	Clients Clients
	Engines Engines
}

// Specs describes every scorer of the package for a registry.
func Specs(d Deps) []rewards.Spec {
	return []rewards.Spec{
		genrmSpec(d), unifiedSpec(d), vqaSpec(d), yesNoSpec(d), digitSpec(d), wiseSpec(d),
		judgeSpec(d), rubricSpec(d), disrmSpec(d),
	}
}

// validator is the options of a scorer.
type validator interface {
	// validate names everything that is wrong.
	validate() error
	// endpoint says who is asked.
	endpoint() Endpoint
}

// build makes the Build function of a scorer that chats: it decodes the options over
// their defaults, checks them, makes the scorer, and gives it its client.
func build[O validator](d Deps, defaults func() O, scorerOf func(O) (*scorer, error)) func(json.RawMessage) (rewards.Scorer, error) {
	return func(raw json.RawMessage) (rewards.Scorer, error) {
		o := defaults()
		if err := rewards.DecodeOptions(raw, o); err != nil {
			return nil, err
		}
		if err := o.validate(); err != nil {
			return nil, err
		}
		sc, err := scorerOf(o)
		if err != nil {
			return nil, err
		}
		if d.Clients == nil {
			return nil, errNoEngine()
		}
		if sc.client, err = d.Clients.Client(o.endpoint()); err != nil {
			return nil, fmt.Errorf("judge: %w", err)
		}
		return sc, nil
	}
}

func errNoEngine() error {
	return errors.New("judge: there is no engine to ask; configure reward_model.rollout.base_urls, or an engine and its name here")
}
