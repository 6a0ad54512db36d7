package text

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// responseLength is the field of extra_info in which verl says how many tokens the
// response has.
const responseLength = "response_length"

// Overlong is the length penalty of DAPO (Yu et al. 2025, eq. 13) as in verl's dapo reward manager
// (verl/experimental/reward_loop/reward_manager/dapo.py).
type Overlong struct {
	// MaxRespLen is the maximum length of a response, in tokens. Over its last BufferLen tokens the
	// penalty grows from 0 to PenaltyFactor.
	MaxRespLen, BufferLen int64
	PenaltyFactor         float64
	// Columns adds overlong_reward and overlong to the sample's columns.
	Columns bool
}

// WithOverlong returns a scorer that adds the penalty to the value of inner. If inner returns no
// columns, its value without the penalty is the column acc, as in verl. The number of tokens is
// extra_info.response_length; a sample without it fails with the class rewards.BadInput.
func WithOverlong(inner rewards.Scorer, o Overlong) rewards.Scorer {
	d := dapo{inner: inner, rule: o}
	if f, ok := inner.(rewards.ExtraFielder); ok {
		own := f.ExtraFields()
		d.own = len(own) > 0
		return dapoDeclared{dapo: d, fields: d.columns(own)}
	}
	return d
}

// dapo is a scorer with the penalty.
type dapo struct {
	inner rewards.Scorer
	rule  Overlong
	// own says that the scorer declares columns, of which it may leave out all for a
	// sample.
	own bool
}

// dapoDeclared is one whose columns are known at load.
type dapoDeclared struct {
	dapo

	fields []rewards.Field
}

var (
	_ rewards.Warmer       = dapo{}
	_ rewards.Closer       = dapo{}
	_ rewards.Concurrent   = dapo{}
	_ rewards.ExtraFielder = dapoDeclared{}
)

func (d dapo) columns(own []rewards.Field) []rewards.Field {
	out := slices.Clone(own)
	if !d.own {
		out = append(out, rewards.Field{Name: "acc", Kind: rewards.Number})
	}
	if d.rule.Columns {
		out = append(out, rewards.Field{Name: "overlong_reward", Kind: rewards.Number}, rewards.Field{Name: "overlong", Kind: rewards.Bool})
	}
	return out
}

// ExtraFields implements rewards.ExtraFielder.
func (d dapoDeclared) ExtraFields() []rewards.Field { return d.fields }

// Score implements rewards.Scorer.
func (d dapo) Score(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
	n, err := responseTokens(s, responseLength)
	if err != nil {
		return rewards.Score{}, err
	}
	score, err := d.inner.Score(ctx, s)
	if err != nil {
		return rewards.Score{}, err
	}
	penalty := overlongPenalty(n, d.rule)
	extra := maps.Clone(score.Extra)
	if len(extra) == 0 {
		extra = map[string]any{}
		if !d.own {
			extra["acc"] = score.Value
		}
	}
	if d.rule.Columns {
		extra["overlong_reward"], extra["overlong"] = penalty, penalty < 0
	}
	score.Value, score.Extra = score.Value+penalty, extra
	return score, nil
}

// Warm implements rewards.Warmer.
func (d dapo) Warm(ctx context.Context) error {
	if w, ok := d.inner.(rewards.Warmer); ok {
		return w.Warm(ctx)
	}
	return nil
}

// Close implements rewards.Closer.
func (d dapo) Close() error {
	if c, ok := d.inner.(rewards.Closer); ok {
		return c.Close()
	}
	return nil
}

// Concurrency implements rewards.Concurrent.
func (d dapo) Concurrency() int { return rewards.ConcurrencyOf(d.inner) }

// Dependency implements rewards.Reliant.
func (d dapo) Dependency() rewards.Dependency { return rewards.DependencyOf(d.inner) }

// KnownSamples implements rewards.Knower for a scorer that does.
func (d dapo) KnownSamples() []*rewards.Sample {
	if k, ok := d.inner.(rewards.Knower); ok {
		return k.KnownSamples()
	}
	return nil
}

// TryKnown implements rewards.Knower for a scorer that does.
func (d dapo) TryKnown(ctx context.Context, timeout time.Duration) []rewards.Tried {
	if k, ok := d.inner.(rewards.Knower); ok {
		return k.TryKnown(ctx, timeout)
	}
	return nil
}

// ConcurrencyReason implements rewards.ConcurrencyReasoner.
func (d dapo) ConcurrencyReason() string { return rewards.ConcurrencyReason(d.inner) }

// overlongPenalty is 0 up to MaxRespLen-BufferLen tokens, and -PenaltyFactor at MaxRespLen.
func overlongPenalty(tokens float64, o Overlong) float64 {
	exceed := tokens - float64(o.MaxRespLen-o.BufferLen)
	return min(-exceed/float64(o.BufferLen)*o.PenaltyFactor, 0) + 0
}

// responseTokens is the number of tokens that extra_info says the response has.
func responseTokens(s *rewards.Sample, key string) (float64, error) {
	raw, err := extraInfo(s, key)
	if err != nil {
		return 0, err
	}
	n, err := tokenCount(raw)
	if err != nil {
		return 0, bad(s, "%v in extra_info.%s: the penalty counts tokens, and only the trainer has their number", err, key)
	}
	return n, nil
}
