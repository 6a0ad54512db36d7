package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String returns the report as a few lines of text.
func (rep *Report) String() string {
	return fmt.Sprintf(`%s (%d unscored) on %s, pool load %s
rollout %.3f s, all answered at %.3f s
exposed reward time %.3f s (bound %.3f, ideal queue %.3f, after the rollout %.3f)
step over bound %s, over ideal queue %s; exposed over bound %s
overlap efficiency %s, pool utilisation %s, peak in service %d
`, count(rep.Samples, "sample"), rep.Unscored, count(rep.Servers, "server"), figure(rep.Load), rep.Rollout, rep.Makespan,
		rep.Exposed, rep.BoundExposed, rep.IdealExposed, rep.BatchExposed,
		figure(rep.OverBound), figure(rep.OverIdeal), figure(rep.ExposedOverBound),
		figure(rep.Efficiency), figure(rep.Utilisation), rep.Peak)
}

// count is a number of things: "1 server", "2 servers".
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Details returns the rest of the report as text: the times of the stages, the dispatch statistics,
// and the samples that finished last. The text ends without a blank line.
func (rep *Report) Details() string {
	var b strings.Builder
	if rep.Missing > 0 {
		fmt.Fprintf(&b, "%d samples were declared and never arrived\n", rep.Missing)
	}
	fmt.Fprintf(&b, "dispatch imbalance %s; retries %d; backup requests %d, %d won, %.3f s wasted\n",
		figure(rep.Imbalance), rep.Retries, rep.Backups, rep.BackupsWon, rep.BackupWasted)
	fmt.Fprintf(&b, "\n%-14s %8s %10s %10s %10s %10s\n", "stage", "samples", "mean s", "p50 s", "p99 s", "max s")
	row := func(name string, q *Quantiles) {
		if q != nil {
			fmt.Fprintf(&b, "%-14s %8d %10.4f %10.4f %10.4f %10.4f\n", name, q.Count, q.Mean, q.P50, q.P99, q.Max)
		}
	}
	row("accept", rep.Accept)
	row("wait", rep.Wait)
	row("score", rep.Score)
	row("return", rep.Return)
	for _, name := range slices.Sorted(maps.Keys(rep.Stages)) {
		row("  "+name, new(rep.Stages[name]))
	}
	row("not scoring", rep.Overhead)
	fmt.Fprint(&b, "\nlast to finish\n")
	for _, l := range rep.Tail {
		fmt.Fprintf(&b, "%10.3f s  %s", l.Finished, l.ID)
		if l.Worker != "" {
			fmt.Fprintf(&b, " on %s", l.Worker)
		}
		if l.Outcome != "" {
			fmt.Fprintf(&b, " %s", l.Outcome)
		}
		if l.Attempts > 1 {
			fmt.Fprintf(&b, " in %d attempts", l.Attempts)
		}
		for i, name := range slices.Sorted(maps.Keys(l.Stages)) {
			fmt.Fprintf(&b, "%s %s %.3f", map[bool]string{true: ":", false: ","}[i == 0], name, l.Stages[name])
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func figure(v *float64) string {
	if v == nil {
		return "undefined"
	}
	return fmt.Sprintf("%.3f", *v)
}
