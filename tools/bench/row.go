package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// Suite is an area's experiments; its results are one JSON file.
type Suite struct {
	Name string
	// About is the suite's paragraph in the table.
	About string
	// Apart is true for a suite that is measured only where it is asked for by -suite
	// or by its rows, because it needs more than Go.
	Apart       bool
	Experiments []Experiment
	// Plots draws the report into the folder where it is written; nil: there is nothing to
	// draw. Rows may be missing.
	Plots func(r report.Report, folder string) error
}

// Experiment is one set-up whose repetitions give the readings of its rows.
type Experiment struct {
	// Name begins the names of its rows, and names its calibrations in the references.
	Name string
	// GoesOn says that an error is a miss of the experiment's rows that have a target, and does
	// not end the run.
	GoesOn bool
	// Setup starts and warms what is measured.
	Setup func(ctx context.Context, o Options) (Trial, error)
	Rows  []Row
	// Calibrations are the readings that targets scale with; their medians are what
	// -write-reference writes.
	Calibrations []string
	// CalibratedAs is the experiment with the same calibrations, whose references the targets
	// scale with; "": this one.
	CalibratedAs string
}

// reference names the experiment whose references the targets scale with.
func (e Experiment) reference() string { return cmp.Or(e.CalibratedAs, e.Name) }

// Options are what a run was asked for.
type Options struct {
	// Quick shortens everything: it shows that the bench works, not how fast anything is.
	Quick bool
	// Repetitions of every measurement; the median counts.
	Repetitions int
	// Lasting is how long each load lasts.
	Lasting time.Duration
	// Scale is what the times of whole steps are divided by; 0: 10, or more with Quick.
	Scale float64
	// Calm waits until other processes leave the machine alone; nil: does not wait.
	Calm func(context.Context)
	// Device is what the suite gpu runs its models on: cuda:<n>, or cpu.
	Device string
	// Profile is the folder for CPU profiles of our side; empty: none.
	Profile string
}

// Trial is an experiment that is set up.
type Trial interface {
	// Measure measures ours and the calibration once, interleaved. rep counts from 0.
	Measure(ctx context.Context, rep int) (Readings, error)
	Close() error
}

// Readings are what one repetition has measured, by name.
type Readings map[string]float64

// Row is one figure.
type Row struct {
	// Name is unique within the experiment.
	Name string
	// Issue is the line that promises the figure; empty where nobody did.
	Issue string
	// Unit of Value: "/s", "ms", "KiB", or "" for a ratio.
	Unit string
	// Value makes the figure from one repetition's readings.
	Value func(Readings) float64
	// Worst says that the highest of the repetitions' values counts, not the median.
	Worst bool
	// Target judges the figure; nil: it is only told.
	Target Target
	// CardOnly says that the target is for a card: with -device cpu the figure is only told.
	CardOnly bool
	// Beside are readings told with the figure, median by median.
	Beside []string
}

// Target gives the bound a figure must keep: from the medians of the same
// repetitions' readings and the experiment's committed calibrations.
type Target func(now, reference Readings) (report.Bound, error)

func atLeast(v float64) Target {
	return func(Readings, Readings) (report.Bound, error) { return report.Bound{Value: v}, nil }
}

func atMost(v float64) Target {
	return func(Readings, Readings) (report.Bound, error) { return report.Bound{Value: v, Most: true}, nil }
}

// rateScaled is an absolute rate that holds on a machine as fast as the reference:
// where the calibration is slower, the rate shrinks by the same factor. It never
// grows.
func rateScaled(v float64, calibration string) Target {
	return func(now, reference Readings) (report.Bound, error) {
		f, note, err := slowness(now, reference, calibration)
		return report.Bound{Value: v * f, Note: note}, err
	}
}

// timeScaled is rateScaled for a time: it grows on a slower machine. The
// calibration is a rate.
func timeScaled(v float64, calibration string) Target {
	return func(now, reference Readings) (report.Bound, error) {
		f, note, err := slowness(now, reference, calibration)
		return report.Bound{Value: v / f, Most: true, Note: note}, err
	}
}

// slowness is the calibration's share of its reference, at most 1.
func slowness(now, reference Readings, calibration string) (float64, string, error) {
	got, want := now[calibration], reference[calibration]
	if !(got > 0) || !(want > 0) {
		return math.NaN(), "", fmt.Errorf("calibration %s is %v, its reference %v: both must be above 0; run with -write-reference on a quiet machine", calibration, got, want)
	}
	if got >= want {
		return 1, "", nil
	}
	return got / want, fmt.Sprintf("scaled by %s: %s of %s", calibration, report.Number(got), report.Number(want)), nil
}

// reading is the Value of a row that is one of the readings.
func reading(name string) func(Readings) float64 {
	return func(r Readings) float64 { return lookup(r, name) }
}

// ratio is the Value of a row that is one reading divided by another.
func ratio(over, under string) func(Readings) float64 {
	return func(r Readings) float64 { return lookup(r, over) / lookup(r, under) }
}

// difference is the Value of a row that is one reading less another.
func difference(a, b string) func(Readings) float64 {
	return func(r Readings) float64 { return lookup(r, a) - lookup(r, b) }
}

// lookup returns a reading, and no number where there is none: no bound keeps that.
func lookup(r Readings, name string) float64 {
	v, ok := r[name]
	if !ok {
		return math.NaN()
	}
	return v
}

// medians is the median of every reading.
func medians(all []Readings) Readings {
	out := Readings{}
	for _, r := range all {
		for name := range maps.Keys(r) {
			if _, done := out[name]; done {
				continue
			}
			values := make([]float64, 0, len(all))
			for _, r := range all {
				values = append(values, lookup(r, name))
			}
			out[name] = report.Median(values)
		}
	}
	return out
}

// chosen returns the suites with the rows whose full name matches: of the suite
// that is named, or of all but those that stand apart unless rows are named.
func chosen(suites []Suite, suite string, rows *regexp.Regexp) []Suite {
	var out []Suite
	for _, s := range suites {
		if suite != "" && s.Name != suite || suite == "" && s.Apart && rows.String() == "" {
			continue
		}
		var experiments []Experiment
		for _, e := range s.Experiments {
			e.Rows = slices.DeleteFunc(slices.Clone(e.Rows), func(r Row) bool { return !rows.MatchString(e.Name + "/" + r.Name) })
			if len(e.Rows) > 0 {
				experiments = append(experiments, e)
			}
		}
		if s.Experiments = experiments; len(experiments) > 0 {
			out = append(out, s)
		}
	}
	return out
}
