package trace

import (
	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/step"
)

// Reports are those of the steps that are over. Guarded by the gateway's mutex.
type Reports struct {
	of map[*step.Step]*sim.Report // nil until it is made
}

// NewReports returns no report.
func NewReports() *Reports { return &Reports{of: map[*step.Step]*sim.Report{}} }

// Expect says that a step is over and that its report will be Put.
func (r *Reports) Expect(st *step.Step) { r.of[st] = nil }

// Put keeps the report of a step; nil: there was nothing to measure. The report of a step
// that was forgotten meanwhile is nobody's.
func (r *Reports) Put(st *step.Step, rep *sim.Report) {
	if _, expected := r.of[st]; expected {
		r.of[st] = rep
	}
}

// Of is the report of a step; nil: it has none.
func (r *Reports) Of(st *step.Step) *sim.Report { return r.of[st] }

// Forget drops the report of a step that the book no longer has.
func (r *Reports) Forget(st *step.Step) { delete(r.of, st) }
