package main

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/node"
)

const scorersText = `
Lists every reward that ships, with its options and their defaults. In the
configuration it is named by its path, builtin://<name>; options stand beside the
path, or under reward_kwargs of a custom_reward_function. A function in Python is named
by its file or module, and is called with the other keys of its entry.`

func scorers(_ context.Context, args []string, e env) int {
	fs := newFlags(e, "scorers", scorersText, "rewardloop scorers")
	if code, done := parse(fs, args, e); done {
		return code
	}
	s, err := node.NewScorers(config.Default())
	if err != nil {
		return complain(e, "scorers", exitFailure, err)
	}
	for i, spec := range s.Names() {
		if i > 0 {
			fmt.Fprintln(e.stdout)
		}
		path := "builtin://" + spec.Name
		if spec.Name == config.PythonScorer {
			path = "my_reward.py, pkg://module"
		}
		fmt.Fprintf(e.stdout, "%s\n  %s\n", path, spec.Summary)
		for _, o := range spec.Options {
			fmt.Fprintf(e.stdout, "    %-22s %-8s default %-12s %s\n", o.Name, o.Type, o.Default, o.Doc)
		}
	}
	if err := s.Close(); err != nil {
		return complain(e, "scorers", exitFailure, err)
	}
	return exitOK
}
