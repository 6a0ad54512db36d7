package ocr

import (
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxTarget bounds a target in code points: the distance takes at most
// 2·maxTarget² steps, about 50 ms.
const maxTarget = 4096

// Target is the text a sample's picture should show, in this order: the first
// double-quoted span of a ground truth that is a string; with BareGroundTruth
// such a ground truth itself; the first double-quoted span of the prompt.
//
// A quote that is not closed takes the rest, as Python's split('"')[1] does; but
// not in a bare ground truth, where it may be an inch mark.
func (o Options) Target(s *rewards.Sample) (string, error) {
	target, err := o.find(s)
	if err != nil {
		return "", err
	}
	if n := len([]rune(target)); n > maxTarget {
		return "", fmt.Errorf("%w: sample %q wants a text of %d characters, at most %d are compared", rewards.BadInput, s.ID, n, maxTarget)
	}
	return target, nil
}

func (o Options) find(s *rewards.Sample) (string, error) {
	truth, isText := s.Truth()
	if isText {
		parts := strings.SplitN(truth, `"`, 3)
		if len(parts) == 3 || (len(parts) == 2 && !o.BareGroundTruth) {
			return parts[1], nil
		}
		if o.BareGroundTruth {
			return truth, nil
		}
	}
	if parts := strings.SplitN(s.Prompt, `"`, 3); len(parts) > 1 {
		return parts[1], nil
	}
	hint := ""
	if isText {
		hint = "; its ground_truth has no double quotes, bare_ground_truth: true would take it as it is"
	}
	return "", fmt.Errorf("%w: sample %q has no text between double quotes in ground_truth or prompt%s", rewards.BadInput, s.ID, hint)
}
