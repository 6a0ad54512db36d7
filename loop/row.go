package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// row is one sample of a step as its trainer will read it: what came of it, and when.
// It outlives the sample's entry and its remembered result. Guarded by the manager's
// mutex; what a final row holds does not change any more.
type row struct {
	id    string
	index *int64
	uid   string
	entry *entry // nil once the row is final, and of a sample that never came

	outcome rewards.Outcome
	score   *float64
	standIn *float64 // of a sample without a score, by its policy
	steps   []float64
	extra   map[string]any // shared with the result; read only
	// atDeadline says that the deadline of the step ended the sample.
	atDeadline bool

	// The spans. Started and scored are those of the attempt that counted.
	received, queued, started, scored, returned time.Time
	worker                                      string
	attempts                                    []attempt
	stages                                      map[string]float64 // milliseconds, shared with the result; read only
}

// attempt is one worker's try at a sample.
type attempt struct {
	worker       string
	began, ended time.Time
	backup       bool
	outcome      string
}

// final reports whether the sample has its result.
func (r *row) final() bool { return r.outcome != "" }

// value is what stands in rm_scores, nil for nothing.
func (r *row) value() *float64 {
	if r.score != nil {
		return r.score
	}
	return r.standIn
}

// maxAttemptsKept bounds the attempts a row remembers.
const maxAttemptsKept = 16

// tried notes that a holder of the entry has ended its attempt.
func (e *entry) tried(h holder, now time.Time, outcome string) {
	if e.row == nil || len(e.row.attempts) >= maxAttemptsKept {
		return
	}
	e.row.attempts = append(e.row.attempts, attempt{worker: h.worker, began: h.since, ended: now, backup: h.backup, outcome: outcome})
}

// counted notes that this holder's answer is the one that counts.
func (e *entry) counted(h holder, now time.Time) {
	if e.row != nil {
		e.row.started, e.row.scored, e.row.worker = h.since, now, h.worker
	}
}

// settle makes a row final.
func (r *row) settle(now time.Time, res *wire.Result) (bytes int64) {
	e := r.entry
	r.entry = nil
	r.outcome, r.score, r.steps = res.Outcome, res.RewardScore, res.StepScores
	if res.Substitute != nil {
		r.standIn = res.Substitute.Value
	}
	r.extra, r.stages, r.returned = res.ExtraInfo, res.TimingMS, now
	r.atDeadline = e != nil && e.step.closed && res.Outcome == rewards.OutcomeExpired
	if r.score == nil {
		r.started, r.scored = time.Time{}, time.Time{}
	}
	own := *res
	own.Details = nil
	return sizeOf(&own)
}
