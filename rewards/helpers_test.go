package rewards_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// constant answers v at once.
func constant(v float64) rewards.Scorer {
	return rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: v}, nil
	})
}

// failing answers err at once.
func failing(err error) rewards.Scorer {
	return rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{}, err })
}

// broken fails with an error of that class.
func broken(c rewards.Class) rewards.Scorer { return failing(fmt.Errorf("%w: as told", c)) }

// slow answers v after d, or its context's error as soon as that ends.
func slow(d time.Duration, v float64) rewards.Scorer {
	return rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
		select {
		case <-time.After(d):
			return rewards.Score{Value: v}, nil
		case <-ctx.Done():
			return rewards.Score{}, fmt.Errorf("slow: %w", ctx.Err())
		}
	})
}

// uncancellable answers v after d and never looks at its context.
func uncancellable(d time.Duration, v float64) rewards.Scorer {
	return rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
		<-time.After(d)
		return rewards.Score{Value: v}, nil
	})
}

// bySample answers what f says of the sample.
func bySample(f func(s *rewards.Sample) (rewards.Score, error)) rewards.Scorer {
	return rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) { return f(s) })
}

// declaring is a scorer with declared extra fields.
type declaring struct {
	rewards.Scorer
	fields []rewards.Field
}

func (d declaring) ExtraFields() []rewards.Field { return d.fields }

// component is an optional component of weight 1.
func component(key string, sc rewards.Scorer) rewards.Component {
	return rewards.Component{Key: key, Weight: 1, Scorer: sc}
}

// required is a required component of weight 1.
func required(key string, sc rewards.Scorer) rewards.Component {
	return rewards.Component{Key: key, Weight: 1, Scorer: sc, Required: true}
}

// on is an optional component of weight 1 with a failure policy.
func on(policy, key string, sc rewards.Scorer) rewards.Component {
	p, err := rewards.ParseComponentPolicy(policy)
	if err != nil {
		panic(err)
	}
	return rewards.Component{Key: key, Weight: 1, Scorer: sc, OnFailure: p}
}

func newManager(t *testing.T, cfg rewards.ManagerConfig) *rewards.Manager {
	t.Helper()
	m, err := rewards.NewManager(cfg)
	require.NoError(t, err)
	return m
}

// manager makes one of components alone.
func manager(t *testing.T, components ...rewards.Component) *rewards.Manager {
	t.Helper()
	return newManager(t, rewards.ManagerConfig{Components: components})
}

// alone is a sample without a group, member one of a group of four.
var (
	alone  = rewards.Sample{ID: "alone"}
	member = rewards.Sample{ID: "member", UID: "prompt", GroupSize: 4}
)

// score runs s to its result and waits for all of the run's goroutines.
func score(t *testing.T, m *rewards.Manager, s rewards.Sample) rewards.Result {
	t.Helper()
	run := m.Run(t.Context(), &s)
	<-run.Done()
	return run.Result
}

// componentOf returns the answer of the component of that key.
func componentOf(t *testing.T, r rewards.Result, key string) rewards.ComponentResult {
	t.Helper()
	for _, tr := range r.Components {
		if tr.Key == key {
			return tr
		}
	}
	require.Fail(t, "no such component", "%q in %+v", key, r.Components)
	return rewards.ComponentResult{}
}
