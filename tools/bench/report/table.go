package report

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// WriteTable makes the folder's README.md from its JSON files.
func WriteTable(folder string) error {
	reports, err := ReadReports(folder)
	if err != nil {
		return err
	}
	pictures, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "README.md"), []byte(table(reports, pictures)), 0o644) //nolint:gosec // results are for everybody
}

// table is the Markdown page of all results.
func table(reports []Report, pictures []string) string {
	var b strings.Builder
	b.WriteString("# Measured\n\nWritten by `make bench`, `make bench-python`, `make bench-step`, `make bench-isolation`, `make bench-bombs`, `make bench-capacity`, `make bench-queue`, `make bench-store`, `make bench-pymodels`, `make bench-gpu`, `make soak` and `make learn`\nfrom the JSON files beside it, that of `make bench-ocr` among them (more in `ocr.md`). CUDA: `gpu.md`. Figures are medians of the repetitions. A bare\n" +
		"figure is that of the calibration, which was measured in turn with ours. Where a target is scaled, the unscaled target was met\n" +
		"on the reference machine (`tools/bench/reference.json`).\n")
	for _, r := range reports {
		fmt.Fprintf(&b, "\n## %s\n\n%s", r.Suite, r.section(pictures...))
	}
	return b.String()
}

// section is what is told of a suite, with the pictures whose names begin with its name.
func (r Report) section(pictures ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n", r.About, r.origin())
	for _, file := range pictures {
		if name := filepath.Base(file); strings.HasPrefix(name, r.Suite) {
			fmt.Fprintf(&b, "![%s](%s)\n\n", strings.TrimSuffix(name, filepath.Ext(name)), name)
		}
	}
	b.WriteString("| figure | measured | target | held | beside |\n|---|---:|---:|---|---|\n")
	for _, f := range r.Rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", Cell(f.Row), f.Measured(), Cell(f.TargetText()), Cell(f.verdict()), Cell(f.beside()))
	}
	for _, f := range r.Rows {
		if f.Issue != "" {
			fmt.Fprintf(&b, "\n- `%s`: “%s”", f.Row, f.Issue)
		}
	}
	b.WriteString("\n")
	return b.String()
}

// origin says where and when.
func (r Report) origin() string {
	state := ""
	if r.Dirty {
		state = " with changes"
	}
	if r.Quick {
		state += ", quick: not a measurement"
	}
	others := ""
	if r.Disturbed > 0 {
		others = fmt.Sprintf(" Other processes disturbed %d of the repetitions: latencies and absolute rates are partly theirs.", r.Disturbed)
	}
	return fmt.Sprintf("%s, %d cores, %s, %s. Load %s before, %s after. Commit %s%s, %s, median of %d.%s",
		r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Go, r.LoadBefore, r.LoadAfter, r.Commit, state, r.Date, r.Repetitions, others)
}

// TargetText is the bound as it is written in a table; "–" if there is none.
func (f Figure) TargetText() string {
	if f.Target == nil {
		return "–"
	}
	sign := "≥"
	if f.Target.Most {
		sign = "≤"
	}
	s := sign + " " + With(f.Target.Value, f.Unit)
	if f.Target.Note != "" {
		s += " (" + f.Target.Note + ")"
	}
	return s
}

func (f Figure) verdict() string {
	switch {
	case f.Error != "":
		return "**not measured**: " + f.firstLine()
	case f.Target == nil:
		return "–"
	case f.Held:
		return "yes"
	case f.Miss != nil:
		return "**no**: " + f.Miss.Reason
	}
	return "**no**"
}

func (f Figure) beside() string {
	parts := make([]string, 0, len(f.Beside))
	for _, name := range slices.Sorted(maps.Keys(f.Beside)) {
		parts = append(parts, name+" "+Number(f.Beside[name]))
	}
	return strings.Join(parts, ", ")
}

// Measured is the value with its unit.
func (f Figure) Measured() string {
	if f.Error != "" {
		return "–"
	}
	return With(f.Value, f.Unit)
}

// firstLine is that of the error, without what a process has said.
func (f Figure) firstLine() string {
	line, _, _ := strings.Cut(f.Error, "\n")
	return line
}

// Line is the figure for a terminal.
func (f Figure) Line() string {
	if f.Error != "" {
		return fmt.Sprintf("%-30s %12s  %-8s not measured: %s", f.Row, f.Measured(), f.mark(), f.Error)
	}
	s := fmt.Sprintf("%-30s %12s  %-8s %s", f.Row, f.Measured(), f.mark(), f.TargetText())
	if b := f.beside(); b != "" {
		s += "  [" + b + "]"
	}
	return s
}

func (f Figure) mark() string {
	switch {
	case f.Target == nil:
		return ""
	case f.Held:
		return "holds"
	}
	return "MISSES"
}

// Cell keeps a text within its cell.
func Cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\r", "", "\n", " ").Replace(s)
}

// With is a figure with its unit.
func With(v float64, unit string) string {
	switch unit {
	case "":
		return Number(v)
	case "/s":
		return Number(v) + unit
	}
	return Number(v) + " " + unit
}

// Number writes four significant digits, whole numbers from 1,000 on with commas.
func Number(v float64) string {
	if a := math.Abs(v); a < 999.95 || math.IsInf(v, 0) || math.IsNaN(v) {
		digits := 3
		if a >= 0.09995 {
			digits = 3 - max(0, int(math.Floor(math.Log10(a)+1e-9)))
		}
		return trim(strconv.FormatFloat(v, 'f', digits, 64))
	}
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 {
		return "-" + s
	}
	return s
}

// trim removes zeros after the point.
func trim(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
