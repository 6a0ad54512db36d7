package judge

import (
	"encoding/json"

	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// captionOrTruth is the prompt of a sample or, where it has none, a ground truth that is
// a string.
func captionOrTruth(s *rewards.Sample) (string, error) {
	if _, ok := prompt.Text(s, prompt.Prompt); !ok {
		if truth, _ := s.Truth(); truth != "" {
			return truth, prompt.Bounded(s, "prompt", truth) // it names the sample
		}
	}
	return prompt.Of(s, prompt.Prompt) // it names the sample
}

// text is a JSON string, or empty.
func text(raw json.RawMessage) string {
	var v string
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return ""
	}
	return v
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
