package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

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

// readMisses reads the list and reports everything that is wrong with it.
func readMisses(path string, known []string) (map[string]Miss, error) {
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
	rows := map[string]bool{}
	for _, name := range known {
		rows[name] = true
	}
	misses := map[string]Miss{}
	var errs []error
	fault := func(m Miss, what string) { errs = append(errs, fmt.Errorf("%s: row %q %s", path, m.Row, what)) }
	for _, m := range file.Misses {
		if strings.HasPrefix(m.Row, "ocr/") {
			continue // a row of bench/ocr, which reads the same list and judges its own
		}
		if _, twice := misses[m.Row]; twice {
			fault(m, "is listed twice")
		}
		if !rows[m.Row] {
			fault(m, "is not measured; rows are listed by -list")
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
