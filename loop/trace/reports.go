package trace

import (
	"github.com/rewardloop/rewardloop/loop/step"
)

// Reports contains the reports of the finished steps. It is guarded by the gateway's mutex.
type Reports struct {
	of map[*step.Step]*report
}

// report is that of one step.
type report struct {
	made chan struct{} // closed once it is made, or nobody needs it any more
	over bool          // made is closed
	what *Report       // nil: there is nothing to measure, or not yet
}

func (r *report) end() {
	if !r.over {
		r.over = true
		close(r.made)
	}
}

// NewReports returns an empty Reports.
func NewReports() *Reports { return &Reports{of: map[*step.Step]*report{}} }

// Expect records that a step has ended and that Put will be called with its report.
func (r *Reports) Expect(st *step.Step) { r.of[st] = &report{made: make(chan struct{})} }

// Put stores the report of a step; rep is nil if there is nothing to measure. Put does nothing if
// the step was forgotten meanwhile.
func (r *Reports) Put(st *step.Step, rep *Report) {
	if it := r.of[st]; it != nil {
		it.what = rep
		it.end()
	}
}

// Of returns the report of a step, or nil if it has none.
func (r *Reports) Of(st *step.Step) *Report {
	if it := r.of[st]; it != nil {
		return it.what
	}
	return nil
}

// Made returns a channel that is closed when the report of a finished step is stored, or nil if the
// step has not ended or has nothing to measure.
func (r *Reports) Made(st *step.Step) <-chan struct{} {
	if it := r.of[st]; it != nil {
		return it.made
	}
	return nil
}

// Forget deletes the report of a step that the book no longer has.
func (r *Reports) Forget(st *step.Step) {
	if it := r.of[st]; it != nil {
		it.end()
		delete(r.of, st)
	}
}
