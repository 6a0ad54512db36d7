package verify

import (
	"context"

	"github.com/rewardloop/rewardloop/rewards"
)

// Tools are the verifiers of a reward as its Preparer.
type Tools []Named

var (
	_ rewards.Preparer   = Tools(nil)
	_ rewards.Concurrent = Tools(nil)
	_ rewards.Reliant    = Tools(nil)
)

// Prepare implements rewards.Preparer; see Apply.
func (t Tools) Prepare(ctx context.Context, s *rewards.Sample) (*rewards.Sample, error) {
	out, _, err := apply(ctx, t, s)
	return out, err
}

// Concurrency is that of the verifier that has the least: a sample needs all of them.
func (t Tools) Concurrency() int { return rewards.ConcurrencyOf(t.narrowest()) }

// ConcurrencyReason is that of the same verifier.
func (t Tools) ConcurrencyReason() string { return rewards.ConcurrencyReason(t.narrowest()) }

// Dependency is the one that is worst off: a sample needs all of them.
func (t Tools) Dependency() rewards.Dependency { return rewards.Worst(t.verifiers()...) }

func (t Tools) narrowest() rewards.Verifier { return rewards.Narrowest(t.verifiers()...) }

func (t Tools) verifiers() []rewards.Verifier {
	all := make([]rewards.Verifier, len(t))
	for i, n := range t {
		all[i] = n.Verifier
	}
	return all
}
