package stub

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Truth is the ground truth of a sample that the stub scores. The zero value, or no ground truth,
// requests an answer at once.
type Truth struct {
	// WaitMS is the time before the answer in milliseconds, 0 to maxWaitMS.
	WaitMS float64 `json:"wait_ms"`
	// Status, if it is not 0, is the status of the answer after the wait, 400 to 599, so that the
	// sample has no score.
	Status int `json:"status,omitempty"`
	// Hang requests no answer.
	Hang bool `json:"hang,omitempty"`
}

// maxWaitMS is the longest wait of one call: ten minutes.
const maxWaitMS = 600_000

// Validate returns an error if a field is invalid.
func (t Truth) Validate() error {
	if !(t.WaitMS >= 0 && t.WaitMS <= maxWaitMS) {
		return fmt.Errorf("wait_ms is %v, want 0 to %d", t.WaitMS, maxWaitMS)
	}
	if t.Status != 0 && (t.Status < 400 || t.Status > 599) {
		return fmt.Errorf("status is %d, want 400 to 599, or none", t.Status)
	}
	return nil
}

// maxNumbers is how many numbers a response may hold.
const maxNumbers = 64

// Score returns the reward of a response that consists of numbers separated by spaces: minus the
// squared distance to the target, which is 0.5, −0.5, 1, −1, and so on. 0 is the best reward. All
// operations are those of IEEE 754 in a fixed order, so that an implementation in any language
// returns the same bits.
func Score(response string) (float64, error) {
	sum, n := 0.0, 0
	for word := range strings.FieldsSeq(response) {
		x, err := strconv.ParseFloat(word, 64)
		if err != nil || math.IsNaN(x) || math.Abs(x) > 1e9 {
			return 0, fmt.Errorf("%.40q is not a number from -1e9 to 1e9", word)
		}
		if n == maxNumbers {
			return 0, fmt.Errorf("more than %d numbers", maxNumbers)
		}
		d := x - target(n)
		sum += float64(d * d) // the conversion forbids fusing the two, which would round once less
		n++
	}
	if n == 0 {
		return 0, errors.New("the response is empty: want numbers with spaces between them")
	}
	return -sum, nil
}

func target(i int) float64 {
	switch i % 4 {
	case 0:
		return 0.5
	case 1:
		return -0.5
	case 2:
		return 1
	}
	return -1
}
