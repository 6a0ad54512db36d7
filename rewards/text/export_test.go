package text

import (
	"context"
	"slices"
)

// For the external tests: the parsers, and the bounds.
const (
	MaxText      = maxText
	MaxAnswer    = maxAnswer
	MaxTargets   = maxTargets
	MaxReference = maxReference
	MaxPattern   = maxPattern
)

// The parsers, for the fuzz tests.
var (
	Lower          = lower
	Tail           = tail
	LastBoxed      = lastBoxed
	MathAnswer     = mathAnswer
	NormaliseMath  = normaliseMath
	NormaliseQA    = normaliseQA
	LastLetter     = lastLetter
	WithoutDegrees = withoutDegrees
)

// Instructions is the estimate for a pattern.
func Instructions(pattern string) (int, error) {
	_, n, err := compile(pattern, pattern)
	return n, err
}

// CommonLengths are the lengths of the longest common subsequences with b.
func CommonLengths(ctx context.Context, lists [][]string, b []string) ([]int, error) {
	common, _, err := commonLengths(ctx, lists, slices.Values(b))
	return common, err
}
