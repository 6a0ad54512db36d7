package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// figure makes a row's result from the readings of all repetitions.
func figure(experiment string, row Row, all []Readings, reference Readings) (report.Figure, error) {
	f := report.Figure{Row: experiment + "/" + row.Name, Issue: row.Issue, Unit: row.Unit, Held: true}
	for _, r := range all {
		f.Values = append(f.Values, row.Value(r))
	}
	f.Value = report.Median(f.Values)
	if row.Worst && f.Value == f.Value {
		f.Value = slices.Max(f.Values)
	}
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

// broken are the rows of an experiment that could not be measured: those with a target miss it.
func broken(e Experiment, reference Readings, err error) []report.Figure {
	var out []report.Figure
	for _, row := range e.Rows {
		f := report.Figure{Row: e.Name + "/" + row.Name, Issue: row.Issue, Unit: row.Unit, Held: row.Target == nil, Error: err.Error()}
		if row.Target != nil {
			b, _ := row.Target(Readings{}, reference) // a bound that follows from readings has none
			if b.Value != b.Value {
				b.Value = 0
			}
			f.Target = &b
		}
		out = append(out, f)
	}
	return out
}
