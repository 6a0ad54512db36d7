package step

import (
	"iter"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Row is the record of one sample of a step as its trainer reads it: the sample's result and times.
// A Row outlives the sample's entry and its remembered result. A final Row does not change any
// more. The methods that record something do nothing on a nil Row, which stands for a sample
// without a row.
type Row struct {
	id     string
	index  *int64
	uid    string
	group  *rowGroup // nil once the step is forgotten, and of a sample that never came
	flight Flight    // nil once the row is final, and of a sample that never came

	outcome  rewards.Outcome
	score    *float64
	fallback *float64 // of a sample without a score, by its policy
	steps    []float64
	extra    map[string]any // shared with the result; read only
	// atDeadline says that the deadline of the step ended the sample.
	atDeadline bool

	// The spans. Started and scored are those of the attempt that counted.
	received, queued, started, scored, returned time.Time
	worker                                      string
	attempts                                    []Attempt
	stages                                      map[string]float64 // milliseconds, shared with the result; read only
}

// Flight is a sample without a result.
type Flight interface {
	// Whereabouts returns the stage of the sample, its time of arrival, and the worker that claimed
	// it last; "" if no worker has claimed it.
	Whereabouts() (stage string, arrived time.Time, worker string)
}

// Attempt is one attempt of a worker to score a sample.
type Attempt struct {
	Worker       string
	Began, Ended time.Time
	Backup       bool
	Outcome      string
}

// value is what stands in rm_scores, nil for nothing.
func (r *Row) value() *float64 {
	if r.score != nil {
		return r.score
	}
	return r.fallback
}

// maxAttemptsKept bounds the attempts a row remembers.
const maxAttemptsKept = 16

// Tried records a finished attempt. The first 16 attempts are kept.
func (r *Row) Tried(a Attempt) {
	if r != nil && len(r.attempts) < maxAttemptsKept {
		r.attempts = append(r.attempts, a)
	}
}

// Counted records the attempt whose answer counts.
func (r *Row) Counted(worker string, began, ended time.Time) {
	if r != nil {
		r.started, r.scored, r.worker = began, ended, worker
	}
}

// Scored records the time at which the sample's prompt group was scored, after the sample's own
// components.
func (r *Row) Scored(at time.Time) {
	if r != nil {
		r.scored = at
	}
}

// settle makes a row final.
func (r *Row) settle(now time.Time, res *wire.Result, closed bool) {
	r.flight = nil
	r.outcome, r.score, r.steps = res.Outcome, res.RewardScore, res.StepScores
	if res.Fallback != nil {
		r.fallback = res.Fallback.Value
	}
	r.extra, r.stages, r.returned = res.ExtraInfo, res.TimingMS, now
	r.atDeadline = closed && res.Outcome == rewards.OutcomeExpired
	if r.score == nil {
		r.started, r.scored = time.Time{}, time.Time{}
	}
}

// Record contains the times of a sample from its row.
type Record struct {
	ID, UID string
	// Outcome is empty while the sample has no result.
	Outcome rewards.Outcome
	// Received is the time of the sample's first byte, Queued the time at which the sample was
	// complete, and Returned the time of its result. Started and Scored are the times of the
	// attempt that counted; they are zero if there is none.
	Received, Queued, Started, Scored, Returned time.Time
	Worker                                      string             // worker of the attempt that counted; "": no attempt counted
	Attempts                                    []Attempt          // the first 16; read only
	Stages                                      map[string]float64 // milliseconds by stage; read only
}

// Records returns the times of the step's samples in order of arrival. A step that was forgotten
// has no records.
func (st *Step) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		if st.assembly == nil {
			return
		}
		for _, r := range st.assembly.rows {
			if !yield(Record{
				ID: r.id, UID: r.uid, Outcome: r.outcome, Received: r.received, Queued: r.queued, Started: r.started, Scored: r.scored,
				Returned: r.returned, Worker: r.worker, Attempts: r.attempts, Stages: r.stages,
			}) {
				return
			}
		}
	}
}
