package ppocr

import (
	"fmt"
	"math"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// blank is the class that stands for no character.
const blank = 0

// decode makes text of a recogniser's most probable classes and their
// probabilities, step by step: of equal ones in a row the first counts, blanks do
// not. The confidence is the mean probability of what counts, 0 for nothing.
// Classes beyond the alphabet and probabilities that are no numbers wrap
// infer.ErrFault.
func (d dictionary) decode(classes []int32, probs []float32, rounded bool) (string, float64, error) {
	if len(classes) != len(probs) {
		return "", 0, fmt.Errorf("%w: %d classes and %d probabilities", infer.ErrFault, len(classes), len(probs))
	}
	var text strings.Builder
	sum, n, last := 0.0, 0, int32(-1)
	for i, c := range classes {
		p := float64(probs[i])
		if c < 0 || int(c) >= len(d) || math.IsNaN(p) || math.IsInf(p, 0) {
			return "", 0, fmt.Errorf("%w: class %d of %d with probability %v at step %d", infer.ErrFault, c, len(d), p, i)
		}
		if c != blank && c != last {
			text.WriteString(d[c])
			if rounded {
				p = round5(p)
			}
			sum += p
			n++
		}
		last = c
	}
	if n == 0 {
		return "", 0, nil
	}
	mean := sum / float64(n)
	if rounded {
		mean = round5(mean)
	}
	return text.String(), mean, nil
}

// round5 rounds to 5 digits, halves to even.
func round5(x float64) float64 { return math.RoundToEven(x*1e5) / 1e5 }
