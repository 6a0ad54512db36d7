package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// tree is what the documents may speak of.
type tree struct {
	root, bin string
	files     map[string]bool // What git tracks or would, by its path below the root.
	folders   map[string]bool
	pages     map[string]*page
	sources   map[string]string // Text of what is no document, by path.
	targets   map[string]bool   // Of make.
	tests     map[string]string // Go tests, benchmarks, fuzz targets and examples: the file.
	flags     map[string]map[string]bool
	scorers   map[string]bool
	models    map[string]bool
}

// patience bounds every program that is asked something.
const patience = 60 * time.Second

// largest is the largest file that is read as text.
const largest = 1 << 20

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	makeTarget   = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	flagLine     = regexp.MustCompile(`(?m)^ +(?:-([a-z]), )?(?:    )?--([a-z][a-z0-9-]*)`)
	commandLine  = regexp.MustCompile(`(?m)^  ([a-z]+) +\S`)
)

// readTree reads the repository at root, and asks the program bin about itself.
func readTree(ctx context.Context, root, bin string) (*tree, error) {
	t := &tree{
		root: root, bin: bin, files: map[string]bool{}, folders: map[string]bool{},
		pages: map[string]*page{}, sources: map[string]string{}, targets: map[string]bool{},
		tests: map[string]string{}, flags: map[string]map[string]bool{},
		scorers: map[string]bool{}, models: map[string]bool{},
	}
	listed, err := output(ctx, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(listed, "\x00") {
		if info, err := os.Stat(filepath.Join(root, name)); name == "" || err != nil || info.IsDir() || info.Size() > largest {
			if err == nil && name != "" {
				t.have(name)
			}
			continue
		}
		t.have(name)
		if err := t.read(name); err != nil {
			return nil, err
		}
	}
	if len(t.pages) == 0 {
		return nil, fmt.Errorf("%s: git knows no Markdown file there", root)
	}
	return t, t.ask(ctx)
}

func (t *tree) have(name string) {
	t.files[name] = true
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		t.folders[dir] = true
	}
}

func (t *tree) read(name string) error {
	text, err := os.ReadFile(filepath.Join(t.root, name))
	switch {
	case err != nil:
		return err
	case path.Ext(name) == ".md":
		t.pages[name] = readPage(name, string(text))
		return nil
	case bytes.IndexByte(text, 0) >= 0 || strings.Contains(name, "testdata/"):
		return nil
	}
	t.sources[name] = string(text)
	if name == "Makefile" {
		for _, m := range makeTarget.FindAllStringSubmatch(string(text), -1) {
			t.targets[m[1]] = true
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			t.tests[m[1]] = name
		}
	}
	return nil
}

// ask takes from the program what it says of itself.
func (t *tree) ask(ctx context.Context) error {
	help, err := output(ctx, t.root, t.bin, "--help")
	if err != nil {
		return fmt.Errorf("%w; make build makes it", err)
	}
	for _, m := range commandLine.FindAllStringSubmatch(help, -1) {
		t.flags[m[1]] = map[string]bool{"help": true, "h": true}
		if err := t.askFlags(ctx, t.flags[m[1]], m[1]); err != nil {
			return err
		}
	}
	scorers, err := output(ctx, t.root, t.bin, "scorers", "--json")
	if err != nil {
		return err
	}
	var rewards struct{ Scorers []struct{ Name string } }
	if err := json.Unmarshal([]byte(scorers), &rewards); err != nil {
		return fmt.Errorf("rewardloop scorers --json: %w", err)
	}
	for _, r := range rewards.Scorers {
		t.scorers[r.Name] = true
	}
	listed, err := output(ctx, t.root, t.bin, "models", "list", "--json")
	if err != nil {
		return err
	}
	var known struct{ Models []struct{ Name string } }
	if err := json.Unmarshal([]byte(listed), &known); err != nil {
		return fmt.Errorf("models list --json: %w", err)
	}
	for _, m := range known.Models {
		t.models[m.Name] = true
	}
	return nil
}

// askFlags takes the flags of a command from its --help, and those of the commands below it.
func (t *tree) askFlags(ctx context.Context, flags map[string]bool, command ...string) error {
	said, err := output(ctx, t.root, t.bin, append(command, "--help")...)
	if err != nil {
		return err
	}
	for _, f := range flagLine.FindAllStringSubmatch(said, -1) {
		flags[f[1]], flags[f[2]] = true, true
	}
	_, below, _ := strings.Cut(said, "\nCommands:\n")
	for _, m := range commandLine.FindAllStringSubmatch(below, -1) {
		if err := t.askFlags(ctx, flags, append(command, m[1])...); err != nil {
			return err
		}
	}
	return nil
}

// paths are the pages' paths, in order.
func (t *tree) paths() []string {
	var all []string
	for name := range t.pages {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// exists says whether the repository has a file or folder of this name, which may have
// *, <name> and {a,b} in it.
func (t *tree) exists(name string) bool {
	name = strings.TrimSuffix(path.Clean(name), "/")
	if t.files[name] || t.folders[name] {
		return true
	}
	for _, pattern := range alternatives(name) {
		if !t.matches(pattern) {
			return false
		}
	}
	return true
}

var placeholder = regexp.MustCompile(`<[^>]*>|…`)

func (t *tree) matches(pattern string) bool {
	pattern = placeholder.ReplaceAllString(pattern, "*")
	for _, all := range []map[string]bool{t.files, t.folders} {
		for name := range all {
			if ok, err := path.Match(pattern, name); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// alternatives are the names that one with {a,b} stands for.
func alternatives(name string) []string {
	before, rest, found := strings.Cut(name, "{")
	inner, after, closed := strings.Cut(rest, "}")
	if !found || !closed {
		return []string{name}
	}
	var all []string
	for part := range strings.SplitSeq(inner, ",") {
		all = append(all, alternatives(before+strings.TrimSpace(part)+after)...)
	}
	return all
}

// output is what a program prints to its standard output.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // git, bash, python3 and the program under test
	cmd.Dir = dir
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return string(out), nil
}
