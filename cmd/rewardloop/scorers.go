package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/python/rewardloop/scorers"
	"github.com/rewardloop/rewardloop/rewards"
)

const scorersText = `
Lists every reward of this program, one per line: its name, what it scores, and
what it needs in addition to this program. With names, scorers prints the
options of these rewards, the defaults, and the number of calls that a process
executes at the same time ("at a time"). That number determines the capacity of
a reward; the key concurrency of the entry sets it.

A configuration refers to a reward by its path, builtin://NAME. The options are
in the same entry as the path, or in reward_kwargs of a custom_reward_function.
The path of a Python function is its file or module, and the other keys of the
entry are its arguments. The path of a service is its address.

A path scorer://NAME refers to a reward model of the catalogue. The model runs
in Python, in its own environment, which rewardloop env make creates. With the
name of such a model, scorers prints its inputs, range, licences and downloads.

rewards/NAME/README.md describes what a reward measures, and the source of its
formula.`

// scorerRow is a reward in scorers --json.
type scorerRow struct {
	Name        string         `json:"name"`
	Path        string         `json:"path"` // in the configuration
	Summary     string         `json:"summary"`
	Needs       string         `json:"needs"` // "": nothing
	Concurrency string         `json:"concurrency"`
	Options     []scorerOption `json:"options"`
	// Catalogue is what the catalogue says of a scorer://NAME; nil: it is none.
	Catalogue *scorers.Entry `json:"catalogue,omitempty"`
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
		Short:      "list the rewards of this program; with a name, its options",
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
	requirements := cmd.Flags().Bool("requirements", false, "print the packages of scorer://NAME as a requirements file")
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		rows, err := scorerRows(names)
		switch {
		case err != nil:
			return err
		case *requirements && (len(rows) != 1 || rows[0].Catalogue == nil):
			return errors.New("--requirements goes with one name of the catalogue, such as scorer://pickscore")
		case *requirements:
			fmt.Fprint(e.stdout, rows[0].Catalogue.Requirements)
			return nil
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
	var rows []scorerRow
	for _, spec := range s.Names() {
		rows = append(rows, rowOf(spec))
	}
	for _, entry := range scorers.All() {
		rows = append(rows, rowOfEntry(entry))
	}
	if len(names) == 0 {
		return rows, nil
	}
	wanted := map[string]bool{}
	for _, name := range names {
		found := rowsNamed(rows, name)
		if len(found) == 0 {
			known := append(s.Registry.Names(), scorers.Names()...)
			bare := strings.TrimPrefix(strings.TrimPrefix(name, "builtin://"), scorers.Scheme)
			return nil, wrong(fmt.Errorf("no reward named %q%s\n`rewardloop scorers` lists the names", name, config.DidYouMean(bare, known)))
		}
		for _, path := range found {
			wanted[path] = true
		}
	}
	return slices.DeleteFunc(rows, func(r scorerRow) bool { return !wanted[r.Path] }), nil
}

// rowsNamed are the paths of the rewards that a word names: by its path one, by its bare name also
// two, where the catalogue has one that ships as well.
func rowsNamed(rows []scorerRow, name string) (paths []string) {
	for _, r := range rows {
		if name == r.Path || name == "builtin://"+r.Name || name == strings.TrimPrefix(r.Name, scorers.Scheme) {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// rowOfEntry is a reward model of the catalogue.
func rowOfEntry(entry *scorers.Entry) scorerRow {
	r := scorerRow{
		Name: entry.Path(), Path: entry.Path(), Summary: entry.Summary, Needs: "environment", Catalogue: entry,
		Concurrency: "a batch for each process, num_replicas processes on each of its devices", Options: []scorerOption{},
	}
	for _, o := range entry.Options {
		r.Options = append(r.Options, scorerOption(o))
	}
	if entry.Accept != "" {
		r.Options = append(r.Options, scorerOption{
			Name: "accept_license", Type: "string", Default: "none", Doc: entry.Accept + ": you agree to it. Without it the entry is refused",
		})
	}
	return r
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
	fmt.Fprintln(e.stdout, "\n`rewardloop scorers NAME` prints the options of a reward; its path in a configuration is builtin://NAME")
}

// describeScorer prints one: path, what it is, and a paragraph for each option.
func describeScorer(w io.Writer, r scorerRow) {
	fmt.Fprintln(w, r.Path)
	paragraph(w, "  ", r.Summary)
	paragraph(w, "  ", "At a time: "+r.Concurrency+".")
	if r.Catalogue != nil {
		describeEntry(w, r.Catalogue)
	}
	width := 0
	for _, o := range r.Options {
		width = max(width, len(o.Name))
	}
	for _, o := range r.Options {
		fmt.Fprintf(w, "    %-*s  %s, default %s\n", width, o.Name, o.Type, o.Default)
		paragraph(w, strings.Repeat(" ", width+6), o.Doc)
	}
}

// describeEntry prints what the catalogue says of a reward model beside its options.
func describeEntry(w io.Writer, e *scorers.Entry) {
	line := func(format string, args ...any) { paragraph(w, "  ", fmt.Sprintf(format, args...)) }
	line("Inputs from the sample: %s.", strings.Join(e.Inputs, ", "))
	line("Range: %s.", e.Range)
	for _, c := range e.Columns {
		line("Column %s: %s.", c.Name, c.Doc)
	}
	line("Formula: %s", e.Source)
	line("Code: %s (%s).", e.Code.Name, e.Code.URL)
	for _, weight := range e.Weights {
		line("Downloads: %s, about %s, %s (%s).", weight.Name, megabytes(weight.Bytes), weight.Licence.Name, weight.URL)
	}
	if e.Accept != "" {
		line("Licence to accept: write accept_license: %s beside the path.", e.Accept)
	}
	line("Environment: Python %s, %s.", e.Python, strings.Join(strings.Fields(e.Requirements), ", "))
	if len(e.ByHand) == 0 {
		line("`rewardloop env make -c cfg.yaml%s` creates this environment.", e.Flags())
	} else {
		line("`rewardloop env make` cannot create this environment. Run the following commands, and set the key interpreter of the entry to the Python program of the environment:")
		for _, command := range e.ByHand {
			fmt.Fprintln(w, "    "+command)
		}
	}
	for _, note := range e.Notes {
		line("- %s", note)
	}
	line("Tested: %s.", e.Tested)
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
