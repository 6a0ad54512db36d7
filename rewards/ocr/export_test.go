package ocr

// Distance is the edit distance, for the tests that hold it to the textbook's.
func Distance(a, b []rune, limit int) int { return distance(a, b, limit) }

// For the tests of the package alone.
type Reading = reading

const (
	Cosmos     = cosmos
	DeepGen    = deepGen
	DeepGenOld = deepGenOld
)

var Presets = presets
