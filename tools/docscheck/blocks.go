package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// blocks checks that each block is of the language that it names.
func (c *checker) blocks(ctx context.Context) error {
	var python []snippet
	for _, name := range c.tree.paths() {
		for _, b := range c.tree.pages[name].blocks {
			c.count.blocks++
			switch {
			case isShell(b.language):
				text := shellText(b)
				c.shell(ctx, name, b.line, text)
				for _, d := range split(text, b.line).documents {
					python = append(python, c.document(name, d)...)
				}
			case b.language == "json" || b.language == "jsonl":
				c.json(name, b.line, b.text)
			case b.language == "go":
				c.golang(name, b.line, b.text)
			case b.language == "python":
				python = append(python, snippet{name, b.line, b.text})
			case b.language == "yaml" || b.language == "hydra": // settings.go
			case unchecked()[b.language] != "":
				c.count.shown++
			default:
				c.wrong(name, b.line-1, "this block says %q for its language: want sh, python, go, yaml, json, hydra, or text for output and drawings", b.language)
			}
		}
	}
	return c.pythons(ctx, python)
}

// document checks a file that a block writes; yaml is for settings.go.
func (c *checker) document(name string, d document) []snippet {
	switch path.Ext(d.name) {
	case ".json", ".jsonl":
		c.json(name, d.line, d.text)
	case ".py":
		return []snippet{{name, d.line, d.text}}
	}
	return nil
}

// shell has bash read a script without running it.
func (c *checker) shell(ctx context.Context, name string, line int, text string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-n")
	cmd.Stdin = strings.NewReader(text)
	said, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	c.wrong(name, line, "bash cannot read this block: %s", strings.TrimPrefix(first, "bash: "))
}

// json wants one value, or values one after the other, as in a file with one a line.
func (c *checker) json(name string, line int, text string) {
	dec := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			end := dec.InputOffset()
			if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
				end = syntax.Offset
			}
			at := strings.Count(text[:min(int(end), len(text))], "\n")
			c.wrong(name, line+at, "this is not JSON: %v", err)
			return
		}
	}
}

// golang wants a file, declarations or statements.
func (c *checker) golang(name string, line int, text string) {
	var first error
	for _, form := range []string{"%s", "package p\n%s", "package p\nfunc _() {\n%s\n}"} {
		_, err := parser.ParseFile(token.NewFileSet(), name, fmt.Sprintf(form, text), parser.SkipObjectResolution)
		if err == nil {
			return
		}
		if first == nil || form == "%s" == strings.HasPrefix(strings.TrimSpace(text), "package ") {
			first = err
		}
	}
	c.wrong(name, line, "this is no Go, neither a file nor declarations nor statements: %v", first)
}

// snippet is a piece of Python, with its place.
type snippet struct {
	page string
	line int
	text string
}

// reader is the program that reads all snippets, in one process: await may stand
// outside of a function, as in a notebook.
const reader = `
import ast, json, sys
found = []
for text in json.load(sys.stdin):
    try:
        compile(text, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        found.append(None)
    except SyntaxError as e:
        found.append([e.lineno or 1, e.msg])
json.dump(found, sys.stdout)
`

func (c *checker) pythons(ctx context.Context, all []snippet) error {
	if len(all) == 0 {
		return nil
	}
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = s.text
	}
	in, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	interpreter := "python3"
	if venv := filepath.Join(c.tree.root, ".venv", "bin", "python"); exists(venv) {
		interpreter = venv
	}
	cmd := exec.CommandContext(ctx, interpreter, "-c", reader) //nolint:gosec // python3, or that of the clone
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(in)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("python blocks: %w", err)
	}
	var found [][]any
	if err := json.Unmarshal(out, &found); err != nil || len(found) != len(all) {
		return fmt.Errorf("python blocks: %d answers for %d: %w", len(found), len(all), err)
	}
	for i, fault := range found {
		if fault == nil {
			continue
		}
		line, _ := strconv.Atoi(fmt.Sprint(fault[0]))
		c.wrong(all[i].page, all[i].line+line-1, "Python cannot read this block: %v", fault[1])
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
