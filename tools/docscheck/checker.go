package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// checker collects what is wrong and counts what was looked at. One goroutine uses it.
type checker struct {
	tree     *tree
	findings []finding
	count    counts
	needed   map[string]bool // Entries of excuses that were of use, by their keys.
	folder   string          // Where the block's commands are, after cd; "": at the root.
}

type finding struct {
	page string
	line int
	text string
}

// counts are what was checked.
type counts struct {
	links, external, names, commands, flags, keys, blocks, shown, run, excused int
}

// wrong notes a finding.
func (c *checker) wrong(page string, line int, format string, args ...any) {
	c.findings = append(c.findings, finding{page, line, fmt.Sprintf(format, args...)})
}

// excused says whether the table of excuses lets this pass on this page.
func (c *checker) excused(page, what string) bool {
	for _, e := range excuses() {
		if e.covers(page, what) {
			c.needed[e.key()] = true
			c.count.excused++
			return true
		}
	}
	return false
}

// excusesAreNeeded finds entries that excuse nothing any more. It comes last.
func (c *checker) excusesAreNeeded() {
	for _, e := range excuses() {
		if !c.needed[e.key()] && (e.page == "" || c.tree.pages[e.page] != nil) {
			c.wrong("tools/docscheck/reasons.go", 1, "nothing needs the excuse for %q on %q any more: remove it", e.what, e.page)
		}
	}
}

// report prints the findings in order, once each, and what was checked.
func (c *checker) report(out io.Writer) int {
	slices.SortStableFunc(c.findings, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.page, b.page), cmp.Compare(a.line, b.line))
	})
	for _, f := range slices.Compact(c.findings) {
		fmt.Fprintf(out, "%s:%d: %s\n", f.page, f.line, f.text)
	}
	n := c.count
	fmt.Fprintf(out, "docs: %d pages; %d links within, %d to elsewhere; %d names; %d commands with %d flags; %d configuration keys;\n"+
		"      %d blocks, of which %d are run by a test or compared with what is run (runs.go) and %d show output or drawings;\n"+
		"      %d things excused with a reason (reasons.go)\n",
		len(c.tree.pages), n.links, n.external, n.names, n.commands, n.flags, n.keys, n.blocks, n.run, n.shown, n.excused)
	if len(c.findings) > 0 {
		fmt.Fprintf(out, "docs: %d findings\n", len(slices.Compact(c.findings)))
		return 1
	}
	return 0
}
