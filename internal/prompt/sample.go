package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// The placeholders that stand for a text of a sample.
const (
	// Prompt is what was asked for, found as verl-omni's unified_reward.py finds it:
	// extra_info.prompt, extra_info.raw_prompt, each where it is a text; then the
	// sample's prompt, which that code has no name for.
	Prompt = "{prompt}"
	// Response is the text that a text rollout produced. One that ended at once has an
	// empty response; it is missing where the sample carries media instead, or nothing
	// at all.
	Response = "{response}"
	// GroundTruth is a string as it is, and anything else as JSON.
	GroundTruth = "{ground_truth}"
	// DataSource is the name of the sample's data set.
	DataSource = "{data_source}"
)

// MaxText bounds what of a sample goes into a question, each of its texts, in bytes:
// 256 KiB are more than the context of any judge that ships.
const MaxText = 256 << 10

// Text is what a placeholder stands for in a sample, of any length. ok is false where
// the sample lacks it, and for a placeholder that is none of those above.
func Text(s *rewards.Sample, placeholder string) (text string, ok bool) {
	switch placeholder {
	case Prompt:
		text = caption(s)
		return text, text != ""
	case Response:
		return s.Response, s.Response != "" || len(s.Media) == 0 && (s.Prompt != "" || len(s.GroundTruth) > 0)
	case GroundTruth:
		if text, ok = s.Truth(); ok {
			return text, true
		}
		raw := bytes.TrimSpace(s.GroundTruth)
		if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
			return "", false
		}
		return string(raw), true
	case DataSource:
		return s.DataSource, s.DataSource != ""
	}
	return "", false
}

// Of is what a placeholder stands for in a sample. What the sample lacks is BadInput, and
// so is more than MaxText.
func Of(s *rewards.Sample, placeholder string) (string, error) {
	what := strings.Trim(placeholder, "{}")
	text, ok := Text(s, placeholder)
	if !ok {
		return "", fmt.Errorf("%w: sample %q has no %s", rewards.BadInput, s.ID, what)
	}
	return text, Bounded(s, what, text)
}

// Bounded is BadInput for a text of a sample that is longer than MaxText.
func Bounded(s *rewards.Sample, what, text string) error {
	if len(text) > MaxText {
		return fmt.Errorf("%w: the %s of sample %q has %d bytes, a judge is shown at most %d", rewards.BadInput, what, s.ID, len(text), MaxText)
	}
	return nil
}

func caption(s *rewards.Sample) string {
	info := ExtraInfo(s)
	for _, name := range []string{"prompt", "raw_prompt"} {
		var text string
		if raw := info[name]; len(raw) > 0 && json.Unmarshal(raw, &text) == nil && text != "" {
			return text
		}
	}
	return s.Prompt
}

// ExtraInfo is the sample's extra_info by name; empty where it is none or no object. Its
// names are compared exactly, unlike those of a struct.
func ExtraInfo(s *rewards.Sample) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if len(s.ExtraInfo) > 0 && json.Unmarshal(s.ExtraInfo, &m) != nil {
		return nil
	}
	return m
}
