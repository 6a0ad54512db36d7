package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// The placeholders for texts of a sample.
const (
	// Prompt is the placeholder for the prompt, found as in verl-omni's unified_reward.py:
	// extra_info.prompt or extra_info.raw_prompt, if it is a text; otherwise the sample's prompt,
	// which that code does not have.
	Prompt = "{prompt}"
	// Response is the placeholder for the text of a text rollout. A rollout that ended at once has
	// an empty response; there is no response if the sample has media instead, or if it is empty.
	Response = "{response}"
	// GroundTruth is the placeholder for the ground truth: a string unchanged, and any other value
	// as JSON.
	GroundTruth = "{ground_truth}"
	// DataSource is the placeholder for the name of the sample's data set.
	DataSource = "{data_source}"
)

// MaxText is the maximum length in bytes of each text of a sample in a question. 256 KiB are more
// than the context of any judge that ships.
const MaxText = 256 << 10

// Text returns the text of a sample for a placeholder, of any length. ok is false if the sample has
// no such text, and for other placeholders.
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

// Of returns the text of a sample for a placeholder. If the sample has no such text, or if it is
// longer than MaxText, the error wraps rewards.BadInput.
func Of(s *rewards.Sample, placeholder string) (string, error) {
	what := strings.Trim(placeholder, "{}")
	text, ok := Text(s, placeholder)
	if !ok {
		return "", fmt.Errorf("%w: sample %q has no %s", rewards.BadInput, s.ID, what)
	}
	return text, Bounded(s, what, text)
}

// Bounded returns an error that wraps rewards.BadInput if text is longer than MaxText.
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

// ExtraInfo returns the sample's extra_info by name, or an empty map if it is not an object. Names
// are compared exactly, unlike those of a struct.
func ExtraInfo(s *rewards.Sample) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if len(s.ExtraInfo) > 0 && json.Unmarshal(s.ExtraInfo, &m) != nil {
		return nil
	}
	return m
}
