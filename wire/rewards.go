package wire

import (
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// Fetch requests the next chunk of a step's rewards: complete prompt groups that were not handed out before.
// The answer is a Rewards with the same Req.
type Fetch struct {
	// Req is the number of the client's request, from 1. The answer has the same number.
	Req   uint64        `json:"req"`
	Split rewards.Split `json:"split,omitempty"` // empty: train
	Step  int64         `json:"step"`
	// Chunk is the number of the chunk, from 0. A chunk that was handed out before has the same rows again. The
	// next new chunk is formed when enough groups are complete.
	Chunk int64 `json:"chunk"`
	// Groups is the number of groups in a chunk. The last chunk can have fewer groups, and so can a chunk whose
	// answer would exceed about 4 MiB. 0: all remaining groups, once the step has ended.
	Groups int64 `json:"groups,omitempty"`
	// Order is "completion" (the default: the groups that complete first) or "index" (the groups with the
	// lowest rows, in this order, even if other groups complete first).
	Order string `json:"order,omitempty"`
	// WaitMS is how long the server waits for enough groups before it answers that they are not complete. 0:
	// the server does not wait.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

func (m *Fetch) check() (f faults) {
	f.split(m.Split)
	f.need(m.Req > 0, "req must be 1 or more")
	f.need(m.Chunk >= 0 && m.Groups >= 0, "chunk %d and groups %d must not be negative", m.Chunk, m.Groups)
	f.need(m.WaitMS >= 0 && m.WaitMS <= MaxFetchWaitMS, "wait_ms is %d, want 0 to %d", m.WaitMS, MaxFetchWaitMS)
	f.need(slices.Contains([]string{"", ByCompletion, ByIndex}, m.Order), "order %q, want %s or %s", m.Order, ByCompletion, ByIndex)
	return f
}

// Orders in which groups are handed out.
const (
	ByCompletion = "completion"
	ByIndex      = "index"
)

// MaxFetchWaitMS is the maximum of WaitMS. To wait longer, a client repeats the Fetch.
const MaxFetchWaitMS = 60_000

// Policies at the deadline of a step.
const (
	// DeadlineMask hands out a row for every sample, with Valid false where there is no score.
	DeadlineMask = "mask"
	// DeadlineFail hands out no more rows: Rewards has the state failed and names the missing samples.
	DeadlineFail = "fail"
	// DeadlineShortfall hands out only the rows with a score or a replacement for it.
	DeadlineShortfall = "proceed_with_shortfall"
)

// States of a step.
const (
	StepOpen     = "open"     // samples or results are still missing
	StepComplete = "complete" // every expected sample has its final result
	StepShort    = "short"    // the step's deadline has passed, and samples are missing
	StepFailed   = "failed"   // the same under DeadlineFail
)

// Rewards is one chunk of a step's rewards in columns: row i of every column belongs to one sample. The rows
// are in the order of Indices; samples without an index come last, by ID.
type Rewards struct {
	Req   uint64        `json:"req"`
	Split rewards.Split `json:"split"`
	Step  int64         `json:"step"`
	// State is open, complete, short or failed.
	State string `json:"state"`
	// Chunk is the number of the chunk. Ready is false if the Groups were not complete within WaitMS: then
	// there are no rows, and the client may request the same chunk again.
	Chunk int64 `json:"chunk"`
	Ready bool  `json:"ready"`
	// Done means that this is the last chunk.
	Done bool `json:"done"`
	// Groups is the number of prompt groups in the chunk; a sample without a group counts as a group.
	Groups int64 `json:"groups"`

	// The numbers of the whole step so far. Expected is 0 if no client has declared a number. Missing counts
	// expected samples that have not arrived, Pending samples that have arrived and have no result.
	Expected int64 `json:"expected"`
	Arrived  int64 `json:"arrived"`
	Scored   int64 `json:"scored"`
	Failed   int64 `json:"failed"`
	Pending  int64 `json:"pending"`
	Missing  int64 `json:"missing"`

	IDs     []string `json:"ids,omitempty"`
	Indices []*int64 `json:"indices,omitempty"` // null: the sample has no index
	UIDs    []string `json:"uids,omitempty"`    // "": the sample belongs to no group
	// Scores are the rm_scores: the reward of each row; for a sample without a reward the replacement by its
	// failure policy, or null.
	Scores []*float64 `json:"rm_scores,omitempty"`
	// Valid (rm_valid) is true if the row has the sample's own reward.
	Valid    []bool            `json:"rm_valid,omitempty"`
	Outcomes []rewards.Outcome `json:"outcomes,omitempty"`
	// StepScores are the process rewards, if the reward has process rewards.
	StepScores [][]float64 `json:"step_scores,omitempty"`
	// Components are the numeric columns of reward_extra_info; null if a row has no value.
	Components map[string][]*float64 `json:"components,omitempty"`
	// Without contains the first 256 samples that have no result, or whose result is only that the deadline
	// passed. Without is set while Ready is false, and once the step has ended.
	Without []Missing `json:"without,omitempty"`
}

func (m *Rewards) check() (f faults) {
	f.split(m.Split)
	n := len(m.IDs)
	f.need(len(m.Indices) == n && len(m.UIDs) == n && len(m.Scores) == n && len(m.Valid) == n && len(m.Outcomes) == n,
		"columns of %d ids, %d indices, %d uids, %d rm_scores, %d rm_valid and %d outcomes, want equal lengths",
		n, len(m.Indices), len(m.UIDs), len(m.Scores), len(m.Valid), len(m.Outcomes))
	f.need(len(m.StepScores) == 0 || len(m.StepScores) == n, "%d step_scores for %d rows", len(m.StepScores), n)
	for name, column := range m.Components {
		f.need(len(column) == n, "component %q has %d values for %d rows", name, len(column), n)
	}
	return f
}

// Missing is a sample without a result. Unknown fields are absent.
type Missing struct {
	ID    string `json:"id,omitempty"`
	Index *int64 `json:"index,omitempty"`
	UID   string `json:"uid,omitempty"`
	// Stage is the stage of the sample: "not arrived", queued, published, running, waiting_for_group,
	// waiting_for_group_mean, expired.
	Stage string  `json:"stage"`
	AgeMS float64 `json:"age_ms,omitempty"` // since the arrival of the sample
	// Worker is the name of the worker that had the sample last.
	Worker string `json:"worker,omitempty"`
	// Members is the number of members of a group that have not arrived, if their ids are not known.
	Members int64 `json:"members,omitempty"`
}
