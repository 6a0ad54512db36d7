package step

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// This file says which samples of a step have no result of their own, and who has them.

// maxWithout bounds the samples that an answer names.
const maxWithout = 256

// without names the samples that have no result of their own.
func (st *Step) without(now time.Time) []wire.Missing {
	var out []wire.Missing
	known := 0
	for _, r := range st.absent {
		known++
		out = append(out, wire.Missing{ID: r.id, Index: r.index, Stage: absent})
	}
	if a := st.assembly; a != nil {
		for _, r := range a.rows {
			if r.flight != nil || r.atDeadline {
				out = append(out, r.missing(now))
			}
		}
		if !st.closed {
			out = append(out, st.notCome()...)
		} else if known < st.expected-st.arrived {
			out = append(out, a.incomplete()...)
		}
	}
	return out[:min(len(out), maxWithout)]
}

// Where a sample without a result is that is not in flight.
const (
	absent  = "not arrived"
	expired = "expired" // the step's deadline ended it
)

// missing describes a sample in flight, or one that the step's deadline ended.
func (r *Row) missing(now time.Time) wire.Missing {
	m := wire.Missing{ID: r.id, Index: r.index, UID: r.uid, Worker: r.worker}
	if r.flight != nil {
		stage, arrived, worker := r.flight.Whereabouts()
		m.Stage, m.AgeMS = stage, millis(now.Sub(arrived))
		if worker != "" {
			m.Worker = worker
		}
		return m
	}
	m.Stage, m.AgeMS = expired, millis(r.returned.Sub(r.queued))
	if n := len(r.attempts); n > 0 {
		m.Worker = r.attempts[n-1].Worker
	}
	return m
}

// notCome names the declared ids of an open step that have not come.
func (st *Step) notCome() []wire.Missing {
	var ids []string
	for id := range st.names {
		if st.assembly.byID[id] == nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return st.names[a] - st.names[b] })
	out := make([]wire.Missing, 0, min(len(ids), maxWithout))
	for _, id := range ids[:min(len(ids), maxWithout)] {
		out = append(out, wire.Missing{ID: id, Stage: absent})
	}
	return out
}

// incomplete names the groups whose members have not all come.
func (a *assembly) incomplete() []wire.Missing {
	var out []wire.Missing
	for _, g := range a.groups {
		if n := g.size - len(g.rows); n > 0 && g.uid != "" {
			out = append(out, wire.Missing{UID: g.uid, Stage: absent, Members: int64(n)})
		}
	}
	slices.SortFunc(out, func(x, y wire.Missing) int { return strings.Compare(x.UID, y.UID) })
	return out
}

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }
