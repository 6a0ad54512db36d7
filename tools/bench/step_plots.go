package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/rewardloop/rewardloop/examples/trainer_modes/trainer"
	"github.com/rewardloop/rewardloop/tools/bench/plot"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// plotSteps draws the experiment: the modes at the recipe's concurrency beside what was
// published, and what more concurrency gains.
func plotSteps(r report.Report, folder string) error {
	by := map[string]report.Figure{}
	for _, f := range r.Rows {
		by[f.Row] = f
	}
	value := func(row string) float64 {
		f, ok := by[row]
		if !ok {
			return math.NaN() // the row was not asked for
		}
		return f.Value
	}
	beside := func(row, name string) float64 {
		v, ok := by[row].Beside[name]
		if !ok {
			return math.NaN()
		}
		return v
	}
	foot := fmt.Sprintf("%s, %d cores; %s; times divided by %v and multiplied again", r.Machine.CPU, r.Machine.Cores, r.Date[:min(len(r.Date), 10)], report.Number(beside("c256/batch", "scale")))
	// A mode that is a step ahead is shown as in a long run, which the published one was.
	told := func(c int, reading string) float64 { // by whichever row of the experiment
		for _, f := range r.Rows {
			if v, ok := f.Beside[reading]; ok && strings.HasPrefix(f.Row, fmt.Sprintf("c%d/", c)) {
				return v
			}
		}
		return math.NaN()
	}
	took := func(c int, m trainer.Mode) (ours, ideal float64) {
		if m.Ahead() {
			return told(c, string(m)+"_steady"), told(c, string(m)+"_steady_ideal")
		}
		return value(fmt.Sprintf("c%d/%s", c, m)), told(c, string(m)+"_ideal")
	}
	var groups []string
	var ours, ideal, bound, theirs []float64
	for _, m := range trainer.Modes() {
		groups = append(groups, strings.ReplaceAll(string(m), "_", "\n"))
		o, i := took(recipeCalls, m)
		ours, ideal = append(ours, o), append(ideal, i)
		bound = append(bound, bounded(m, beside(fmt.Sprintf("c%d/%s", recipeCalls, m), string(m)+"_bound")))
		v, ok := published[m]
		if !ok {
			v = math.NaN()
		}
		theirs = append(theirs, v)
	}
	err := plot.Bars(filepath.Join(folder, "step-modes.svg"), plot.BarsData{
		Title:  fmt.Sprintf("5,120 rewards of 1 to 40 s, %d at a time: a step in six modes", recipeCalls),
		YLabel: "seconds per step", Groups: groups, Foot: foot,
		Series: []plot.Series{{Name: "published", Values: theirs}, {Name: "this loop", Values: ours}, {Name: "ideal queue", Values: ideal}, {Name: "lower bound", Values: bound}},
	})
	if err != nil {
		return err
	}
	series := []plot.Series{{Name: "published, 256", Values: theirs}}
	for _, c := range concurrencies {
		s := plot.Series{Name: fmt.Sprintf("%d at a time", c)}
		for _, m := range trainer.Modes() {
			o, _ := took(c, m)
			s.Values = append(s.Values, o)
		}
		series = append(series, s)
	}
	return plot.Bars(filepath.Join(folder, "step-concurrency.svg"), plot.BarsData{
		Title: "The same step with more reward calls at a time", YLabel: "seconds per step", Groups: groups, Foot: foot, Series: series,
	})
}

// bounded leaves out the bound of a mode that is a step ahead: it is that of the whole run,
// whose first step has no update to hide rewards behind.
func bounded(m trainer.Mode, v float64) float64 {
	if m.Ahead() {
		return math.NaN()
	}
	return v
}
