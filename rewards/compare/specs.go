package compare

import (
	"encoding/json"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
)

// Specs describes every scorer of the package for a registry. If c is nil, only the scorers that
// need a client cannot be built.
func Specs(c chat.Clients) []rewards.Spec {
	asking := []rewards.Spec{pairwiseSpec(c), listwiseSpec(c)}
	for i := range asking {
		asking[i].Concurrency = "as many groups as keep the engine's concurrency (256 questions at a time) in use, or this process's share of this number; each group has up to concurrency (16) questions in flight"
	}
	return append(asking, standingSpecs()...)
}

// judged is the options of a scorer that asks.
type judged interface {
	// validate names everything that is wrong.
	validate() error
	// asker is who asks, without its client.
	asker() *asker
}

// build makes the BuildGroup function of a scorer that asks: it decodes the options over
// their defaults, checks them, makes the scorer, and gives it its client.
func build[O judged](c chat.Clients, defaults func() O, scorerOf func(O, *asker) rewards.GroupScorer) func(json.RawMessage) (rewards.GroupScorer, error) {
	return func(raw json.RawMessage) (rewards.GroupScorer, error) {
		o := defaults()
		if err := rewards.DecodeOptions(raw, o); err != nil {
			return nil, err // it names the option
		}
		if err := o.validate(); err != nil {
			return nil, err
		}
		if c == nil {
			return nil, fmt.Errorf("compare: %w", chat.ErrNoEngine)
		}
		a := o.asker()
		var err error
		if a.client, err = c.Client(a.asking.Endpoint, chat.Trial(a.asking.Asking, a.asking.Sampling, 0)); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
		return scorerOf(o, a), nil
	}
}
