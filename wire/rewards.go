package wire

import (
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// Fetch asks for the next chunk of a step's rewards: complete prompt groups that were not
// handed out before. The answer is Rewards with the same Req.
type Fetch struct {
	// Req numbers the client's questions, from 1; the answer has the same.
	Req   uint64        `json:"req"`
	Split rewards.Split `json:"split,omitempty"` // empty: train
	Step  int64         `json:"step"`
	// Chunk is the number of the chunk, from 0. One that was handed out is answered with
	// the same rows again; the one after the last is made when enough groups are complete.
	Chunk int64 `json:"chunk"`
	// Groups is how many groups make a chunk; fewer come in the last one, and where an
	// answer would exceed about 4 MiB. 0: all that are left, once the step is over.
	Groups int64 `json:"groups,omitempty"`
	// Order is "completion" (whichever groups are complete first; the default) or "index"
	// (the groups with the lowest rows, in this order, whichever are complete first).
	Order string `json:"order,omitempty"`
	// WaitMS is how long the server waits for enough groups before it answers that they are
	// not there yet; 0: not at all.
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

// MaxFetchWaitMS is the longest wait of one Fetch: a client asks again.
const MaxFetchWaitMS = 60_000

// Policies at the deadline of a step.
const (
	// DeadlineMask hands out a row for every sample, with Valid false where there is no score.
	DeadlineMask = "mask"
	// DeadlineFail hands out nothing more: Rewards has the state failed and names who is missing.
	DeadlineFail = "fail"
	// DeadlineShortfall hands out only the rows that have a score, or one in its place.
	DeadlineShortfall = "proceed_with_shortfall"
)

// States of a step.
const (
	StepOpen     = "open"     // more is to come
	StepComplete = "complete" // every expected sample has its final result
	StepShort    = "short"    // its deadline has passed; samples are missing
	StepFailed   = "failed"   // likewise, under DeadlineFail
)

// Rewards is one chunk of a step's rewards, as columns: row i of every column is one
// sample. The rows are in order of Indices, those without an index last, by ID.
type Rewards struct {
	Req   uint64        `json:"req"`
	Split rewards.Split `json:"split"`
	Step  int64         `json:"step"`
	// State is open, complete, short or failed.
	State string `json:"state"`
	// Chunk is its number. Ready is false where Groups were not complete within the wait:
	// there are no rows then, and the same chunk may be asked for again.
	Chunk int64 `json:"chunk"`
	Ready bool  `json:"ready"`
	// Done says that this was the last chunk.
	Done bool `json:"done"`
	// Groups is how many prompt groups the chunk holds; a sample without a group is one.
	Groups int64 `json:"groups"`

	// Of the whole step, now. Expected is 0 where nobody has said. Missing counts samples
	// that were expected and have not come, Pending those that came and have no result.
	Expected int64 `json:"expected"`
	Arrived  int64 `json:"arrived"`
	Scored   int64 `json:"scored"`
	Failed   int64 `json:"failed"`
	Pending  int64 `json:"pending"`
	Missing  int64 `json:"missing"`

	IDs     []string `json:"ids,omitempty"`
	Indices []*int64 `json:"indices,omitempty"` // null: the sample had none
	UIDs    []string `json:"uids,omitempty"`    // "" outside of a group
	// Scores are the rm_scores: the reward; for a sample without one what its policy put in
	// its place, or null.
	Scores []*float64 `json:"rm_scores,omitempty"`
	// Valid is true where the row is the sample's own reward (rm_valid).
	Valid    []bool            `json:"rm_valid,omitempty"`
	Outcomes []rewards.Outcome `json:"outcomes,omitempty"`
	// StepScores are the process rewards, where the reward has any.
	StepScores [][]float64 `json:"step_scores,omitempty"`
	// Components are the numeric columns of reward_extra_info; null where a row has none.
	Components map[string][]*float64 `json:"components,omitempty"`
	// Without names samples that have no result, or none but that the deadline passed: the
	// first 256 of them. Only once the step has ended, or while Ready is false.
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

// Missing is a sample without a result. What is not known of it is absent.
type Missing struct {
	ID    string `json:"id,omitempty"`
	Index *int64 `json:"index,omitempty"`
	UID   string `json:"uid,omitempty"`
	// Stage is where it was: "not arrived", queued, published, running, waiting_for_group, waiting_for_group_mean.
	Stage string  `json:"stage"`
	AgeMS float64 `json:"age_ms,omitempty"` // since its arrival
	// Worker is who had it last.
	Worker string `json:"worker,omitempty"`
	// Members is how many members of a group have not come, where their ids are not known.
	Members int64 `json:"members,omitempty"`
}
