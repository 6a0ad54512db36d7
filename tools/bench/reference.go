package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// Reference is what the calibrations reached on a quiet machine: where they reach
// it again, absolute targets hold unscaled.
type Reference struct {
	Machine report.Machine `json:"machine"`
	Date    string         `json:"date"`
	Load    string         `json:"load"`
	// Calibrations are by experiment and reading.
	Calibrations map[string]Readings `json:"calibrations"`
}

// readReference reads the committed figures; without a file there are none.
func readReference(path string) (Reference, error) {
	r := Reference{Calibrations: map[string]Readings{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("reference: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// write replaces the file.
func (r Reference) write(path string) error { return report.WriteJSON(path, r) }
