package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// Report compares one step with the best possible one. Durations are in seconds. The symbols are:
// gᵢ Generated, rᵢ service time, fᵢ finish (Returned, or else Scored), T = max gᵢ, W servers, U
// update. Every figure is over the samples that were answered, with a score or without, because a
// sample that failed after three attempts also kept the step waiting. Samples without an answer are
// omitted.
type Report struct {
	Samples int `json:"samples"`
	// Unscored is the number of samples without a score, answered or not.
	Unscored int `json:"unscored"`
	Servers  int `json:"servers"`
	// Missing is the number of declared samples that have no span, because they never arrived.
	Missing int `json:"missing"`
	// Rollout is T. Makespan is max fᵢ.
	Rollout  float64 `json:"rollout_s"`
	Makespan float64 `json:"makespan_s"`
	Update   float64 `json:"update_s"`

	// Exposed is E = max fᵢ − T, the reward time after the rollout. The other fields are the same
	// figure for the lower bound F* (E* = F* − T), for an ideal pull queue, and for scoring the
	// same samples after the rollout (R_batch).
	Exposed      float64 `json:"exposed_s"`
	BoundExposed float64 `json:"bound_exposed_s"`
	IdealExposed float64 `json:"ideal_exposed_s"`
	BatchExposed float64 `json:"batch_exposed_s"`

	// OverBound is the step time divided by the step time of the bound, (T+E+U)/(T+E*+U). OverIdeal
	// is the same ratio for the ideal queue. ExposedOverBound is E/E*. A ratio is nil if its
	// divisor is 0.
	OverBound        *float64 `json:"step_over_bound"`
	OverIdeal        *float64 `json:"step_over_ideal"`
	ExposedOverBound *float64 `json:"exposed_over_bound"`
	// Efficiency is the overlap efficiency η = 1 − E/R_batch. 1 means that all reward time was
	// hidden, 0 that scoring after the rollout would be as good, and a negative value that it would
	// be better. Efficiency is nil if R_batch is 0.
	Efficiency *float64 `json:"overlap_efficiency"`

	// Load is ρ = Σrᵢ/(W·T), the share of the pool that is busy during the rollout. Above 1 the
	// pool cannot keep up. Load is nil if T is 0.
	Load *float64 `json:"pool_load"`
	// Utilisation is Σrᵢ/(W·max fᵢ), nil if the makespan is 0.
	Utilisation *float64 `json:"pool_utilisation"`
	// Imbalance is the largest number of scored samples of a worker divided by the mean over the
	// workers in the trace. It is nil if the spans do not contain workers.
	Imbalance *float64 `json:"dispatch_imbalance"`
	// Peak is the maximum number of samples in service at the same time. If Peak is larger than
	// Servers, the trace contradicts itself, and the bound does not hold.
	Peak int `json:"peak_in_service"`

	// The stages of a sample, whose sum is fᵢ − gᵢ: Accept is Queued − gᵢ, Wait is Started − Queued
	// (or Started − gᵢ if Queued was not recorded), Score is Scored − Started, and Return is
	// Returned − Scored. A stage that no sample has recorded is nil.
	Accept *Quantiles `json:"accept_s,omitempty"`
	Wait   *Quantiles `json:"wait_s,omitempty"`
	Score  *Quantiles `json:"score_s,omitempty"`
	Return *Quantiles `json:"return_s,omitempty"`
	// Overhead is (fᵢ − gᵢ) − rᵢ, the time outside the scorer.
	Overhead *Quantiles `json:"overhead_s,omitempty"`
	// Stages are parts of these stages by name, as recorded in Span.Stages: claim, decode,
	// batch_wait, component/<key>.
	Stages map[string]Quantiles `json:"stages_s,omitempty"`

	// Retries is the number of attempts after a failed one. Backups is the number of attempts that
	// were started beside a running one, and BackupsWon the number of those that finished first.
	// BackupWasted is the time in seconds that servers spent on the other attempts of the samples
	// with a backup.
	Retries      int     `json:"retries"`
	Backups      int     `json:"backups"`
	BackupsWon   int     `json:"backups_won"`
	BackupWasted float64 `json:"backups_wasted_s"`

	// Tail are the samples that finished last, the last one first; at most 5.
	Tail []Late `json:"tail,omitempty"`
}

// Late is one of the samples that finished last. Stages that were not recorded are absent.
type Late struct {
	ID     string `json:"id"`
	UID    string `json:"uid,omitempty"`
	Worker string `json:"worker,omitempty"`
	// Outcome is the outcome of a sample without a score.
	Outcome  string  `json:"outcome,omitempty"`
	Finished float64 `json:"finished_s"`
	Attempts int     `json:"attempts,omitempty"`
	// Stages are seconds by name: accept, wait, score, return, and the stages of Span.Stages. For a
	// sample without a score, unscored is the total time after accept.
	Stages map[string]float64 `json:"stages_s"`
}

// Quantiles summarises a duration over the samples that recorded it. Percentiles are by nearest
// rank.
type Quantiles struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Measure computes the report of a trace. It fails with ErrTrace if Validate fails or if no sample
// was answered.
func Measure(t Trace) (Report, error) {
	if err := t.Validate(); err != nil {
		return Report{}, err
	}
	spans := slices.DeleteFunc(slices.Clone(t.Spans), func(s Span) bool { return !s.answered() })
	if len(spans) == 0 {
		return Report{}, fmt.Errorf("%w: none of its %d samples was answered", ErrTrace, len(t.Spans))
	}
	scored := slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return !s.HasScore() })
	rep := Report{
		Samples: len(t.Spans), Unscored: len(t.Spans) - len(scored), Servers: t.Servers, Update: t.Update,
		Peak: peak(spans), Imbalance: imbalance(scored), Missing: max(0, t.Expected-len(t.Spans)),
	}
	g, r, work := make([]float64, len(spans)), make([]float64, len(spans)), 0.0
	for i, s := range spans {
		g[i], r[i] = s.Generated, s.Work()
		work += r[i]
		rep.Rollout = max(rep.Rollout, g[i])
		rep.Makespan = max(rep.Makespan, s.finish())
	}
	if err := rep.compare(g, r); err != nil {
		return Report{}, err
	}
	rep.Load = over(work, float64(t.Servers)*rep.Rollout)
	rep.Utilisation = over(work, float64(t.Servers)*rep.Makespan)
	rep.stages(spans)
	rep.attempts(t.Spans)
	rep.Tail = tail(spans)
	return rep, nil
}

// compare sets the exposed times and their ratios.
func (rep *Report) compare(g, r []float64) error {
	bound, err := sim.LowerBound(g, r, rep.Servers)
	if err != nil {
		return err
	}
	ideal, err := sim.IdealQueue(g, r, rep.Servers)
	if err != nil {
		return err
	}
	batch, err := sim.BatchAfterRollout(g, r, rep.Servers)
	if err != nil {
		return err
	}
	rep.Exposed = rep.Makespan - rep.Rollout
	rep.BoundExposed = bound - rep.Rollout
	rep.IdealExposed = ideal.Exposed()
	rep.BatchExposed = batch.Exposed()
	rep.OverBound = over(rep.Makespan+rep.Update, bound+rep.Update)
	rep.OverIdeal = over(rep.Makespan+rep.Update, ideal.Makespan+rep.Update)
	rep.ExposedOverBound = over(rep.Exposed, rep.BoundExposed)
	rep.Efficiency = rep.EfficiencyAgainst(rep.BatchExposed)
	return nil
}

// EfficiencyAgainst returns the overlap efficiency relative to a measured reward phase of batch
// seconds, instead of the simulated one. It is nil if batch is 0.
func (rep *Report) EfficiencyAgainst(batch float64) *float64 {
	share := over(rep.Exposed, batch)
	if share == nil {
		return nil
	}
	return new(1 - *share)
}

// over divides; nil stands for a quotient that does not exist.
func over(a, b float64) *float64 {
	q := a / b
	if b <= 0 || math.IsInf(q, 0) || math.IsNaN(q) {
		return nil
	}
	return &q
}

// peak counts the samples in service. One that starts as another is scored does
// not overlap it.
func peak(spans []Span) int {
	type change struct {
		at float64
		by int
	}
	changes := make([]change, 0, 2*len(spans))
	for _, s := range spans {
		if s.Scored != nil && *s.Scored > *s.Started {
			changes = append(changes, change{*s.Started, 1}, change{*s.Scored, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by))
	})
	now, most := 0, 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}

func imbalance(spans []Span) *float64 {
	if len(spans) == 0 {
		return nil
	}
	count, most := make(map[string]int), 0
	for _, s := range spans {
		if s.Worker == "" {
			return nil
		}
		count[s.Worker]++
		most = max(most, count[s.Worker])
	}
	return new(float64(most) * float64(len(count)) / float64(len(spans)))
}
