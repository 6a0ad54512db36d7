package compare

import (
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// withdraw finds the participants with too many unknown comparisons. The one with the
// largest share goes first, together with those who have the same, and takes its
// comparisons along, so that its unknown ones are not held against the others; then
// the shares are counted anew. The error of who stays is nil.
func withdraw(n int, contests []contest, maxUnknown float64) []error {
	gone := make([]error, n)
	for {
		made, unknown, causes := make([]int, n), make([]int, n), make([]error, n)
		for _, c := range contests {
			if gone[c.a] != nil || gone[c.b] != nil {
				continue
			}
			made[c.a]++
			made[c.b]++
			if c.outcome == Unknown {
				unknown[c.a]++
				unknown[c.b]++
				causes[c.a], causes[c.b] = heavier(causes[c.a], c.cause), heavier(causes[c.b], c.cause)
			}
		}
		share := func(i int) float64 { return float64(unknown[i]) / float64(max(made[i], 1)) }
		worst := 0.0
		for i := range n {
			worst = max(worst, share(i))
		}
		if worst <= maxUnknown || worst == 0 {
			return gone
		}
		for i := range n {
			if gone[i] == nil && share(i) == worst {
				gone[i] = fmt.Errorf("%w: %d of %d comparisons have no answer, more than the share %v of max_unknown: %w",
					classOf(causes[i]), unknown[i], made[i], maxUnknown, causes[i])
			}
		}
	}
}

// heavier prefers a cause that asking again may mend.
func heavier(a, b error) error {
	if a == nil || errors.Is(a, rewards.BadInput) {
		return b
	}
	return a
}

// classOf is BadInput where the engine refused all questions, else InvalidScore.
func classOf(cause error) rewards.Class {
	if errors.Is(cause, rewards.BadInput) {
		return rewards.BadInput
	}
	return rewards.InvalidScore
}
