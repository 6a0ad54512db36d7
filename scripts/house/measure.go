package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// span is something with a length: a file or a function.
type span struct {
	name  string
	lines int
}

// house is what was measured of one tree.
type house struct {
	name      string
	packages  int // folders with Go that is no test
	code      part
	tests     part
	functions []span // of the code, longest first
	files     []span // of the code, longest first
}

// part is a kind of Go: what ships, or its tests.
type part struct {
	files    int
	lines    int // as wc counts them
	comments int // lines that hold nothing but a comment
	repeated int // lines in runs of window or more that stand elsewhere too
}

// measure reads the Go below a folder.
func measure(folder string) (house, error) {
	var (
		h           house
		code, tests = newRuns(), newRuns()
		packages    = map[string]bool{}
	)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && skipped(entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		p, seen := &h.code, code
		if isTest(name) {
			p, seen = &h.tests, tests
		}
		lines := bytes.Count(source, []byte("\n"))
		p.files++
		p.lines += lines
		p.comments += seen.add(source)
		if p == &h.tests {
			return nil
		}
		packages[filepath.Dir(path)] = true
		h.files = append(h.files, span{name, lines})
		functions, err := functionsOf(name, source)
		h.functions = append(h.functions, functions...)
		return err
	})
	if err != nil {
		return house{}, err
	}
	if h.code.files == 0 || len(h.functions) == 0 {
		return house{}, errors.New("holds no Go: name the root of a tree")
	}
	h.packages = len(packages)
	h.code.repeated, h.tests.repeated = code.repeated(), tests.repeated()
	for _, spans := range [][]span{h.files, h.functions} {
		slices.SortFunc(spans, func(a, b span) int {
			if a.lines != b.lines {
				return b.lines - a.lines
			}
			return strings.Compare(a.name, b.name)
		})
	}
	return h, nil
}

func skipped(folder string) bool {
	return folder == "testdata" || strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_")
}

func isTest(name string) bool {
	return strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/testkit/")
}

// functionsOf lists the functions and methods of a file, from the line of their name to
// that of their last brace.
func functionsOf(name string, source []byte) ([]span, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []span
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		all = append(all, span{name + " " + f.Name.Name, set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1})
	}
	return all, nil
}

// at is the length at a share of the spans, counted from the shortest: 0.5 is the median.
func at(longestFirst []span, share float64) int {
	if len(longestFirst) == 0 {
		return 0
	}
	return longestFirst[int(math.Round(float64(len(longestFirst)-1)*(1-share)))].lines
}
