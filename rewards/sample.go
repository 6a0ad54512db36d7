package rewards

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Split distinguishes training rollouts from validation rollouts.
type Split string

// The two splits; the empty string means Train.
const (
	Train Split = "train"
	Val   Split = "val"
)

// Sample is one finished rollout. The field names are those of the trainers (verl, verl-omni,
// flow_grpo). A scorer must not change a Sample; its bytes are valid only until Score returns.
type Sample struct {
	// ID is unique within the sample's run and epoch.
	ID string `json:"id"`
	// Run is the name of the training run. Samples of several runs share one pool.
	Run string `json:"run,omitempty"`
	// Step is the trainer's global step.
	Step int64 `json:"step,omitempty"`
	// Split is "train" (the default) or "val".
	Split Split `json:"split,omitempty"`
	// Index is the row in the trainer's batch. It is nil if the trainer has none.
	Index *int64 `json:"index,omitempty"`
	// UID identifies the prompt group of the sample. It is empty if the sample has no group.
	UID string `json:"uid,omitempty"`
	// GroupSize is the number of samples of the group. 0 means unknown.
	GroupSize int `json:"group_size,omitempty"`
	// Reward is the name of the profile that scores the sample. The default is the run's profile.
	Reward string `json:"reward,omitempty"`
	// DataSource is the trainer's name for the data set.
	DataSource string `json:"data_source,omitempty"`
	// Prompt is the prompt of the generator.
	Prompt string `json:"prompt,omitempty"`
	// Response is the text of a text rollout.
	Response string `json:"response,omitempty"`
	// Media holds the output of a visual rollout, in order.
	Media []*Media `json:"-"`
	// GroundTruth is any JSON value. nil means absent.
	GroundTruth json.RawMessage `json:"ground_truth,omitempty"`
	// ExtraInfo is a JSON object with any other data from the trainer. nil means absent.
	ExtraInfo json.RawMessage `json:"extra_info,omitempty"`
	// Traceparent is the W3C trace context of the sender. It is empty if there is none.
	Traceparent string `json:"traceparent,omitempty"`
}

// HasGroup reports whether the sample belongs to a prompt group of two or more.
func (s *Sample) HasGroup() bool { return s.UID != "" && s.GroupSize > 1 }

// PromptUID returns the uid for the group of the samples with the given prompt, for trainers that
// send no uid (RM-Gallery groups by prompt). Two groups with the same prompt get the same uid.
func PromptUID(prompt string) string {
	sum := sha256.Sum256([]byte(prompt))
	return "prompt:" + hex.EncodeToString(sum[:12])
}

// Truth returns the ground truth if the ground truth is a JSON string.
func (s *Sample) Truth() (string, bool) {
	raw := bytes.TrimLeft(s.GroundTruth, " \t\r\n")
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var t string
	if err := json.Unmarshal(raw, &t); err != nil {
		return "", false
	}
	return t, true
}

// Visual returns the first image or video, or an error of class BadInput.
func (s *Sample) Visual() (*Media, error) {
	for _, m := range s.Media {
		if m.Kind == Image || m.Kind == Video {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%w: sample %q has no image or video", BadInput, s.ID)
}
