package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// The files of a demo, all in one folder.
const (
	ScoresFile  = "scores.jsonl"          // result of every sample, one per line
	TraceFile   = "trace.json"            // times of both runs, and descriptions of the samples
	TensorsFile = "rm_scores.safetensors" // tensors for the trainer
	ReportFile  = "report.txt"            // printed text
)

// maxFileBytes bounds what is read back.
const maxFileBytes = 256 << 20

// Save writes the demo and its report to a folder, which it makes if necessary. The files of an
// earlier demo are removed first, so that a folder never contains the files of two demos.
func (d *Demo) Save(dir string, report *Report) error {
	files, err := d.encode(report)
	if err != nil {
		return fmt.Errorf("saving the demo: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("saving the demo: %w", err)
	}
	var errs []error
	for _, name := range append(slices.Collect(maps.Keys(files)), PageFile) {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for name, data := range files {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), data, 0o644)) //nolint:gosec // results for everybody to read
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

func (d *Demo) encode(report *Report) (map[string][]byte, error) {
	trace, err := json.MarshalIndent(&d.Record, "", " ")
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for i := range d.Scores {
		if err := enc.Encode(&d.Scores[i]); err != nil {
			return nil, fmt.Errorf("sample %q: %w", d.Scores[i].ID, err)
		}
	}
	tensors, err := encodeRM(d.scores())
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		TraceFile: append(trace, '\n'), ScoresFile: lines.Bytes(), TensorsFile: tensors, ReportFile: []byte(report.String()),
	}, nil
}

func (d *Demo) scores() []*float64 {
	out := make([]*float64, len(d.Scores))
	for i := range d.Scores {
		out[i] = d.Scores[i].RewardScore
	}
	return out
}

// open reads trace.json and scores.jsonl of a folder.
func open(dir string) (*Demo, error) {
	d := new(Demo)
	data, err := readBounded(filepath.Join(dir, TraceFile), maxFileBytes)
	if err != nil {
		return nil, err
	}
	if err := strict(data, &d.Record); err != nil {
		return nil, fmt.Errorf("%s: %w", TraceFile, err)
	}
	if data, err = readBounded(filepath.Join(dir, ScoresFile), maxFileBytes); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var s Score
		if err := strict(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", ScoresFile, n, err)
		}
		d.Scores = append(d.Scores, s)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", ScoresFile, err)
	}
	return d, nil
}

// strict decodes one JSON value and refuses unknown names and anything after it.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON value")
	}
	return nil
}
