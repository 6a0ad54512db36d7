package judge

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxText bounds what of a sample goes into a question, each of its texts: 256 KiB
// are more than the context of any judge that ships.
const maxText = 256 << 10

// caption is what the picture was asked to show, found as verl-omni's
// unified_reward.py finds it: extra_info.prompt, extra_info.raw_prompt; then the
// sample's prompt, which that code has no name for; then, with truth, a ground truth
// that is a string.
func caption(s *rewards.Sample, truth bool) (string, error) {
	info := extraInfo(s)
	found := ""
	for _, name := range []string{"prompt", "raw_prompt"} {
		if found == "" {
			found = text(info[name])
		}
	}
	if found == "" {
		found = s.Prompt
	}
	if found == "" && truth {
		found, _ = s.Truth()
	}
	if found == "" {
		return "", fmt.Errorf("%w: sample %q has no prompt", rewards.BadInput, s.ID)
	}
	return found, bounded(s, "prompt", found)
}

func bounded(s *rewards.Sample, what, v string) error {
	if len(v) > maxText {
		return fmt.Errorf("%w: the %s of sample %q has %d bytes, a judge is shown at most %d", rewards.BadInput, what, s.ID, len(v), maxText)
	}
	return nil
}

// extraInfo is the sample's extra_info by name; empty where it is none or no object.
// Its names are compared exactly, unlike those of a struct.
func extraInfo(s *rewards.Sample) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if len(s.ExtraInfo) > 0 && json.Unmarshal(s.ExtraInfo, &m) != nil {
		return nil
	}
	return m
}

// text is a JSON string, or empty.
func text(raw json.RawMessage) string {
	var v string
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return ""
	}
	return v
}

// response is the text that is judged. A rollout that ended at once has an empty
// one; it is missing where the sample carries media instead, or nothing at all.
func response(s *rewards.Sample) (string, error) {
	if s.Response == "" && (len(s.Media) > 0 || (s.Prompt == "" && len(s.GroundTruth) == 0)) {
		return "", fmt.Errorf("%w: sample %q has no response", rewards.BadInput, s.ID)
	}
	return s.Response, bounded(s, "response", s.Response)
}

// groundTruth is a ground truth as a judge reads it: a string as it is, anything
// else as JSON.
func groundTruth(s *rewards.Sample) (string, error) {
	raw := bytes.TrimSpace(s.GroundTruth)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return "", fmt.Errorf("%w: sample %q has no ground_truth", rewards.BadInput, s.ID)
	}
	v, isText := s.Truth()
	if !isText {
		v = string(raw)
	}
	return v, bounded(s, "ground_truth", v)
}

// dataSource is the name of the sample's data set.
func dataSource(s *rewards.Sample) (string, error) {
	if s.DataSource == "" {
		return "", fmt.Errorf("%w: sample %q has no data_source", rewards.BadInput, s.ID)
	}
	return s.DataSource, bounded(s, "data_source", s.DataSource)
}

// hasVisual says whether the sample carries an image or a video.
func hasVisual(s *rewards.Sample) bool {
	_, err := s.Visual()
	return err == nil
}

// isVideo says whether what a judge is shown of the sample is a video.
func isVideo(s *rewards.Sample) bool {
	m, err := s.Visual()
	return err == nil && m.Kind == rewards.Video
}
