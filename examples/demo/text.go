package demo

import (
	"fmt"
	"strings"
)

// String returns the report as text with at most 80 columns. It is the content of report.txt, which
// Verify computes again.
func (rep *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pictures of %d prompts from %d simulated GPUs, scored by builtin://ocr\n",
		rep.Samples, len(rep.Groups), rep.About.GPUs)
	fmt.Fprintf(&b, "read by %s\n", rep.About.Reader)
	fmt.Fprintf(&b, "on %s\n", count(rep.About.Places, "place"))
	rep.groupTable(&b)
	rep.truthText(&b)
	rep.timeTable(&b)
	return b.String()
}

func (rep *Report) groupTable(b *strings.Builder) {
	b.WriteString("\nReward by prompt group\n\n")
	fmt.Fprintf(b, "  %-5s %-24s %7s %7s %7s %7s %7s\n", "uid", "target", "mean", "std", "truth", "scored", "failed")
	for _, g := range rep.Groups {
		fmt.Fprintf(b, "  %-5s %-24s %7s %7s %7s %7d %7d\n",
			clip(g.UID, 5), clip(g.Target, 24), three(g.Mean), three(g.Std), three(g.Truth), g.Scored, g.Failed)
	}
	fmt.Fprintf(b, "\n  %d scored, %d failed. Zero-std ratio %.3f (%d of %s): a group whose\n  rewards are all equal teaches nothing.\n",
		rep.Scored, rep.Samples-rep.Scored, float64(rep.ZeroStd)/float64(len(rep.Groups)), rep.ZeroStd, count(len(rep.Groups), "group"))
	const most = 5
	for _, f := range rep.Failures[:min(most, len(rep.Failures))] {
		fmt.Fprintf(b, "  %s\n", clip(f, 200))
	}
	if n := len(rep.Failures) - most; n > 0 {
		fmt.Fprintf(b, "  and %d more\n", n)
	}
}

func (rep *Report) truthText(b *strings.Builder) {
	b.WriteString("\nReward against the truth\n\n")
	if rep.Scored == 0 {
		b.WriteString("  No picture got a score.\n")
		return
	}
	fmt.Fprintf(b, "  mean absolute error %.4f; %d of %d exact", rep.Truth.MeanError, rep.Truth.Exact, rep.Scored)
	if rep.Truth.WorstID != "" {
		fmt.Fprintf(b, "; worst %.3f (%s)", rep.Truth.Worst, rep.Truth.WorstID)
	}
	b.WriteString("\n  What each picture really says is known, misspelt words included. The formula\n" +
		"  applied to that is the true reward (column truth); the error is the reader's.\n")
}

func (rep *Report) timeTable(b *strings.Builder) {
	b.WriteString("\nStep time, seconds\n\n")
	s, t := rep.Streaming, rep.Batch
	if s == nil || t == nil {
		b.WriteString("  Not shown: a sample without a score leaves the step unfinished.\n")
		return
	}
	row := func(name string, rollout, exposed float64, how string) {
		fmt.Fprintf(b, "  %-30s %9.3f %9.3f %9.3f  %s\n", name, rollout, exposed, rollout+exposed, how)
	}
	fmt.Fprintf(b, "  %-30s %9s %9s %9s\n", "", "rollout", "exposed", "step")
	row("batch after rollout", t.Rollout, t.Exposed, "measured")
	row("streaming", s.Rollout, s.Exposed, "measured")
	row("ideal queue, same arrivals", s.Rollout, s.IdealExposed, "simulated")
	row("F*, no schedule beats it", s.Rollout, s.BoundExposed, "computed")
	rep.comparison(b)
}

// comparison says in words what the table shows.
func (rep *Report) comparison(b *strings.Builder) {
	s, t := rep.Streaming, rep.Batch
	if saved := 1 - s.Makespan/t.Makespan; saved >= 0 {
		fmt.Fprintf(b, "\n  Streaming takes %.1f %% off the step", 100*saved)
	} else {
		fmt.Fprintf(b, "\n  Streaming took %.1f %% longer", -100*saved)
	}
	if eta := s.EfficiencyAgainst(t.Exposed); eta != nil && *eta >= 0 {
		fmt.Fprintf(b, ", hides %.1f %% of the reward time", 100**eta)
	}
	if s.OverBound != nil {
		fmt.Fprintf(b, "\n  and is %.4f times F*", *s.OverBound)
	}
	fmt.Fprintf(b, ". Exposed: what the trainer still waits after the last\n  rollout. The policy update is not simulated.\n")
	fmt.Fprintf(b, "  Reading a picture took %.0f ms (streaming) and %.0f ms (batch) on average;\n", 1e3*s.Score.Mean, 1e3*t.Score.Mean)
	if s.Load != nil {
		fmt.Fprintf(b, "  the rollout asks for %.0f %% of what the %s can do.\n", 100**s.Load, count(s.Servers, "place"))
	}
	if a, z := s.Score.Mean, t.Score.Mean; max(a, z) > unlike*min(a, z) {
		b.WriteString("  The two times are far apart: something else keeps this machine busy, and\n  the measured rows do not compare. The other two hold for the streaming run.\n")
	}
	fmt.Fprintf(b, "  %d of %d samples got the same score in both runs.\n", rep.Same, rep.Samples)
}

// unlike is the ratio of mean service times from which two runs do not compare.
const unlike = 1.25

// clip shortens a text to n runes.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func three(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.3f", *v)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
