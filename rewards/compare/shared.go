package compare

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// shared is what the template wants of the whole group: the first member that has it
// gives it, for all answer the same prompt.
func shared(t prompt.Template, g *rewards.Group) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range ofGroup() {
		if !t.Has(name) {
			continue
		}
		for _, m := range g.Members {
			if values[name] == "" {
				values[name], _ = prompt.Text(m.Sample, name)
			}
		}
		what := strings.Trim(name, "{}")
		switch v := values[name]; {
		case v == "":
			return nil, fmt.Errorf("%w: group %q has no %s", rewards.BadInput, g.UID, what)
		case len(v) > prompt.MaxText:
			return nil, fmt.Errorf("%w: the %s of group %q has %d bytes, a judge is shown at most %d", rewards.BadInput, what, g.UID, len(v), prompt.MaxText)
		}
	}
	return values, nil
}

// The roots of a path to the reference.
const (
	rootTruth = "ground_truth"
	rootExtra = "extra_info"
)

// checkReference refuses a path that begins nowhere.
func checkReference(path string) error {
	root, rest, deeper := strings.Cut(path, ".")
	switch {
	case path == "", root == rootTruth && !deeper, (root == rootTruth || root == rootExtra) && rest != "":
		return nil
	}
	return fmt.Errorf("reference: %q leads nowhere, want ground_truth, ground_truth.<path> or extra_info.<path>", path)
}

// reference is the answer that members are held against: the text at the path, of the
// first member that has one.
func reference(path string, g *rewards.Group) (string, error) {
	root, rest, _ := strings.Cut(path, ".")
	for _, m := range g.Members {
		raw := m.Sample.ExtraInfo
		if root == rootTruth {
			raw = m.Sample.GroundTruth
		}
		switch v, ok := walk(raw, rest).(string); {
		case !ok || strings.TrimSpace(v) == "":
		case len(v) > prompt.MaxText:
			return "", fmt.Errorf("%w: the reference of group %q has %d bytes, a judge is shown at most %d", rewards.BadInput, g.UID, len(v), prompt.MaxText)
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
