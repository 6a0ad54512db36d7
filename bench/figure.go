package main

import (
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/bench/report"
)

// figure makes a row's result from the readings of all repetitions.
func figure(experiment string, row Row, all []Readings, reference Readings) (report.Figure, error) {
	f := report.Figure{Row: experiment + "/" + row.Name, Issue: row.Issue, Unit: row.Unit, Held: true}
	for _, r := range all {
		f.Values = append(f.Values, row.Value(r))
	}
	f.Value = report.Median(f.Values)
	now := medians(all)
	for _, name := range row.Beside {
		if f.Beside == nil {
			f.Beside = Readings{}
		}
		f.Beside[strings.TrimPrefix(name, row.Name+" ")] = lookup(now, name) // what is the row's own
	}
	for name, v := range f.Beside {
		if v != v {
			return f, fmt.Errorf("row %s: no reading %q", f.Row, name)
		}
	}
	if f.Value != f.Value {
		return f, fmt.Errorf("row %s: its value is not a number", f.Row)
	}
	if row.Target != nil {
		b, err := row.Target(now, reference)
		if err != nil {
			return f, fmt.Errorf("row %s: %w", f.Row, err)
		}
		f.Target, f.Held = &b, b.Keeps(f.Value)
	}
	return f, nil
}
