package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CardRun is what scripts/gpu-run.sh leaves of a bundle that it ran.
type CardRun struct {
	Date   string `json:"date"`
	Bundle struct {
		Version     string `json:"version"`
		Target      string `json:"target"`
		Arch        string `json:"arch"`
		ONNXRuntime string `json:"onnxruntime"`
	} `json:"bundle"`
	// Device is cuda:<n>, or cpu where there was no card.
	Device string `json:"device"`
	Cards  string `json:"cards"` // as nvidia-smi tells them
	Tests  struct {
		Passed  int  `json:"passed"`
		Failed  int  `json:"failed"`
		Skipped int  `json:"skipped"`
		Held    bool `json:"held"`
	} `json:"tests"`
	BenchExit int     `json:"bench_exit"`
	Seconds   int     `json:"seconds"`
	Report    *Report `json:"report"` // nil: the bench did not come to its end
}

// cardless is the device of a run without a card.
const cardless = "cpu"

// WriteCards makes gpu.md in a folder of results from what scripts/gpu-run.sh left, and where
// that was on a card the suite's JSON file and the page of all results too. A run without a card
// does not take the place of one on a card.
func WriteCards(from, folder string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var run CardRun
	if err := json.Unmarshal(text, &run); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if run.Date == "" || run.Device == "" {
		return fmt.Errorf("%s is not what scripts/gpu-run.sh leaves: it has no date and no device", from)
	}
	results := filepath.Join(folder, "gpu.json")
	if _, err := os.Stat(results); err == nil && run.Device == cardless {
		return fmt.Errorf("%s is of a run on a card, and %s is not: it stays", results, from)
	}
	if run.Device != cardless && run.Report != nil {
		if err := errors.Join(run.Report.Write(folder), WriteTable(folder)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "gpu.md"), []byte(run.page()), 0o644) //nolint:gosec // results are for everybody
}

// page is gpu.md.
func (c CardRun) page() string {
	var b strings.Builder
	b.WriteString("# CUDA\n\nWritten by `make gpu-results` from what `scripts/gpu-run.sh` leaves of a bundle (`docs/gpu.md`).\n\n")
	day, _, _ := strings.Cut(c.Date, "T")
	if c.Device == cardless {
		fmt.Fprintf(&b, "**Not measured on a card: none was at hand on %s.** The GPU code compiles, but it has never run on a GPU.\n"+
			"The bundle ran that day on the CPU with tiny models: its figures show that the tests and the bench work, and say nothing about CUDA.\n\n", day)
	} else {
		fmt.Fprintf(&b, "**Measured on %s on %s** (%s).\n\n", day, cmp.Or(c.Cards, "a card that nvidia-smi does not tell"), c.Device)
	}
	held := "all held"
	if !c.Tests.Held {
		held = "**not all held**"
	}
	fmt.Fprintf(&b, "Bundle %s for %s and %s, ONNX Runtime %s, %d s in all. Tests: %d passed, %d failed, %d skipped: %s.\n",
		c.Bundle.Version, c.Bundle.Target, c.Bundle.Arch, c.Bundle.ONNXRuntime, c.Seconds, c.Tests.Passed, c.Tests.Failed, c.Tests.Skipped, held)
	if c.Report == nil {
		fmt.Fprintf(&b, "\nThe bench did not come to its end (exit code %d).\n", c.BenchExit)
		return b.String()
	}
	b.WriteString("\n" + c.Report.section())
	return b.String()
}
