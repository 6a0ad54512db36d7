package step

import (
	"iter"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Row is one sample of a step as its trainer will read it: what came of it, and when.
// It outlives the sample's entry and its remembered result. What a final row holds does not
// change any more. The methods that record do nothing on nil, which is the row of a sample
// that has none.
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

// Flight is a sample without a result, as its row asks for it.
type Flight interface {
	// Whereabouts are the stage of the sample, when it arrived, and the worker that claimed
	// it last; "": none has it.
	Whereabouts() (stage string, arrived time.Time, worker string)
}

// Attempt is one worker's try at a sample.
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

// Tried records an attempt that has ended.
func (r *Row) Tried(a Attempt) {
	if r != nil && len(r.attempts) < maxAttemptsKept {
		r.attempts = append(r.attempts, a)
	}
}

// Counted records the attempt whose answer is the one that counts.
func (r *Row) Counted(worker string, began, ended time.Time) {
	if r != nil {
		r.started, r.scored, r.worker = began, ended, worker
	}
}

// Scored records when the sample's prompt group was scored, after its own components.
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

// Record is what a row says of its sample's times.
type Record struct {
	ID, UID string
	// Outcome is empty while the sample has no result.
	Outcome rewards.Outcome
	// Received is when its first byte came, Queued when it was here whole, Returned when it
	// had its result. Started and Scored are those of the attempt that counted; zero: there
	// is none.
	Received, Queued, Started, Scored, Returned time.Time
	Worker                                      string             // of the attempt that counted; "": there is none
	Attempts                                    []Attempt          // the first 16; read only
	Stages                                      map[string]float64 // milliseconds by stage; read only
}

// Records are the times of the step's samples, in order of arrival; none of a step that was
// forgotten.
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
