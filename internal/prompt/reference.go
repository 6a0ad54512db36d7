package prompt

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// The roots of a path to the reference.
const (
	rootTruth = "ground_truth"
	rootExtra = "extra_info"
)

// CheckReference returns an error if path is not a valid path of a reference answer.
func CheckReference(path string) error {
	root, rest, deeper := strings.Cut(path, ".")
	switch {
	case path == "", root == rootTruth && !deeper, (root == rootTruth || root == rootExtra) && rest != "":
		return nil
	}
	return fmt.Errorf("reference: %q is not a path, want ground_truth, ground_truth.<path> or extra_info.<path>", path)
}

// Reference returns the reference answer for the members of a group: the text at the path, such as
// extra_info.y.0.content, of the first member that has one. If no member has one, or if the
// reference is longer than MaxText, the error wraps rewards.BadInput.
func Reference(path string, g *rewards.Group) (string, error) {
	root, rest, _ := strings.Cut(path, ".")
	for _, m := range g.Members {
		raw := m.Sample.ExtraInfo
		if root == rootTruth {
			raw = m.Sample.GroundTruth
		}
		switch v, ok := walk(raw, rest).(string); {
		case !ok || strings.TrimSpace(v) == "":
		case len(v) > MaxText:
			return "", fmt.Errorf("%w: the reference of group %q has %d bytes, a judge is shown at most %d", rewards.BadInput, g.UID, len(v), MaxText)
		default:
			return v, nil
		}
	}
	return "", fmt.Errorf("%w: group %q of the validation split has no text at %s to compare with", rewards.BadInput, g.UID, path)
}

// walk follows a path of names and indexes, "y.0.content", through JSON; nil where it
// does not lead. Names are compared exactly.
func walk(raw json.RawMessage, path string) any {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	if path == "" {
		return v
	}
	for step := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}
