package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Miss is a row that is known to miss its target.
type Miss struct {
	// Row is the experiment's and the row's name.
	Row string `json:"row" yaml:"row"`
	// Measured is the value when it was listed, in the row's unit.
	Measured *float64 `json:"measured" yaml:"measured"`
	// Reason says why it is so and what would mend it.
	Reason string `json:"reason" yaml:"reason"`
}

// ReadMisses reads the part of the list that is about rows that are mine, and reports
// everything that is wrong with it. Rows are those that are measured.
func ReadMisses(path string, mine func(row string) bool, rows []string) (map[string]Miss, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("misses: %w", err)
	}
	var file struct {
		Misses []Miss `yaml:"misses"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	misses := map[string]Miss{}
	var errs []error
	fault := func(m Miss, what string) { errs = append(errs, fmt.Errorf("%s: row %q %s", path, m.Row, what)) }
	for _, m := range file.Misses {
		if !mine(m.Row) {
			continue // another program's, which judges it
		}
		if _, twice := misses[m.Row]; twice {
			fault(m, "is listed twice")
		}
		if !slices.Contains(rows, m.Row) {
			fault(m, "is not measured")
		}
		if m.Measured == nil {
			fault(m, "needs the measured value")
		}
		if m.Reason == "" {
			fault(m, "needs a reason")
		}
		misses[m.Row] = m
	}
	return misses, errors.Join(errs...)
}

// Judge compares the figures with the known misses, which it notes in them: misses that
// nobody listed, those among them that could not be measured, and listed rows that hold.
func Judge(figures []Figure, known map[string]Miss) (unlisted, mended []Figure) {
	for i := range figures {
		f := &figures[i]
		m, listed := known[f.Row]
		switch {
		case f.Missed() && listed && f.Error == "":
			f.Miss = &m
		case f.Missed():
			unlisted = append(unlisted, *f)
		case listed:
			mended = append(mended, *f)
		}
	}
	return unlisted, mended
}

// Tell says what is to be done about misses.
func Tell(figures, unlisted, mended []Figure, w io.Writer) {
	for _, f := range figures {
		if f.Miss != nil {
			fmt.Fprintf(w, "known miss: %s is %s, listed with %s: %s\n", f.Row, With(f.Value, f.Unit), With(*f.Miss.Measured, f.Unit), f.Miss.Reason)
		}
	}
	for _, f := range mended {
		fmt.Fprintf(w, "mended: %s is %s, target %s: take it out of tools/bench/misses.yml\n", f.Row, With(f.Value, f.Unit), f.TargetText())
	}
	for _, f := range unlisted {
		fmt.Fprintf(w, "MISS: %s is %s, target %s (%s)\n", f.Row, f.Measured(), f.TargetText(), f.Issue)
	}
}
