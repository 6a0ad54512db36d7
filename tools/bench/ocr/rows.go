package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

func atLeast(v float64) *report.Bound { return &report.Bound{Value: v} }
func atMost(v float64) *report.Bound  { return &report.Bound{Most: true, Value: v} }

// prefix begins the names of this suite's rows.
const prefix = "ocr/"

// promises are the rows' names, lines and targets, in the order they are told.
var promises = []struct { //nolint:gochecknoglobals // a table
	name, issue string
	target      *report.Bound
}{
	{"parity-lines", "lines identical to RapidOCR's, of the larger number of lines of each picture", atLeast(.99)},
	{"parity-corners", "corners within 1 pixel of RapidOCR's", atLeast(.99)},
	{"parity-rewards", "rewards identical to RapidOCR's", atLeast(.99)},
	{"fast-rewards", "share of pictures whose reward is the same in fast and parity mode", atLeast(.98)},
	{"fast-error-added", "fast mode's error on the golden pictures − parity mode's", atMost(.005)},
	{"error", "mean error of fast mode's rewards on the golden pictures, against what is written on them", atMost(.03)},
	{"exact", "share of the golden pictures whose reward in fast mode has no error", atLeast(.90)},
	{"fast-speed", "fast mode's pictures a second / those of the faster set-up of RapidOCR (its defaults, or two processes of one thread); median of the repetitions' ratios", atLeast(2)},
	{"parity-speed", "the same in parity mode", atLeast(1.3)},
	{"own-share", "processor time outside ONNX Runtime's processes, fast mode", atMost(.15)},
	{"video-frames", "frames a second of a video of 16 frames of 512x512, all read, one video at a time, fast mode", nil},
}

// figure makes a row of what was measured.
func figure(name string, beside map[string]float64, values ...float64) (report.Figure, error) {
	for _, p := range promises {
		if p.name == name {
			r := report.Figure{Row: prefix + name, Issue: p.issue, Value: report.Median(values), Values: values, Target: p.target, Beside: beside}
			if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
				return r, fmt.Errorf("row %s is %v", r.Row, r.Value)
			}
			r.Held = r.Target == nil || r.Target.Keeps(r.Value)
			return r, nil
		}
	}
	return report.Figure{}, fmt.Errorf("row %s is not promised", prefix+name)
}

// readMisses reads this suite's part of the list.
func readMisses(path string) (map[string]report.Miss, error) {
	var rows []string
	for _, p := range promises {
		rows = append(rows, prefix+p.name)
	}
	return report.ReadMisses(path, func(row string) bool { return strings.HasPrefix(row, prefix) }, rows)
}
