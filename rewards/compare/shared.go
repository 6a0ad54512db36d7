package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxText bounds what of a sample goes into a question, each of its texts: 256 KiB
// are more than the context of any judge that ships.
const maxText = 256 << 10

// shared is what the template wants of the whole group: the first member that has it
// gives it, for all answer the same prompt.
func shared(t template, g *rewards.Group) (map[string]string, error) {
	values := map[string]string{}
	for name, find := range map[string]func(*rewards.Sample) string{
		inPrompt: caption, inGroundTruth: groundTruth, inDataSource: func(s *rewards.Sample) string { return s.DataSource },
	} {
		if !t.has(name) {
			continue
		}
		for _, m := range g.Members {
			if values[name] == "" {
				values[name] = find(m.Sample)
			}
		}
		what := strings.Trim(name, "{}")
		switch v := values[name]; {
		case v == "":
			return nil, fmt.Errorf("%w: group %q has no %s", rewards.BadInput, g.UID, what)
		case len(v) > maxText:
			return nil, fmt.Errorf("%w: the %s of group %q has %d bytes, a judge is shown at most %d", rewards.BadInput, what, g.UID, len(v), maxText)
		}
	}
	return values, nil
}

// caption is what the group was asked for: extra_info.prompt, extra_info.raw_prompt,
// each where it is a text, then the sample's prompt.
func caption(s *rewards.Sample) string {
	for _, path := range []string{"prompt", "raw_prompt"} {
		if v, ok := walk(s.ExtraInfo, path).(string); ok && v != "" {
			return v
		}
	}
	return s.Prompt
}

// groundTruth is a ground truth as a judge reads it: a string as it is, anything else as
// JSON.
func groundTruth(s *rewards.Sample) string {
	if v, ok := s.Truth(); ok {
		return v
	}
	if raw := bytes.TrimSpace(s.GroundTruth); !bytes.Equal(raw, []byte("null")) {
		return string(raw)
	}
	return ""
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
		case len(v) > maxText:
			return "", fmt.Errorf("%w: the reference of group %q has %d bytes, a judge is shown at most %d", rewards.BadInput, g.UID, len(v), maxText)
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
