package rewards

import "context"

// Score is what a scorer says of one sample.
type Score struct {
	// Value is the reward; it must be finite.
	Value float64
	// Steps holds process rewards: a finite score for each step of the response, in
	// their order, at most MaxSteps; nil: there are none. Value does not follow from
	// them: the scorer says what the whole response is worth.
	Steps []float64
	// Extra holds scalars (float64, int64, bool, string) under the names the
	// scorer declares with ExtraFields. The trainer sees them as columns.
	Extra map[string]any
	// Details holds anything else that JSON can express: recognised lines, boxes,
	// judge answers. It never reaches the trainer's batch.
	Details map[string]any
}

// Scorer is a reward function.
//
// Score must return soon after ctx ends, must not keep s or its bytes after it
// returns, and must be safe for concurrent use. It answers with a Score, with
// Skip(reason), or with an error that wraps a Class. A panic counts as a failed
// component of class Panicked.
type Scorer interface {
	Score(ctx context.Context, s *Sample) (Score, error)
}

// ScorerFunc adapts a function to Scorer.
type ScorerFunc func(ctx context.Context, s *Sample) (Score, error)

// Score calls f.
func (f ScorerFunc) Score(ctx context.Context, s *Sample) (Score, error) { return f(ctx, s) }

// FieldKind is the type of a declared extra field.
type FieldKind string

// The kinds of extra fields. An absent number or bool is null on the wire (NaN in
// the trainer's column), an absent string is empty.
const (
	Number FieldKind = "number"
	Bool   FieldKind = "bool"
	String FieldKind = "string"
)

// Field declares one extra field.
type Field struct {
	// Name is the column's name in reward_extra_info.
	Name string
	// Kind is the type of all of its values.
	Kind FieldKind
}

// ExtraFielder is implemented by scorers that return Extra: the fields are
// declared at load so that every sample of a run has the same columns from the
// first result on. Without it the fields of the first success are taken.
type ExtraFielder interface {
	ExtraFields() []Field
}

// Warmer is implemented by scorers that load something before their first
// sample (a model, a pool of child processes).
type Warmer interface {
	// Warm returns when the scorer is ready to answer at full speed, or why it never will be.
	Warm(ctx context.Context) error
}

// Closer is implemented by scorers that hold something to give back.
type Closer interface {
	Close() error
}
