package judge

import (
	"encoding/json"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// Engines provides the engine of disrm, which does not use a chat API.
type Engines interface {
	// Engine returns the sender of calls to the engine, and the name of the engine's model. Engine
	// opens no connection. sample returns a typical call of the scorer for a model; it is used to
	// test the engine when the engine starts.
	Engine(e chat.Endpoint, sample func(model string) outbound.Call) (outbound.Doer, string, error)
}

// Deps provides what the scorers need from the process. A nil field only prevents the scorers that
// need it from being built.
type Deps struct {
	Clients chat.Clients
	Engines Engines
}

// Specs describes every scorer of the package for a registry.
func Specs(d Deps) []rewards.Spec {
	all := []rewards.Spec{
		genrmSpec(d), unifiedSpec(d), vqaSpec(d), yesNoSpec(d), digitSpec(d), wiseSpec(d),
		judgeSpec(d), rubricSpec(d), disrmSpec(d), editScoreSpec(d), imgEditSpec(d), softTIFASpec(d),
	}
	for i := range all {
		all[i].Concurrency = "as many samples as keep the engine's concurrency (256 questions at a time) in use, or this process's share of this number"
	}
	return all
}

// validator is the options of a scorer.
type validator interface {
	// validate names everything that is wrong.
	validate() error
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
			return nil, errNoEngine
		}
		if sc.client, err = d.Clients.Client(sc.asking.Endpoint, sc.trial()); err != nil {
			return nil, fmt.Errorf("judge: %w", err)
		}
		return sc, nil
	}
}

var errNoEngine = fmt.Errorf("judge: %w", chat.ErrNoEngine)
