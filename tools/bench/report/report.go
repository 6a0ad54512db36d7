package report

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Report is one suite's results, as they are written.
type Report struct {
	Suite       string  `json:"suite"`
	About       string  `json:"about"`
	Date        string  `json:"date"`
	Commit      string  `json:"commit"`
	Dirty       bool    `json:"dirty"` // files differed from the commit
	Machine     Machine `json:"machine"`
	LoadBefore  string  `json:"load_before"`
	LoadAfter   string  `json:"load_after"`
	Quick       bool    `json:"quick,omitempty"`
	Repetitions int     `json:"repetitions"`
	// Disturbed counts the repetitions of all experiments that other processes
	// disturbed and that could not be measured again.
	Disturbed int      `json:"disturbed,omitempty"`
	Rows      []Figure `json:"rows"`
}

// Figure is one row's result.
type Figure struct {
	Row   string  `json:"row"`
	Issue string  `json:"issue,omitempty"`
	Unit  string  `json:"unit,omitempty"`
	Value float64 `json:"value"` // the median, or the worst where the row says so
	// Values are those of the repetitions, in order.
	Values []float64 `json:"values"`
	// Target is nil where nothing was promised.
	Target *Bound `json:"target,omitempty"`
	Held   bool   `json:"held"`
	// Error is why the figure could not be measured; its value says nothing then.
	Error string `json:"error,omitempty"`
	// Miss is set where a known miss has missed again.
	Miss   *Miss              `json:"miss,omitempty"`
	Beside map[string]float64 `json:"beside,omitempty"`
}

// Begin is a report of a run that begins now in the repository root; its rows, and End, are
// still to come.
func Begin(ctx context.Context, root, suite, about string) Report {
	r := Report{Suite: suite, About: about, Date: Today(), Machine: ThisMachine(), LoadBefore: LoadAverage()}
	r.Commit, r.Dirty = commit(ctx, root)
	return r
}

// End notes that the run is over.
func (r *Report) End() { r.LoadAfter = LoadAverage() }

// Missed reports whether the figure breaks a promise.
func (f Figure) Missed() bool { return f.Target != nil && !f.Held }

// Bound is what a figure must keep.
type Bound struct {
	// Most says that Value is the most the figure may be; otherwise it is the least.
	Most  bool    `json:"most"`
	Value float64 `json:"value"`
	// Note says how the bound came about where it is not the issue's number.
	Note string `json:"note,omitempty"`
}

// Keeps reports whether a figure is within the bound. What is no number is not.
func (b Bound) Keeps(v float64) bool {
	if b.Most {
		return v <= b.Value
	}
	return v >= b.Value
}

// Median is the middle value, or the mean of the two in the middle. One that is no
// number makes the median none.
func Median(values []float64) float64 {
	if len(values) == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Write puts the report into the folder.
func (r Report) Write(folder string) error {
	return WriteJSON(filepath.Join(folder, r.Suite+".json"), r)
}

// ReadReports reads every suite's results in the folder, by suite.
func ReadReports(folder string) ([]Report, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var reports []Report
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r Report
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// WriteJSON replaces a file.
func WriteJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // results are for everybody
}

// Today is the time as reports have it.
func Today() string { return time.Now().UTC().Format(time.RFC3339) }
