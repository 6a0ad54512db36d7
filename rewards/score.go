package rewards

import "context"

// Score is the result of a scorer for one sample.
type Score struct {
	// Value is the reward; it must be finite.
	Value float64
	// Steps holds process rewards: one finite score for each step of the response, in order, at
	// most MaxSteps. It is nil if there are none. Value is independent of Steps: the scorer sets it
	// to the reward of the whole response.
	Steps []float64
	// Extra holds scalars (float64, int64, bool, string) under the names that the scorer declares
	// with ExtraFields. The trainer gets them as columns.
	Extra map[string]any
	// Details holds any other data that JSON can represent, such as recognised lines, boxes, or
	// answers of a judge. Details is never part of the trainer's batch.
	Details map[string]any
}

// Scorer is a reward function.
//
// Score must return soon after ctx ends, must not keep s or its bytes after it returns, and must be
// safe for concurrent use. Score returns a Score, Skip(reason), or an error that wraps a Class. A
// panic counts as a failed component of class Panicked.
type Scorer interface {
	Score(ctx context.Context, s *Sample) (Score, error)
}

// ScorerFunc adapts a function to Scorer.
type ScorerFunc func(ctx context.Context, s *Sample) (Score, error)

// Score calls f.
func (f ScorerFunc) Score(ctx context.Context, s *Sample) (Score, error) { return f(ctx, s) }

// FieldKind is the type of a declared extra field.
type FieldKind string

// The kinds of extra fields. An absent number or bool is null on the wire (NaN in the trainer's
// column), and an absent string is empty.
const (
	Number FieldKind = "number"
	Bool   FieldKind = "bool"
	String FieldKind = "string"
)

// Field declares one extra field.
type Field struct {
	// Name is the name of the column in reward_extra_info.
	Name string
	// Kind is the type of all values of the field.
	Kind FieldKind
}

// ExtraFielder is implemented by scorers that return Extra. The fields are declared when the scorer
// is loaded, so that every sample of a run has the same columns from the first result on. Without
// ExtraFielder, the fields of the first success become the columns.
type ExtraFielder interface {
	ExtraFields() []Field
}

// Warmer is implemented by scorers that load something before their first sample, such as a model
// or a pool of child processes.
type Warmer interface {
	// Warm returns nil when the scorer is ready to score at full speed, or the error that prevents
	// it.
	Warm(ctx context.Context) error
}

// Closer is implemented by scorers that hold resources.
type Closer interface {
	Close() error
}
