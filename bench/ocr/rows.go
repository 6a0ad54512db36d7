package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// row is one figure, in the form of the other suites' (docs/results).
type row struct {
	Row   string `json:"row"`
	Issue string `json:"issue,omitempty"`
	Unit  string `json:"unit,omitempty"`
	// Value is the median of Values.
	Value  float64            `json:"value"`
	Values []float64          `json:"values"`
	Target *bound             `json:"target,omitempty"`
	Held   bool               `json:"held"`
	Miss   *miss              `json:"miss,omitempty"`
	Beside map[string]float64 `json:"beside,omitempty"`
}

// bound is what a figure must keep: at most Value, or at least.
type bound struct {
	Most  bool    `json:"most"`
	Value float64 `json:"value"`
	Note  string  `json:"note,omitempty"`
}

func (b bound) keeps(v float64) bool {
	if b.Most {
		return v <= b.Value
	}
	return v >= b.Value
}

func atLeast(v float64) *bound { return &bound{Value: v} }
func atMost(v float64) *bound  { return &bound{Most: true, Value: v} }

// miss is a row that is known to miss its target, as bench/misses.yml lists it.
type miss struct {
	Row      string   `json:"row" yaml:"row"`
	Measured *float64 `json:"measured" yaml:"measured"`
	Reason   string   `json:"reason" yaml:"reason"`
}

// prefix begins the names of this suite's rows.
const prefix = "ocr/"

// promises are the rows' names, lines and targets, in the order they are told.
var promises = []struct { //nolint:gochecknoglobals // a table
	name, issue string
	target      *bound
}{
	{"parity-lines", "lines identical to RapidOCR's, of the larger number of lines of each picture", atLeast(.99)},
	{"parity-corners", "corners within 1 pixel of RapidOCR's", atLeast(.99)},
	{"parity-rewards", "rewards identical to RapidOCR's", atLeast(.99)},
	{"fast-rewards", "fast mode's rewards are parity mode's", atLeast(.98)},
	{"fast-error-added", "fast mode's error on the golden pictures less parity mode's", atMost(.005)},
	{"error", "mean error of fast mode's rewards on the golden pictures, against what is written on them", atMost(.03)},
	{"exact", "golden pictures with exactly that reward in fast mode", atLeast(.90)},
	{"fast-speed", "pictures a second in fast mode, over the better of RapidOCR at its defaults and as two processes of one thread", atLeast(2)},
	{"parity-speed", "the same in parity mode", atLeast(1.3)},
	{"own-share", "processor time outside ONNX Runtime's processes, fast mode", atMost(.15)},
	{"video-frames", "frames a second of a video of 16 frames of 512x512, all read, one video at a time, fast mode", nil},
}

// figure makes a row of what was measured.
func figure(name string, beside map[string]float64, values ...float64) (row, error) {
	for _, p := range promises {
		if p.name == name {
			r := row{Row: prefix + name, Issue: p.issue, Value: median(values), Values: values, Target: p.target, Beside: beside}
			if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
				return r, fmt.Errorf("row %s is %v", r.Row, r.Value)
			}
			r.Held = r.Target == nil || r.Target.keeps(r.Value)
			return r, nil
		}
	}
	return row{}, fmt.Errorf("row %s is not promised", prefix+name)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// readMisses reads this suite's part of the list.
func readMisses(path string) (map[string]miss, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("misses: %w", err)
	}
	var file struct {
		Misses []miss `yaml:"misses"`
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	known := map[string]miss{}
	var errs []error
	for _, m := range file.Misses {
		if !strings.HasPrefix(m.Row, prefix) {
			continue
		}
		if _, err := figure(strings.TrimPrefix(m.Row, prefix), nil, 0); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		if m.Measured == nil || m.Reason == "" {
			errs = append(errs, fmt.Errorf("%s: row %q needs the measured value and a reason", path, m.Row))
		}
		known[m.Row] = m
	}
	return known, errors.Join(errs...)
}

// judge marks the misses that are known and says what is to be done about others.
func judge(rows []row, known map[string]miss, w io.Writer) (missed bool) {
	for i := range rows {
		r := &rows[i]
		m, listed := known[r.Row]
		switch {
		case !r.Held && listed:
			r.Miss = &m
			fmt.Fprintf(w, "known miss: %s is %.4g, listed with %.4g: %s\n", r.Row, r.Value, *m.Measured, m.Reason)
		case !r.Held:
			missed = true
			fmt.Fprintf(w, "MISS: %s is %.4g, target %s (%s)\n", r.Row, r.Value, r.Target, r.Issue)
		case listed:
			fmt.Fprintf(w, "mended: %s is %.4g, target %s: take it out of bench/misses.yml\n", r.Row, r.Value, r.Target)
		}
	}
	return missed
}

// String is the bound as it is written in a table; "–" if there is none.
func (b *bound) String() string {
	if b == nil {
		return "–"
	}
	if b.Most {
		return fmt.Sprintf("≤ %.4g", b.Value)
	}
	return fmt.Sprintf("≥ %.4g", b.Value)
}
