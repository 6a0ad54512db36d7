package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// report is what a run found, in the form of the other suites' reports, and more.
type report struct {
	Suite       string `json:"suite"`
	About       string `json:"about"`
	Date        string `json:"date"`
	Commit      string `json:"commit"`
	Dirty       bool   `json:"dirty"`
	Machine     host   `json:"machine"`
	LoadBefore  string `json:"load_before"`
	LoadAfter   string `json:"load_after"`
	Quick       bool   `json:"quick,omitempty"`
	Repetitions int    `json:"repetitions"`
	Disturbed   int    `json:"disturbed,omitempty"`
	Rows        []row  `json:"rows"`

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

type host struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	Go    string `json:"go"`
	OS    string `json:"os"`
}

func thisHost() host {
	h := host{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return h
	}
	for l := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			h.CPU = strings.TrimSpace(value)
			break
		}
	}
	return h
}

// loadAverage is the machine's load of the last one, five and fifteen minutes.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// commit is the tree's, and whether files differ from it.
func commit(ctx context.Context, root string) (hash string, dirty bool) {
	git := func(args ...string) (string, bool) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output() //nolint:gosec // our own arguments
		return strings.TrimSpace(string(out)), err == nil
	}
	hash, ok := git("rev-parse", "--short=12", "HEAD")
	if !ok {
		return "unknown", false
	}
	changed, ok := git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results", ":!bench/reference.json")
	return hash, !ok || changed != ""
}

// write puts the JSON file and the page into a folder.
func (r *report) write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // results are for everybody
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{r.Suite + ".json": append(data, '\n'), r.Suite + ".md": []byte(r.page())} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil { //nolint:gosec // results are for everybody
			return err
		}
	}
	return nil
}
