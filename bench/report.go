package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	Value float64 `json:"value"` // the median
	// Values are those of the repetitions, in order.
	Values []float64 `json:"values"`
	// Target is nil where nothing was promised.
	Target *Bound `json:"target,omitempty"`
	Held   bool   `json:"held"`
	// Miss is set where a known miss has missed again.
	Miss   *Miss    `json:"miss,omitempty"`
	Beside Readings `json:"beside,omitempty"`
}

// missed reports whether the figure breaks a promise.
func (f Figure) missed() bool { return f.Target != nil && !f.Held }

// figure makes a row's result from the readings of all repetitions.
func figure(experiment string, row Row, all []Readings, reference Readings) (Figure, error) {
	f := Figure{Row: experiment + "/" + row.Name, Issue: row.Issue, Unit: row.Unit, Held: true}
	for _, r := range all {
		f.Values = append(f.Values, row.Value(r))
	}
	f.Value = median(f.Values)
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
		f.Target, f.Held = &b, b.keeps(f.Value)
	}
	return f, nil
}

// verdicts compares the figures with the known misses: misses that nobody listed,
// and listed rows that hold.
func verdicts(figures []Figure, known map[string]Miss) (unlisted, mended []Figure) {
	for i := range figures {
		f := &figures[i]
		m, listed := known[f.Row]
		switch {
		case f.missed() && listed:
			f.Miss = &m
		case f.missed():
			unlisted = append(unlisted, *f)
		case listed:
			mended = append(mended, *f)
		}
	}
	return unlisted, mended
}

// write puts the report into the folder.
func (r Report) write(folder string) error {
	return writeJSON(filepath.Join(folder, r.Suite+".json"), r)
}

// readReports reads every suite's results in the folder, by suite.
func readReports(folder string) ([]Report, error) {
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
