package text

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/rewards"
)

// Specs describes every scorer of the package for a registry.
func Specs() []rewards.Spec {
	return []rewards.Spec{
		gsm8kSpec(), mathDAPOSpec(), mathRewardSpec(), searchR1Spec(exactMatch()), searchR1Spec(containment()),
		choiceSpec(), mmk12Spec(), geo3kFormatSpec(),
		formatSpec(), lengthSpec(), overlongSpec(), ngramSpec(), rougeSpec(), f1Spec(), regexSpec(),
	}
}

// scorer is a rule as a rewards.Scorer. It holds no state and may be used by any
// number of goroutines.
type scorer struct {
	fields []rewards.Field
	// rate scores the response of s; it is not changed after the scorer is made.
	rate func(ctx context.Context, s *rewards.Sample, response string) (rewards.Score, error)
}

var (
	_ rewards.Scorer       = (*scorer)(nil)
	_ rewards.ExtraFielder = (*scorer)(nil)
	_ rewards.Queuer       = (*scorer)(nil)
)

// Queues says that the component's time begins when a CPU is free for it.
func (*scorer) Queues() {}

// ExtraFields declares the columns the rule returns beside its value.
func (sc *scorer) ExtraFields() []rewards.Field { return sc.fields }

// Score rates the sample's response. A sample that has none, or lacks what the
// rule compares with, is rewards.BadInput.
func (sc *scorer) Score(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
	ctx, done, err := cpu.Start(ctx)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	defer done()
	r, err := response(s)
	if err != nil {
		return rewards.Score{}, err
	}
	score, err := sc.rate(ctx, s, r)
	// Python's min and max keep the sign of a zero; a trainer's table shows it as -0.
	score.Value += 0
	return score, err
}

// options are what a scorer is made from.
type options interface {
	// validate names everything that is wrong.
	validate() error
}

// build makes the Build function of a spec: it decodes the options over their
// defaults, checks them, and makes the scorer.
func build[O options](defaults O, scorerOf func(O) (*scorer, error)) func(json.RawMessage) (rewards.Scorer, error) {
	return func(raw json.RawMessage) (rewards.Scorer, error) {
		o := defaults
		if err := rewards.DecodeOptions(raw, &o); err != nil {
			return nil, err
		}
		if err := o.validate(); err != nil {
			return nil, err
		}
		return scorerOf(o)
	}
}

// noOptions are those of a scorer that has none.
type noOptions struct{}

func (noOptions) validate() error { return nil }

// oneOf checks an option that is a word.
func oneOf(name, got string, want ...string) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("%s: %q is unknown, want one of %q", name, got, want)
}

// number is 1 for true and 0 for false.
func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
