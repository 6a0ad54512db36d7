package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxOutput is how much of one test's output is kept, in bytes: a test that
// logs in a loop until its deadline must not fill the memory of the machine.
const maxOutput = 1 << 20

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// summary follows one run. It is used by one goroutine.
type summary struct {
	out     io.Writer
	outputs map[string]map[string]*strings.Builder // package → test ("" for the package) → what it printed
	builds  map[string]*strings.Builder            // package → what its compiler printed
	broken  map[string]bool                        // packages with a failed test
	skips   []skip

	passed, failed, skipped int
	withoutTests            int
}

type skip struct{ pkg, test, reason string }

func newSummary(out io.Writer) *summary {
	return &summary{
		out:     out,
		outputs: make(map[string]map[string]*strings.Builder),
		builds:  make(map[string]*strings.Builder),
		broken:  make(map[string]bool),
	}
}

// read consumes the stream to its end. Lines that are not events are passed on:
// they are what the go command itself had to say.
func (s *summary) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				s.add(e)
			} else {
				s.print(line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading test events: %w", err)
		}
	}
}

func (s *summary) add(e event) {
	switch e.Action {
	case "build-output":
		if s.builds[e.ImportPath] == nil {
			s.builds[e.ImportPath] = new(strings.Builder)
		}
		keep(s.builds[e.ImportPath], e.Output)
	case "build-fail":
		if text := s.builds[e.ImportPath]; text != nil {
			s.print(text.String())
		}
	case "output":
		keep(s.output(e.Package, e.Test), e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
	}
}

func (s *summary) endTest(e event) {
	switch e.Action {
	case "pass":
		s.passed++
		delete(s.outputs[e.Package], e.Test)
	case "skip":
		s.skipped++
		s.skips = append(s.skips, skip{e.Package, e.Test, reason(s.output(e.Package, e.Test).String())})
		delete(s.outputs[e.Package], e.Test)
	case "fail":
		s.failed++
		s.broken[e.Package] = true
	}
}

// endPackage prints the package's line. What is still kept of a failed package
// is the output of tests that failed or never ended, and its own: a panic, a
// data race, a leaked goroutine, the seed of the shuffle.
func (s *summary) endPackage(e event) {
	switch e.Action {
	case "pass":
		s.print(fmt.Sprintf("ok  \t%s\t%.1fs\n", e.Package, e.Elapsed))
	case "skip":
		s.withoutTests++
	case "fail":
		for _, test := range slices.Sorted(maps.Keys(s.outputs[e.Package])) {
			s.print(s.outputs[e.Package][test].String())
		}
		if !s.broken[e.Package] {
			s.failed++ // The package itself: it did not build, panicked or timed out.
		}
		why := ""
		if e.FailedBuild != "" {
			why = " [build failed]"
		}
		s.print(fmt.Sprintf("FAIL\t%s\t%.1fs%s\n", e.Package, e.Elapsed, why))
	}
	delete(s.outputs, e.Package)
}

// close prints the skips and the counts, and says whether all is well.
func (s *summary) close() bool {
	if len(s.skips) > 0 {
		s.print("\nskipped:\n")
		slices.SortFunc(s.skips, func(a, b skip) int {
			return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.test, b.test))
		})
		for _, k := range s.skips {
			s.print(fmt.Sprintf("  %s %s: %s\n", k.pkg, k.test, k.reason))
		}
	}
	if s.withoutTests > 0 {
		s.print(fmt.Sprintf("\n%d packages hold no tests\n", s.withoutTests))
	}
	s.print(fmt.Sprintf("\n%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped))
	return s.failed == 0 && s.passed > 0
}

func (s *summary) output(pkg, test string) *strings.Builder {
	if s.outputs[pkg] == nil {
		s.outputs[pkg] = make(map[string]*strings.Builder)
	}
	if s.outputs[pkg][test] == nil {
		s.outputs[pkg][test] = new(strings.Builder)
	}
	return s.outputs[pkg][test]
}

// print leaves a failed write alone: there is nowhere else to report it.
func (s *summary) print(text string) { _, _ = io.WriteString(s.out, text) }

func keep(b *strings.Builder, text string) {
	switch {
	case b.Len() < maxOutput:
		b.WriteString(text)
	case b.Len() < maxOutput+len(cut):
		b.WriteString(cut)
	}
}

// cut marks where the output of a test was cut off.
const cut = "\n... more output is not kept ...\n"

// reason is what a skipped test said, without go test's own lines.
func reason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- SKIP") {
			continue
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}
