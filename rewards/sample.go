package rewards

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Split tells training rollouts from validation rollouts.
type Split string

// The two splits; the empty string means Train.
const (
	Train Split = "train"
	Val   Split = "val"
)

// Sample is one finished rollout. The field names are those of the trainers
// (verl, verl-omni, flow_grpo). A Sample that a scorer receives is read-only and
// its bytes are valid only until Score returns.
type Sample struct {
	// ID names the sample uniquely within its run and epoch.
	ID string `json:"id"`
	// Run names the training run; samples of several runs share one pool.
	Run string `json:"run,omitempty"`
	// Step is the trainer's global step.
	Step int64 `json:"step,omitempty"`
	// Split is "train" (default) or "val".
	Split Split `json:"split,omitempty"`
	// Index is the row in the trainer's batch; nil where the trainer has none.
	Index *int64 `json:"index,omitempty"`
	// UID names the prompt group the sample belongs to; empty: no group.
	UID string `json:"uid,omitempty"`
	// GroupSize is the number of samples of the group; 0: unknown.
	GroupSize int `json:"group_size,omitempty"`
	// Reward names the profile that scores the sample; empty: the run's.
	Reward string `json:"reward,omitempty"`
	// DataSource is the trainer's name of the data set.
	DataSource string `json:"data_source,omitempty"`
	// Prompt is what the generator was asked for.
	Prompt string `json:"prompt,omitempty"`
	// Response is the text a text rollout produced.
	Response string `json:"response,omitempty"`
	// Media holds what a visual rollout produced, in order.
	Media []*Media `json:"-"`
	// GroundTruth is any JSON value; nil: absent.
	GroundTruth json.RawMessage `json:"ground_truth,omitempty"`
	// ExtraInfo is a JSON object with whatever else the trainer passes on; nil: absent.
	ExtraInfo json.RawMessage `json:"extra_info,omitempty"`
	// Traceparent is the W3C trace context of whoever sent the sample; empty: there is none.
	Traceparent string `json:"traceparent,omitempty"`
}

// HasGroup reports whether the sample belongs to a prompt group of two or more.
func (s *Sample) HasGroup() bool { return s.UID != "" && s.GroupSize > 1 }

// PromptUID names the group of the samples with that prompt, for trainers that name
// none (RM-Gallery groups by prompt): two groups with the same prompt are one.
func PromptUID(prompt string) string {
	sum := sha256.Sum256([]byte(prompt))
	return "prompt:" + hex.EncodeToString(sum[:12])
}

// Truth returns the ground truth if it is a JSON string.
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
