package trace

import (
	"fmt"
	"slices"
	"strings"
)

// Summary summarises the reports of several steps.
type Summary struct {
	Steps int `json:"steps"`
	// Unscored and Missing are sums over the steps.
	Unscored int `json:"unscored"`
	Missing  int `json:"missing"`
	// Exposed is E in seconds, OverBound the step time divided by the step time of the bound, and
	// Efficiency the overlap efficiency η. Steps without the figure are not counted; a field is nil
	// if no step has the figure.
	Exposed    *Spread `json:"exposed_s"`
	OverBound  *Spread `json:"step_over_bound"`
	Efficiency *Spread `json:"overlap_efficiency"`
}

// Spread describes a figure over steps. 99 % of the steps are no worse than P99 (by nearest rank:
// with fewer than 100 steps, P99 is the worst value), whichever direction is worse.
type Spread struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Worst float64 `json:"worst"`
}

// Summarize returns the summary of the reports of several steps.
func Summarize(reports []Report) Summary {
	s := Summary{Steps: len(reports)}
	var exposed, ratio, lost []float64
	for _, r := range reports {
		s.Unscored += r.Unscored
		s.Missing += r.Missing
		exposed = append(exposed, r.Exposed)
		if r.OverBound != nil {
			ratio = append(ratio, *r.OverBound)
		}
		if r.Efficiency != nil {
			lost = append(lost, -*r.Efficiency)
		}
	}
	s.Exposed, s.OverBound, s.Efficiency = spread(exposed), spread(ratio), spread(lost)
	if e := s.Efficiency; e != nil { // the lower the worse
		e.P50, e.P99, e.Worst = -e.P50, -e.P99, -e.Worst
	}
	return s
}

// spread sorts v; larger is worse.
func spread(v []float64) *Spread {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	return &Spread{Count: len(v), P50: rank(v, 50), P99: rank(v, 99), Worst: v[len(v)-1]}
}

// String returns the summary as a few lines of text.
func (s *Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps (%d samples unscored, %d never arrived)\n", s.Steps, s.Unscored, s.Missing)
	for _, row := range []struct {
		name   string
		spread *Spread
	}{{"exposed reward time, s", s.Exposed}, {"step over bound", s.OverBound}, {"overlap efficiency", s.Efficiency}} {
		if row.spread == nil {
			fmt.Fprintf(&b, "%s: undefined\n", row.name)
			continue
		}
		fmt.Fprintf(&b, "%s: p50 %.3f, p99 %.3f, worst %.3f\n", row.name, row.spread.P50, row.spread.P99, row.spread.Worst)
	}
	return b.String()
}
