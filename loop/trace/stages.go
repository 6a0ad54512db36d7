package trace

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// tailLength is how many of the last samples a report names.
const tailLength = 5

// stages sets the distributions of the stages.
func (rep *Report) stages(spans []Span) {
	var accept, wait, score, back, overhead []float64
	named := make(map[string][]float64)
	for _, s := range spans {
		ready := s.Generated
		if s.Queued != nil {
			accept = append(accept, *s.Queued-s.Generated)
			ready = *s.Queued
		}
		if s.Scored != nil {
			wait = append(wait, *s.Started-ready)
			score = append(score, *s.Scored-*s.Started)
		}
		if s.Scored != nil && s.Returned != nil {
			back = append(back, *s.Returned-*s.Scored)
		}
		overhead = append(overhead, s.finish()-s.Generated-s.Work())
		for name, v := range s.Stages {
			named[name] = append(named[name], v)
		}
	}
	rep.Accept, rep.Wait, rep.Score = quantiles(accept), quantiles(wait), quantiles(score)
	rep.Return, rep.Overhead = quantiles(back), quantiles(overhead)
	for name, v := range named {
		if rep.Stages == nil {
			rep.Stages = make(map[string]Quantiles, len(named))
		}
		rep.Stages[name] = *quantiles(v)
	}
}

// quantiles sorts v.
func quantiles(v []float64) *Quantiles {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return &Quantiles{Count: len(v), Mean: sum / float64(len(v)), P50: rank(v, 50), P99: rank(v, 99), Max: v[len(v)-1]}
}

// rank is the percentile p of a sorted, not empty list, by nearest rank.
func rank(v []float64, p int) float64 { return v[(p*len(v)+99)/100-1] }

// attempts counts over all spans: the tries for a sample that was never scored
// were made as well.
func (rep *Report) attempts(spans []Span) {
	for _, s := range spans {
		plain, backups, wasted := 0, 0, 0.0
		for _, a := range s.Attempts {
			won := a.Outcome == sim.AttemptWon
			switch {
			case !a.Backup:
				plain++
			case won:
				rep.BackupsWon++
				fallthrough
			default:
				backups++
			}
			if !won {
				wasted += a.Ended - a.Started
			}
		}
		rep.Retries += max(0, plain-1)
		rep.Backups += backups
		if backups > 0 {
			rep.BackupWasted += wasted
		}
	}
}

// tail names the answered spans that finished last.
func tail(spans []Span) []Late {
	last := slices.SortedFunc(slices.Values(spans), func(a, b Span) int {
		return cmp.Or(cmp.Compare(b.finish(), a.finish()), cmp.Compare(a.ID, b.ID))
	})
	late := make([]Late, 0, tailLength)
	for _, s := range last[:min(tailLength, len(last))] {
		late = append(late, Late{
			ID: s.ID, UID: s.UID, Worker: s.Worker, Outcome: s.unscored(), Finished: s.finish(), Attempts: len(s.Attempts), Stages: s.parts(),
		})
	}
	return late
}

// unscored is the outcome of a sample without a score; "": it has one.
func (s Span) unscored() string {
	if s.HasScore() {
		return ""
	}
	return s.Outcome
}

// parts is the way of one answered sample, by stage.
func (s Span) parts() map[string]float64 {
	parts := make(map[string]float64, 4+len(s.Stages))
	maps.Copy(parts, s.Stages)
	ready := s.Generated
	if s.Queued != nil {
		parts["accept"] = *s.Queued - s.Generated
		ready = *s.Queued
	}
	if s.Scored == nil {
		parts["unscored"] = s.finish() - ready
		return parts
	}
	parts["wait"], parts["score"] = *s.Started-ready, *s.Scored-*s.Started
	if s.Returned != nil {
		parts["return"] = *s.Returned - *s.Scored
	}
	return parts
}
