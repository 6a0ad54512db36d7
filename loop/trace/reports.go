package trace

import (
	"github.com/rewardloop/rewardloop/loop/step"
)

// Reports are those of the steps that are over. Guarded by the gateway's mutex.
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

// NewReports returns no report.
func NewReports() *Reports { return &Reports{of: map[*step.Step]*report{}} }

// Expect says that a step is over and that its report will be Put.
func (r *Reports) Expect(st *step.Step) { r.of[st] = &report{made: make(chan struct{})} }

// Put keeps the report of a step; nil: there was nothing to measure. The report of a step
// that was forgotten meanwhile is nobody's.
func (r *Reports) Put(st *step.Step, rep *Report) {
	if it := r.of[st]; it != nil {
		it.what = rep
		it.end()
	}
}

// Of is the report of a step; nil: it has none.
func (r *Reports) Of(st *step.Step) *Report {
	if it := r.of[st]; it != nil {
		return it.what
	}
	return nil
}

// Made is closed once the report of a step that is over is made; nil: the step is not over,
// or has nothing to measure.
func (r *Reports) Made(st *step.Step) <-chan struct{} {
	if it := r.of[st]; it != nil {
		return it.made
	}
	return nil
}

// Forget drops the report of a step that the book no longer has.
func (r *Reports) Forget(st *step.Step) {
	if it := r.of[st]; it != nil {
		it.end()
		delete(r.of, st)
	}
}
