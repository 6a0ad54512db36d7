package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// page is the report for people.
func (r *results) page() string {
	var b strings.Builder
	quick := ""
	if r.Quick {
		quick = " **Quick: too few pictures to mean anything.**"
	}
	dirty := ""
	if r.Dirty {
		dirty = " with changes"
	}
	fmt.Fprintf(&b, "# Reading text: ours and RapidOCR\n\nWritten by `make bench-ocr`. %s\n\nModels %s and %s. %s; ours on %s. %s, %d cores, %s, %s. Load %s before, %s after. Commit %s%s, %s.%s\n",
		r.About, r.Models[0], r.Models[1], r.Reference, r.Engine, r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Go, r.LoadBefore, r.LoadAfter, r.Commit, dirty, r.Date, quick)

	b.WriteString("\n## Targets\n\n| | measured | target | held |\n|---|---:|---:|---|\n")
	for _, f := range r.Rows {
		held := "yes"
		switch {
		case f.Target == nil:
			held = "–"
		case f.Miss != nil:
			held = "**no**: " + f.Miss.Reason
		case !f.Held:
			held = "**no**"
		}
		fmt.Fprintf(&b, "| %s | %.4g%s | %s | %s |\n", report.Cell(f.Issue), f.Value, report.Cell(beside(f.Beside)), f.TargetText(), report.Cell(held))
	}

	b.WriteString("\n## Rewards on the golden pictures\n\nMean absolute difference between flow_grpo's reward for the text read and that for the text written on the picture, and the share of pictures without a difference.\n\n| reader | error | exact |\n|---|---:|---:|\n")
	for _, name := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(&b, "| %s | %.5f | %.1f %% |\n", name, r.Errors[name], 100*r.Exact[name])
	}

	b.WriteString("\n## Speed on the golden pictures\n\nMeasured in turn on the same cores; medians. The column *others* has the most cores that other programs used in any repetition.\n\n| reader | pictures/s | CPU a picture | of it outside of ONNX Runtime's processes | others |\n|---|---:|---:|---:|---:|\n")
	for _, name := range slices.Sorted(maps.Keys(r.Timings)) {
		t := r.Timings[name]
		column := func(of func(timing) float64) []float64 {
			out := make([]float64, len(t))
			for i := range t {
				out[i] = of(t[i])
			}
			return out
		}
		share := "–"
		if o := report.Median(column(func(t timing) float64 { return t.Own })); o > 0 {
			share = fmt.Sprintf("%.1f ms", o)
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.0f ms | %s | %.1f cores |\n", name, report.Median(column(func(t timing) float64 { return t.Rate })),
			report.Median(column(func(t timing) float64 { return t.CPU })), share, slices.Max(column(func(t timing) float64 { return t.Others })))
	}

	b.WriteString("\n## Pictures\n\n")
	for _, kind := range slices.Sorted(maps.Keys(r.Pictures)) {
		fmt.Fprintf(&b, "- %s: %d\n", kind, r.Pictures[kind])
	}
	differences(&b, "Where parity mode and RapidOCR differ", r.Parity)
	differences(&b, "Where fast mode's rewards are not parity mode's", r.Fast)
	return b.String()
}

func differences(b *strings.Builder, title string, all []difference) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if len(all) == 0 {
		b.WriteString("Nowhere.\n")
		return
	}
	b.WriteString("| picture | kind | what | cause |\n|---|---|---|---|\n")
	for _, d := range all {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", d.File, d.Kind, report.Cell(d.What), report.Cell(d.Cause))
	}
}

func beside(m map[string]float64) string {
	parts := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %.4g", name, m[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
