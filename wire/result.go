package wire

import (
	"github.com/rewardloop/rewardloop/rewards"
)

// Result is the one final answer to a sample, as a worker hands it to the gateway
// and as the gateway sends it to the client (as a text message whose "type" is
// "result").
type Result struct {
	Type string `json:"type"` // always "result"
	ID   string `json:"id"`
	// Seq counts the results of a session from 1; got{seq} confirms all up to it.
	Seq     uint64          `json:"seq"`
	Outcome rewards.Outcome `json:"outcome"`
	// RewardScore is null unless the outcome is scored.
	RewardScore *float64 `json:"reward_score"`
	// StepScores are process rewards, one for each step of the response in their order;
	// nil: the reward has none, or the outcome is not scored.
	StepScores []float64 `json:"step_scores,omitempty"`
	// ExtraInfo holds scalars only: number, bool, string, or null for an absent number.
	ExtraInfo map[string]any `json:"reward_extra_info,omitempty"`
	// Details holds whatever else the scorers said; it is not for the trainer's batch.
	Details map[string]any `json:"details,omitempty"`
	// Errors holds every failure on the way, by term where there is one.
	Errors []rewards.TermError `json:"errors,omitempty"`
	// Substitute is what the profile or the client asked to put in place of a
	// missing score; the score itself stays null.
	Substitute *Substitute `json:"substitute,omitempty"`
	// TimingMS holds milliseconds by stage: queue, claim, score, total, term/<key>, and
	// where there were any decode, batch_wait and infer, which add up over the terms.
	TimingMS map[string]float64 `json:"timing_ms,omitempty"`
	Worker   string             `json:"worker,omitempty"`
	Attempts int                `json:"attempts"`
	// Group holds the statistics of the prompt group once it is complete.
	Group *GroupStats `json:"group,omitempty"`

	// The rest is between worker and gateway and never reaches a client.

	Attempt AttemptKey `json:"-"`
	// Partial is what a sample's own terms said, where it has to wait for its group;
	// nothing else is decided then.
	Partial []rewards.TermResult `json:"-"`
	// Members are the results of a whole group, in the answer to its ticket.
	Members []*Result        `json:"-"`
	Pending *rewards.Pending `json:"-"`
	// Values holds the term values of a scored sample for the group's means.
	Values map[string]float64 `json:"-"`
}

// Substitute says what stands in for the score of a failed sample.
type Substitute struct {
	// Policy is group_mean, zero or value.
	Policy string `json:"policy"`
	// Value is null if the policy found none: the group has no valid member.
	Value *float64 `json:"value"`
}

// GroupStats describes a prompt group that has closed.
type GroupStats struct {
	UID    string `json:"uid"`
	Size   int    `json:"size"`
	Scored int    `json:"scored"`
	Failed int    `json:"failed"`
	// Mean and Std (population) of the scored members' rewards; null without any.
	Mean *float64 `json:"mean"`
	Std  *float64 `json:"std"`
	// ZeroStd says that two or more members were scored and all got the same
	// reward: the group carries no signal.
	ZeroStd bool `json:"zero_std"`
	// Missing is how many members never came before the group's deadline.
	Missing int `json:"missing"`
}
