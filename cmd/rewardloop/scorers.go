package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

const scorersText = `
Lists every reward that ships, in a line each: its name, what it scores and what
it needs beside this program. With names it says all about those: options, their
defaults, and how many calls a process executes at once ("at a time"), from
which a reward's capacity follows; concurrency at the entry sets it.

In the configuration a reward is named by its path, builtin://NAME; options
stand beside the path, or under reward_kwargs of a custom_reward_function. A
function in Python is named by its file or module, and is called with the other
keys of its entry; a service is named by its address.

What each measures, and from where its formula is: rewards/NAME/README.md.`

// scorerRow is a reward in scorers --json.
type scorerRow struct {
	Name        string         `json:"name"`
	Path        string         `json:"path"` // in the configuration
	Summary     string         `json:"summary"`
	Needs       string         `json:"needs"` // "": nothing
	Concurrency string         `json:"concurrency"`
	Options     []scorerOption `json:"options"`
}

type scorerOption struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

func scorersCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "scorers [NAME...]", GroupID: groupPrepare,
		SuggestFor: []string{"list", "ls", "rewards", "graders"},
		Short:      "list the rewards that ship; with a name, its options",
		Long:       scorersText, Example: "rewardloop scorers\nrewardloop scorers ocr gsm8k",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if rows, err := scorerRows(nil); err == nil {
				for _, r := range rows {
					names = append(names, cobra.CompletionWithDesc(r.Name, r.Summary))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		rows, err := scorerRows(names)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return e.json(map[string]any{"scorers": rows})
		case len(names) == 0:
			listScorers(e, rows)
			return nil
		}
		for i, r := range rows {
			if i > 0 {
				fmt.Fprintln(e.stdout)
			}
			describeScorer(e.stdout, r)
		}
		return nil
	}
	return cmd
}

// scorerRows are the rewards of these names, or all.
func scorerRows(names []string) ([]scorerRow, error) {
	s, err := node.NewScorers(config.Default(), nil)
	if err != nil {
		return nil, failed(err)
	}
	defer s.Close() // nothing was started
	var wanted []string
	for _, name := range names {
		bare := strings.TrimPrefix(name, "builtin://")
		if _, ok := s.Registry.Spec(bare); !ok {
			return nil, wrong(fmt.Errorf("no reward is named %q%s\n`rewardloop scorers` lists the names", name, config.DidYouMean(bare, s.Registry.Names())))
		}
		wanted = append(wanted, bare)
	}
	var rows []scorerRow
	for _, spec := range s.Names() {
		if len(names) == 0 || slices.Contains(wanted, spec.Name) {
			rows = append(rows, rowOf(spec))
		}
	}
	return rows, nil
}

func rowOf(spec rewards.Spec) scorerRow {
	r := scorerRow{
		Name: spec.Name, Path: "builtin://" + spec.Name, Summary: spec.Summary, Needs: needsOf(spec),
		Concurrency: cmp.Or(spec.Concurrency, "a call for each CPU"), Options: []scorerOption{},
	}
	switch spec.Name {
	case config.PythonScorer:
		r.Path = "my_reward.py, pkg://module"
	case config.HTTPScorer:
		r.Path = "http://host:port, https://host:port"
	}
	for _, o := range spec.Options {
		r.Options = append(r.Options, scorerOption(o))
	}
	return r
}

// needsOf is what a reward needs beside this program, in a word.
func needsOf(spec rewards.Spec) string {
	has := func(name string) bool {
		return slices.ContainsFunc(spec.Options, func(o rewards.Option) bool { return o.Name == name })
	}
	switch {
	case spec.Name == config.PythonScorer:
		return "Python"
	case spec.AsksEngine:
		return "engine"
	case has("model"):
		return "model"
	case spec.Name == config.HTTPScorer, has("url"), has("base_url"):
		return "service"
	}
	return ""
}

// listScorers prints a line for each; on a terminal it is cut where that ends.
func listScorers(e *env, rows []scorerRow) {
	t := newTable(e, "name", "needs", "scores")
	for _, r := range rows {
		t.row(r.Name, cmp.Or(r.Needs, "-"), r.Summary)
	}
	t.print()
	fmt.Fprintln(e.stdout, "\n`rewardloop scorers NAME` says all about one; a configuration names it by builtin://NAME")
}

// describeScorer prints one: path, what it is, and a paragraph for each option.
func describeScorer(w io.Writer, r scorerRow) {
	fmt.Fprintln(w, r.Path)
	paragraph(w, "  ", r.Summary)
	paragraph(w, "  ", "At a time: "+r.Concurrency+".")
	width := 0
	for _, o := range r.Options {
		width = max(width, len(o.Name))
	}
	for _, o := range r.Options {
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
