package main

import (
	"os"
	"path/filepath"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// results is what a run found: a report as the other suites have it, and more.
type results struct {
	report.Report

	// Models are the files, Reference and Engine what ran them.
	Models    [2]string `json:"models"`
	Reference string    `json:"reference"`
	Engine    string    `json:"engine"`
	// Pictures by kind.
	Pictures map[string]int `json:"pictures"`
	// Errors are the mean errors on the golden pictures, by reader.
	Errors map[string]float64 `json:"errors"`
	Exact  map[string]float64 `json:"exact"`
	// Timings of each repetition, by reader.
	Timings map[string][]timing `json:"timings"`
	// Parity and Fast are the differences to RapidOCR, and of fast to parity mode: the
	// latter's rewards only.
	Parity []difference `json:"parity_differences"`
	Fast   []difference `json:"fast_differences"`
}

// Write puts the JSON file and the page into a folder.
func (r *results) Write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // results are for everybody
		return err
	}
	if err := report.WriteJSON(filepath.Join(folder, r.Suite+".json"), r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, r.Suite+".md"), []byte(r.page()), 0o644) //nolint:gosec // results are for everybody
}
