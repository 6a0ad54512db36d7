package verify

// For the tests of the package alone.
type Run = run

const (
	Field     = field
	MaxResult = maxResult
)

var Apply = apply
