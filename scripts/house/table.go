package main

import (
	"fmt"
	"strconv"
	"strings"
)

// shown is how many of the largest files and longest functions are named.
const shown = 5

// table is the Markdown of all houses, a column for each.
func table(houses []house) string {
	var b strings.Builder
	row := func(name string, cell func(house) string) {
		b.WriteString("| " + name + " |")
		for _, h := range houses {
			b.WriteString(" " + cell(h) + " |")
		}
		b.WriteString("\n")
	}
	row("", func(h house) string { return h.name })
	b.WriteString("|---|" + strings.Repeat("---|", len(houses)) + "\n")
	row("packages", func(h house) string { return strconv.Itoa(h.packages) })
	row("files", func(h house) string { return strconv.Itoa(h.code.files) })
	row("lines", func(h house) string { return strconv.Itoa(h.code.lines) })
	row("of them comments", func(h house) string { return percent(h.code.comments, h.code.lines) })
	row("lines of tests", func(h house) string { return strconv.Itoa(h.tests.lines) })
	row("test-to-code ratio", func(h house) string { return fmt.Sprintf("%.2f", float64(h.tests.lines)/float64(h.code.lines)) })
	row("functions", func(h house) string { return strconv.Itoa(len(h.functions)) })
	row("function length, median", func(h house) string { return strconv.Itoa(at(h.functions, 0.5)) })
	row("function length, p90", func(h house) string { return strconv.Itoa(at(h.functions, 0.9)) })
	row("function length, p99", func(h house) string { return strconv.Itoa(at(h.functions, 0.99)) })
	row("file length, median", func(h house) string { return strconv.Itoa(at(h.files, 0.5)) })
	row("file length, p90", func(h house) string { return strconv.Itoa(at(h.files, 0.9)) })
	row("files over 500 lines", func(h house) string { return strconv.Itoa(longer(h.files, 500)) })
	row("functions over 90 lines", func(h house) string { return strconv.Itoa(longer(h.functions, 90)) })
	row("largest files", func(h house) string { return names(h.files) })
	row("longest functions", func(h house) string { return names(h.functions) })
	row(fmt.Sprintf("lines that stand elsewhere too, in runs of %d or more", window),
		func(h house) string {
			return fmt.Sprintf("%d (%s)", h.code.repeated, percent(h.code.repeated, h.code.lines))
		})
	row("the same of tests", func(h house) string {
		return fmt.Sprintf("%d (%s)", h.tests.repeated, percent(h.tests.repeated, h.tests.lines))
	})
	return b.String()
}

func longer(longestFirst []span, than int) int {
	n := 0
	for n < len(longestFirst) && longestFirst[n].lines > than {
		n++
	}
	return n
}

func names(longestFirst []span) string {
	var all []string
	for _, s := range longestFirst[:min(shown, len(longestFirst))] {
		all = append(all, fmt.Sprintf("`%s` %d", s.name, s.lines))
	}
	return strings.Join(all, "<br>")
}

func percent(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}
