package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/node"
)

const configText = `
config check reads a configuration as serve would and reports everything that is
wrong, each fault with its line, and where rewards differ from verl-omni's. It exits
with 2 if anything is wrong. config print writes the configuration as it will be
used: defaults filled in, overrides and environment applied, secrets left out.`

const configExample = `
rewardloop config check -c cfg.yaml
rewardloop config print -c cfg.yaml loop.max_bytes=2GiB`

func configure(_ context.Context, args []string, e env) int {
	fs := newFlags(e, "config", configText, configExample)
	file := fs.String("c", "", "configuration `file` (YAML); none: overrides only")
	what := ""
	if len(args) > 0 && args[0][:min(1, len(args[0]))] != "-" {
		what, args = args[0], args[1:]
	}
	if code, done := parse(fs, args, e); done {
		return code
	}
	if what != "check" && what != "print" {
		return complain(e, "config", exitUsage, errors.New("say check or print; see --help"))
	}
	cfg, err := config.Load(*file, fs.Args(), e.getenv)
	if err != nil {
		return complain(e, "config", exitUsage, err)
	}
	if what == "print" {
		if err := cfg.Print(e.stdout); err != nil {
			return complain(e, "config", exitFailure, err)
		}
		return exitOK
	}
	for _, n := range cfg.Notes() {
		fmt.Fprintln(e.stdout, "note:", n)
	}
	n, err := node.New(node.Options{Config: cfg})
	if err != nil {
		return complain(e, "config", exitUsage, err)
	}
	n.Stop()
	fmt.Fprintf(e.stdout, "ok: %d rewards\n", len(cfg.Profiles))
	return exitOK
}
