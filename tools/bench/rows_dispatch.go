package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/tools/bench/plot"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// The issue's lines.
const (
	lineRandom   = "random within 1 % of F*'s step for U(0.8,1.2) and log-normal σ = 1 at W = 8, 16, 64"
	lineWeighted = "a quarter of the workers 3× slower, with speed-weighted choice: ≤ 3 % at W = 8 and 16, ≤ 7 % at 64"
	lineBackup   = "2 % × 10 stragglers with backup requests ≤ 2 % at W = 8 and 16"
	lineKilled   = "a worker killed mid-step costs less than one detection plus one service time"
)

// widths are the numbers of workers, each with one slot.
var widths = [...]int{8, 16, 32, 64} //nolint:gochecknoglobals // a table

// killWidth is where a worker is killed.
const killWidth = 8

// overDispatch is what a bad choice of workers costs a step.
func overDispatch() Suite {
	s := Suite{
		Name: "dispatch", Apart: true, Plots: plotDispatch,
		About: "Steps through the real loop (websocket client, gateway, embedded engine, workers of one slot) at 90 % load: 512 samples over a rollout of 200 s, " +
			"one every 0.39 s unless in bursts of 64, and 160 s of update, which are added and not run; scorers sleep. The figure is the time of the step / that of F*, which no policy " +
			"beats, for the times at which the samples were submitted and the service times that were drawn. Beside it: the time of the step / that of a simulation of the same policy with " +
			"the same times (over_ideal, the median of 25 seeds), and the seconds from the last submission to the last reward at the client (exposed_s; those " +
			"of F* and of the simulation with them). uniform is U(0.8,1.2) and lognormal σ = 1, around the mean; with stragglers 2 % of the attempts take ten mean service " +
			"times, whatever the sample, and F* is a reference there: it knows mean service times only, and can be beaten; slow is a quarter of the workers at a third of the " +
			"speed. random_blind-simulated is verl's choice of a worker, busy or not: the product does not have it, so that its rows are those of the simulation (the median of " +
			"25 seeds, every sample submitted on time). Times were divided by the scale, and are multiplied by it here; each repetition draws anew; the scenes " +
			"of one number of workers ran side by side in one process (cpu_cores is what they used). kill-half and kill-late are uniform-random with a worker that vanishes, " +
			"with a sample, after 50 % and 98.5 % of the rollout, and is replaced when the gateway no longer counts it as live (noticed_s; 0: the step was over before); " +
			"the figure is what the step took longer than without.",
	}
	for _, w := range widths {
		run := scenes()
		if w == killWidth {
			run = slices.Concat(run, killings())
		}
		s.Experiments = append(s.Experiments, Experiment{
			Name: "dispatch" + strconv.Itoa(w), Rows: dispatchRows(w, run),
			Setup: func(_ context.Context, o Options) (Trial, error) { return newDispatchTrial(w, run, o), nil },
		})
	}
	return s
}

// dispatchTargets are the issue's, by row and number of workers.
var dispatchTargets = map[string]map[int]float64{ //nolint:gochecknoglobals // a table
	"uniform-random":      {8: 1.01, 16: 1.01, 64: 1.01},
	"lognormal-random":    {8: 1.01, 16: 1.01, 64: 1.01},
	"slow-speed_weighted": {8: 1.03, 16: 1.03, 64: 1.07},
	"stragglers-backup":   {8: 1.02, 16: 1.02},
}

var dispatchLines = map[string]string{ //nolint:gochecknoglobals // a table
	"uniform-random": lineRandom, "lognormal-random": lineRandom, "slow-speed_weighted": lineWeighted, "stragglers-backup": lineBackup,
}

func dispatchRows(width int, run []scene) []Row {
	var rows []Row
	for i, c := range run {
		if c.kill > 0 {
			rows = append(rows, killRow(c.name, run[0].name))
			continue
		}
		r := Row{Name: c.name, Value: reading(c.name + " over_bound")}
		beside := []string{"over_ideal", "exposed_s", "bound_exposed_s", "ideal_exposed_s", "imbalance"}
		if c.simulation != "" {
			beside = []string{"exposed_s", "bound_exposed_s"}
		}
		for _, name := range beside {
			r.Beside = append(r.Beside, c.name+" "+name)
		}
		if c.policy.BackupAfter > 0 {
			r.Beside = append(r.Beside, c.name+" backups", c.name+" backups_won")
		}
		if i == 0 {
			r.Beside = append(r.Beside, "scale", "cpu_cores", othersCores)
		}
		if most, ok := dispatchTargets[c.name][width]; ok {
			r.Issue, r.Target = dispatchLines[c.name], atMost(most)
		}
		rows = append(rows, r)
	}
	return rows
}

// killRow holds a step with a worker that was killed against the same without.
func killRow(name, without string) Row {
	own := func(what string) string { return name + " " + what }
	return Row{
		Name: name, Issue: lineKilled, Unit: "s", Value: difference(own("exposed_s"), without+" exposed_s"),
		Target: func(now, _ Readings) (report.Bound, error) {
			lease, service := lookup(now, own("lease_s")), lookup(now, own("service_s"))
			return report.Bound{Value: lease + service, Most: true, Note: fmt.Sprintf("a lease of %s s and the longest service of %s s", report.Number(lease), report.Number(service))}, nil
		},
		Beside: []string{own("exposed_s"), own("noticed_s")},
	}
}

// plotDispatch draws how far the steps are from the bound.
func plotDispatch(r report.Report, folder string) error {
	figures := map[string]report.Figure{}
	scale := math.NaN()
	for _, f := range r.Rows {
		figures[f.Row] = f
		if v, ok := f.Beside["scale"]; ok {
			scale = v
		}
	}
	d := plot.BarsData{
		Title: "Dispatch at 90 % load: how much longer a step takes than the best possible", YLabel: "step time above the bound (%)",
		Ordered: true, Top: 25, MarkName: "at most, as promised",
		Foot: "512 samples, a rollout of 200 s, an update of 160 s; the real loop, workers of one slot. ",
	}
	if scale > 1 {
		d.Foot += fmt.Sprintf("Times 1:%s. ", report.Number(scale))
	}
	d.Foot += where(r)
	run := scenes()
	for _, c := range run {
		policy := c.policy.Policy
		if c.simulation != "" {
			policy = c.simulation + " (simulated)"
		}
		if c.policy.BackupAfter > 0 {
			policy += " + backup"
		}
		d.Groups = append(d.Groups, c.load.name+"\n"+policy)
	}
	for _, w := range widths {
		s := plot.Series{Name: strconv.Itoa(w) + " workers"}
		for _, c := range run {
			v, mark := math.NaN(), math.NaN()
			if f, ok := figures["dispatch"+strconv.Itoa(w)+"/"+c.name]; ok {
				v = math.Round(1e4*(f.Value-1)) / 100
				if f.Target != nil {
					mark = 100 * (f.Target.Value - 1)
				}
			}
			s.Values, s.Marks = append(s.Values, v), append(s.Marks, mark)
		}
		d.Series = append(d.Series, s)
	}
	return plot.Bars(filepath.Join(folder, "dispatch.svg"), d)
}

// where is the line under a picture.
func where(r report.Report) string {
	day, _, _ := strings.Cut(r.Date, "T")
	state := ""
	if r.Dirty {
		state = " with changes"
	}
	return fmt.Sprintf("Median of %d. %s, %d cores, %s, %s; %s, commit %s%s.",
		r.Repetitions, r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Go, day, r.Commit, state)
}
