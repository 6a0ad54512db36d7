package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Report holds one step against what was possible. Durations are seconds. The
// symbols: gᵢ Generated, rᵢ service time, fᵢ finish (Returned, else Scored),
// T = max gᵢ, W servers, U update. Every figure is over the scored samples
// alone: where Unscored is not 0 the step is not finished, and the report says
// nothing about the time it would have taken.
type Report struct {
	Samples  int `json:"samples"`
	Unscored int `json:"unscored"`
	Servers  int `json:"servers"`
	// Rollout is T, Makespan is max fᵢ.
	Rollout  float64 `json:"rollout_s"`
	Makespan float64 `json:"makespan_s"`
	Update   float64 `json:"update_s"`

	// Exposed is E = max fᵢ − T, the reward time that nothing hid. The others are
	// the same figure of F* (E* = F* − T), of an ideal pull queue, and of scoring
	// the same samples after the rollout (R_batch).
	Exposed      float64 `json:"exposed_s"`
	BoundExposed float64 `json:"bound_exposed_s"`
	IdealExposed float64 `json:"ideal_exposed_s"`
	BatchExposed float64 `json:"batch_exposed_s"`

	// OverBound is the step over the step of the bound, (T+E+U)/(T+E*+U);
	// OverIdeal is the same with the ideal queue; ExposedOverBound is E/E*. Nil
	// where the divisor is 0.
	OverBound        *float64 `json:"step_over_bound"`
	OverIdeal        *float64 `json:"step_over_ideal"`
	ExposedOverBound *float64 `json:"exposed_over_bound"`
	// Efficiency is the overlap efficiency η = 1 − E/R_batch: 1 fully hidden, 0 no
	// better than scoring after the rollout, below 0 worse. Nil if R_batch is 0.
	Efficiency *float64 `json:"overlap_efficiency"`

	// Load is ρ = Σrᵢ/(W·T), the share of the pool that the rollout keeps busy;
	// above 1 the pool cannot keep up. Nil if T is 0.
	Load *float64 `json:"pool_load"`
	// Utilisation is Σrᵢ/(W·max fᵢ). Nil if the makespan is 0.
	Utilisation *float64 `json:"pool_utilisation"`
	// Imbalance is the largest number of samples on a worker over the mean per
	// worker seen. Nil if the spans do not name workers.
	Imbalance *float64 `json:"dispatch_imbalance"`
	// Peak is the largest number of samples in service at once. Above Servers the
	// trace contradicts itself and the bound does not hold.
	Peak int `json:"peak_in_service"`

	// Accept is Queued − Gᵢ, Wait from there (or from Gᵢ where Queued was not
	// recorded) to Started, Return is Returned − Scored. Stages without a single
	// recorded sample are nil.
	Accept *Quantiles `json:"accept_s,omitempty"`
	Wait   *Quantiles `json:"wait_s,omitempty"`
	Score  *Quantiles `json:"score_s,omitempty"`
	Return *Quantiles `json:"return_s,omitempty"`
	// Overhead is (fᵢ − gᵢ) − rᵢ, everything that is not the scorer.
	Overhead *Quantiles `json:"overhead_s,omitempty"`
}

// Quantiles summarises one duration over the samples that recorded it.
// Percentiles are by nearest rank.
type Quantiles struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Measure computes the report of a trace. It fails on a trace that Validate
// refuses and on one without a single scored sample, with ErrTrace.
func Measure(t Trace) (Report, error) {
	if err := t.Validate(); err != nil {
		return Report{}, err
	}
	spans := slices.DeleteFunc(slices.Clone(t.Spans), func(s Span) bool { return s.Scored == nil })
	if len(spans) == 0 {
		return Report{}, fmt.Errorf("%w: none of its %d samples was scored", ErrTrace, len(t.Spans))
	}
	rep := Report{
		Samples: len(t.Spans), Unscored: len(t.Spans) - len(spans), Servers: t.Servers, Update: t.Update,
		Peak: peak(spans), Imbalance: imbalance(spans),
	}
	g, r, work := make([]float64, len(spans)), make([]float64, len(spans)), 0.0
	for i, s := range spans {
		g[i], r[i] = s.Generated, s.service()
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
	return rep, nil
}

// compare sets the exposed times and their ratios.
func (rep *Report) compare(g, r []float64) error {
	bound, err := LowerBound(g, r, rep.Servers)
	if err != nil {
		return err
	}
	ideal, err := IdealQueue(g, r, rep.Servers)
	if err != nil {
		return err
	}
	batch, err := BatchAfterRollout(g, r, rep.Servers)
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

// EfficiencyAgainst returns the overlap efficiency against a reward phase that
// was measured, in seconds, instead of simulated. It is nil if that is 0.
func (rep *Report) EfficiencyAgainst(batch float64) *float64 {
	share := over(rep.Exposed, batch)
	if share == nil {
		return nil
	}
	return new(1 - *share)
}

// String is the report in a few lines for people.
func (rep *Report) String() string {
	return fmt.Sprintf(`%d samples (%d unscored) on %d servers, pool load %s
rollout %.3f s, all scored at %.3f s
exposed reward time %.3f s (bound %.3f, ideal queue %.3f, after the rollout %.3f)
step over bound %s, over ideal queue %s; exposed over bound %s
overlap efficiency %s, pool utilisation %s, peak in service %d
`, rep.Samples, rep.Unscored, rep.Servers, figure(rep.Load), rep.Rollout, rep.Makespan,
		rep.Exposed, rep.BoundExposed, rep.IdealExposed, rep.BatchExposed,
		figure(rep.OverBound), figure(rep.OverIdeal), figure(rep.ExposedOverBound),
		figure(rep.Efficiency), figure(rep.Utilisation), rep.Peak)
}

func figure(v *float64) string {
	if v == nil {
		return "undefined"
	}
	return fmt.Sprintf("%.3f", *v)
}

// over divides; nil stands for a quotient that does not exist.
func over(a, b float64) *float64 {
	q := a / b
	if b <= 0 || math.IsInf(q, 0) || math.IsNaN(q) {
		return nil
	}
	return &q
}

func (rep *Report) stages(spans []Span) {
	var accept, wait, score, back, overhead []float64
	for _, s := range spans {
		ready := s.Generated
		if s.Queued != nil {
			accept = append(accept, *s.Queued-s.Generated)
			ready = *s.Queued
		}
		wait = append(wait, *s.Started-ready)
		score = append(score, *s.Scored-*s.Started)
		if s.Returned != nil {
			back = append(back, *s.Returned-*s.Scored)
		}
		overhead = append(overhead, s.finish()-s.Generated-s.service())
	}
	rep.Accept, rep.Wait, rep.Score = quantiles(accept), quantiles(wait), quantiles(score)
	rep.Return, rep.Overhead = quantiles(back), quantiles(overhead)
}

func quantiles(v []float64) *Quantiles {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	rank := func(p int) float64 { return v[(p*len(v)+99)/100-1] }
	return &Quantiles{Count: len(v), Mean: sum / float64(len(v)), P50: rank(50), P99: rank(99), Max: v[len(v)-1]}
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
		if *s.Scored > *s.Started {
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
