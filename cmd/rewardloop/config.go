package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

const configText = `
config check reads a configuration in the same way as serve and reports every
fault with its line. config print prints the resolved configuration. config
schema prints a JSON Schema of the file, with which editors complete and check
keys.`

const schemaText = `
Prints a JSON Schema of the configuration, with which editors complete and check
keys (docs/configuration.md).`

const checkText = `
Reads a configuration in the same way as serve, and reports every fault with its
line, and every difference from the rewards of verl-omni. Python files are
imported in a separate process, for at most 10 s each, and the options are
compared with the parameters of the functions. The exit code is 2 if the
configuration is wrong.`

const printText = `
Prints the resolved configuration: with defaults, overrides and environment
variables applied, and without secrets. Comments at the end list how many
samples of each reward one process on this machine scores at a time, and why
(docs/tuning.md).`

func configCommand(e *env) *cobra.Command {
	return parent(&cobra.Command{
		Use: "config", GroupID: groupPrepare, DisableFlagsInUseLine: true,
		Short: "check or print a configuration, or print its JSON Schema",
		Long:  configText, Example: "rewardloop config check cfg.yaml",
	}, configCheckCommand(e), configPrintCommand(e), configSchemaCommand(e))
}

// checked is what config check --json prints.
type checked struct {
	OK       bool         `json:"ok"`
	Faults   []placed     `json:"faults"`
	Notes    []placed     `json:"notes"`
	Profiles []profileRow `json:"rewards"`
}

// placed is a line about a place of the configuration.
type placed struct {
	Place   string `json:"place"` // file:line:column, or the override
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

// profileRow is a reward and its components.
type profileRow struct {
	Name       string   `json:"name"`
	Components []string `json:"components"`
}

func configCheckCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check [cfg.yaml] [flags] [key=value...]", DisableFlagsInUseLine: true,
		Short: "report every fault of a configuration",
		Long:  checkText, Example: "rewardloop config check cfg.yaml\nrewardloop config check - <cfg.yaml",
	}
	s, asJSON := configFlags(e, cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := s.read()
		err = node.Check(cmd.Context(), cfg, err, scores(cfg))
		if *asJSON {
			if printed := e.json(checkedOf(e, cfg, err)); printed != nil || err == nil {
				return printed
			}
			return wrong(nil)
		}
		if err != nil {
			return wrong(err)
		}
		for _, n := range cfg.Notes() {
			fmt.Fprintln(e.stdout, "note:", n)
		}
		fmt.Fprintln(e.stdout, "ok:", contents(cfg))
		return nil
	}
	return cmd
}

// checkedOf is what was found as a document.
func checkedOf(e *env, cfg *config.Config, err error) checked {
	out := checked{OK: err == nil, Faults: []placed{}, Notes: []placed{}, Profiles: []profileRow{}}
	faults, ok := errors.AsType[config.FaultsError](err)
	if !ok && err != nil {
		out.Faults = append(out.Faults, placed{Message: e.secrets.Text(err.Error())})
	}
	for _, f := range faults {
		out.Faults = append(out.Faults, placed{f.Place.String(), f.Key, e.secrets.Text(f.Message)})
	}
	if cfg == nil {
		return out
	}
	for _, n := range cfg.Notes() {
		out.Notes = append(out.Notes, placed{n.Place.String(), n.Key, n.Message})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		row := profileRow{name, []string{}}
		for _, t := range cfg.Profiles[name].Components {
			row.Components = append(row.Components, t.Key)
		}
		out.Profiles = append(out.Profiles, row)
	}
	return out
}

func configPrintCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "print [cfg.yaml] [flags] [key=value...]", DisableFlagsInUseLine: true,
		Short: "print the resolved configuration",
		Long:  printText, Example: "rewardloop config print cfg.yaml loop.max_bytes=2GiB",
	}
	s := configFlags(e, cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, err := s.read()
		if err != nil {
			return wrong(err)
		}
		if err := cfg.Print(e.stdout); err != nil {
			return failed(err)
		}
		printCapacities(e.stdout, cfg)
		return nil
	}
	return cmd
}

func configSchemaCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Args: nothingElse,
		Short: "print a JSON Schema of the configuration",
		Long:  schemaText, Example: "rewardloop config schema >rewardloop.schema.json",
		RunE: func(*cobra.Command, []string) error {
			if err := config.Schema(e.stdout); err != nil {
				return failed(err)
			}
			return nil
		},
	}
}

// contents counts what a configuration scores with, "2 rewards in 1 profile".
func contents(cfg *config.Config) string {
	n := 0
	for _, p := range cfg.Profiles {
		n += len(p.Components)
	}
	return rewards.Count(n, "reward") + " in " + rewards.Count(len(cfg.Profiles), "profile")
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
			fmt.Fprintf(w, ", and %s has the fewest", least.Key)
		}
		fmt.Fprintln(w, ":")
		for _, x := range c.Components {
			fmt.Fprintf(w, "#   %s: %d (%s)\n", x.Key, x.Concurrency, x.Reason)
		}
	}
}
