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

// characterKey is the entry of a recogniser's metadata that holds its alphabet.
const characterKey = "character"

// dictionary is what each class of a recogniser stands for: nothing (the blank),
// the characters, and a space.
type dictionary []string

// parseDictionary takes one character a line. A line may hold several code
// points, and may be a space of its own; an empty one is a fault, because all
// classes after it would be off by one for a reader that skips it.
func parseDictionary(text string) (dictionary, error) {
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return nil, fmt.Errorf("%w: the dictionary is empty", infer.ErrModel)
	}
	lines := strings.Split(text, "\n")
	d := make(dictionary, 0, len(lines)+2)
	d = append(d, "")
	for i, l := range lines {
		l = strings.TrimSuffix(l, "\r")
		if l == "" {
			return nil, fmt.Errorf("%w: line %d of the dictionary is empty", infer.ErrModel, i+1)
		}
		d = append(d, l)
	}
	return append(d, " "), nil
}

// loadDictionary takes the alphabet from the model's metadata.
func loadDictionary(info infer.Info) (dictionary, error) {
	text, ok := info.Metadata[characterKey]
	if !ok {
		return nil, fmt.Errorf("%w: model without dictionary: the recogniser has no metadata %q; export the model with its alphabet in that key", infer.ErrModel, characterKey)
	}
	d, err := parseDictionary(text)
	if err != nil {
		return nil, fmt.Errorf("metadata %q of the recogniser: %w", characterKey, err)
	}
	return d, nil
}

// fits says whether a recogniser's number of classes is that of the alphabet.
func (d dictionary) fits(classes int) error {
	if classes != len(d) {
		return fmt.Errorf("%w: the recogniser has %d classes, but its dictionary has %d characters, %d with blank and space", infer.ErrModel, classes, len(d)-2, len(d))
	}
	return nil
}
