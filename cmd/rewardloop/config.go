package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/rewards"
)

const configText = `
config check reads a configuration as serve would and reports everything that is
wrong, each fault with its line, and where rewards differ from verl-omni's. Python files
are imported for it, in a process of their own and for 10 s at most, and their options
compared with what the functions take. It exits with 2 if anything is wrong. config print writes the configuration as it will be
used: defaults filled in, overrides and environment applied, secrets left out; and, as
comments at its end, how many samples of each reward a process on this machine scores at
a time, and why (docs/tuning.md). config schema writes a JSON Schema of the file, by which
editors complete and check keys (docs/configuration.md).`

const configExample = `
rewardloop config check -c cfg.yaml
rewardloop config print -c cfg.yaml loop.max_bytes=2GiB
rewardloop config schema > rewardloop.schema.json`

func configure(ctx context.Context, args []string, e env) int {
	fs := newFlags(e, "config", configText, configExample)
	file := fs.String("c", "", "configuration `file` (YAML); none: overrides only")
	what := ""
	if len(args) > 0 && args[0][:min(1, len(args[0]))] != "-" {
		what, args = args[0], args[1:]
	}
	if code, done := parse(fs, args, e); done {
		return code
	}
	switch what {
	case "check", "print":
	case "schema":
		if err := config.Schema(e.stdout); err != nil {
			return complain(e, "config", exitFailure, err)
		}
		return exitOK
	default:
		return complain(e, "config", exitUsage, errors.New("say check, print or schema; see --help"))
	}
	cfg, err := config.Load(*file, fs.Args(), e.getenv)
	if cfg != nil {
		e.secrets = cfg.Secrets
	}
	if what == "print" {
		if err != nil {
			return complain(e, "config", exitUsage, err)
		}
		if err := cfg.Print(e.stdout); err != nil {
			return complain(e, "config", exitFailure, err)
		}
		printCapacities(e.stdout, cfg)
		return exitOK
	}
	if err := node.Check(ctx, cfg, err, scores(cfg)); err != nil {
		return complain(e, "config", exitUsage, err)
	}
	for _, n := range cfg.Notes() {
		fmt.Fprintln(e.stdout, "note:", n)
	}
	fmt.Fprintln(e.stdout, "ok:", contents(cfg))
	return exitOK
}

// scores reports whether a process of this configuration scores samples itself: what is not
// on this machine then may be on that of the workers.
func scores(cfg *config.Config) bool { return cfg != nil && cfg.NumWorkers > 0 }

// contents counts what a configuration scores with, "2 rewards in 1 profile".
func contents(cfg *config.Config) string {
	n := 0
	for _, p := range cfg.Profiles {
		n += len(p.Terms)
	}
	return rewards.Count(n, "reward") + " in " + rewards.Count(len(cfg.Profiles), "profile")
}

// load reads a configuration and checks it as it will run: by a process that scores samples
// if the configuration says so, or as a worker.
func load(ctx context.Context, e env, file string, overrides []string, worker bool) (*config.Config, error) {
	cfg, err := config.Load(file, overrides, e.getenv)
	err = node.Check(ctx, cfg, err, worker || scores(cfg))
	if faults, ok := errors.AsType[config.FaultsError](err); ok && worker { // others may have what this machine lacks
		err = faults.Beside()
	}
	if err != nil {
		return nil, err
	}
	return cfg, nil
}

// printCapacities writes, as comments, the capacity of each reward as far as it is known
// before anything is loaded. A reward that cannot be built here has none.
func printCapacities(w io.Writer, cfg *config.Config) {
	fmt.Fprintf(w, "\n# Capacity: samples of each reward that one process on this machine scores at a time, before anything is loaded.\n")
	n, err := node.New(node.Options{Config: cfg})
	if err != nil {
		fmt.Fprintln(w, "# It is not known here:")
		for line := range strings.Lines(cfg.Secrets.Text(err.Error())) {
			fmt.Fprintln(w, "#   "+strings.TrimSpace(line))
		}
		return
	}
	defer n.Stop()
	for _, c := range n.Capacities() {
		why := "the most of its components"
		if c.Written {
			why = "its concurrency"
		}
		fmt.Fprintf(w, "# %s: %d, %s. A sample takes a place of each", c.Reward, c.Samples, why)
		if least := c.Least(); least.Concurrency < c.Samples {
			fmt.Fprintf(w, ", of which %s has the fewest", least.Key)
		}
		fmt.Fprintln(w, ":")
		for _, x := range c.Components {
			fmt.Fprintf(w, "#   %s: %d (%s)\n", x.Key, x.Concurrency, x.Reason)
		}
	}
}
