package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/rewards"
)

const scorersText = `
Lists every reward that ships, with its options and their defaults; with names, those
alone. In the configuration it is named by its path, builtin://<name>; options stand
beside the path, or under reward_kwargs of a custom_reward_function. A function in Python
is named by its file or module, and is called with the other keys of its entry; a
service is named by its address.

"At a time" says how many calls a process executes at once, from which a reward's
capacity follows; concurrency at the entry sets it. rewardloop config print shows what
comes of it.

What each measures, and from where its formula is: rewards/<name>/README.md.`

func scorers(_ context.Context, args []string, e env) int {
	fs := newFlags(e, "scorers", scorersText, "rewardloop scorers ocr gsm8k")
	if code, done := parse(fs, args, e); done {
		return code
	}
	names := fs.Args()
	s, err := node.NewScorers(config.Default(), nil)
	if err != nil {
		return complain(e, "scorers", exitFailure, err)
	}
	for i, name := range names {
		names[i] = strings.TrimPrefix(name, "builtin://")
		if _, ok := s.Registry.Spec(names[i]); !ok {
			err := fmt.Errorf("no reward is named %q; known are %s", name, strings.Join(s.Registry.Names(), ", "))
			_ = s.Close() // nothing has begun
			return complain(e, "scorers", exitUsage, err)
		}
	}
	first := true
	for _, spec := range s.Names() {
		if len(names) > 0 && !slices.Contains(names, spec.Name) {
			continue
		}
		if !first {
			fmt.Fprintln(e.stdout)
		}
		first = false
		describeScorer(e.stdout, spec)
	}
	if err := s.Close(); err != nil {
		return complain(e, "scorers", exitFailure, err)
	}
	return exitOK
}

// describeScorer prints one: path, what it is, and a paragraph for each option.
func describeScorer(w io.Writer, spec rewards.Spec) {
	path := "builtin://" + spec.Name
	switch spec.Name {
	case config.PythonScorer:
		path = "my_reward.py, pkg://module"
	case config.HTTPScorer:
		path = "http://host:port, https://host:port"
	}
	fmt.Fprintln(w, path)
	paragraph(w, "  ", spec.Summary)
	paragraph(w, "  ", "At a time: "+cmp.Or(spec.Concurrency, "a call for each CPU")+".")
	width := 0
	for _, o := range spec.Options {
		width = max(width, len(o.Name))
	}
	for _, o := range spec.Options {
		fmt.Fprintf(w, "    %-*s  %s, default %s\n", width, o.Name, o.Type, o.Default)
		paragraph(w, strings.Repeat(" ", width+6), o.Doc)
	}
}

// lineWidth is what a terminal shows without breaking.
const lineWidth = 100

// paragraph prints a text in lines that begin with indent.
func paragraph(w io.Writer, indent, text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = indent + word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineWidth:
			fmt.Fprintln(w, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	if line != "" {
		fmt.Fprintln(w, line)
	}
}
