package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/rewards"
)

const environmentsText = `
Creates, lists and deletes the Python environments of configuration entries. An
entry with an environment has the key environment: {python: "3.11",
requirements: hpsv3.txt, system_site_packages: true}. serve downloads nothing.

The environments are in one folder: REWARDLOOP_ENVS, else envs next to the
models folder (rewardloop models --help). The content identifies an environment:
versions and hashes of its packages, its Python, and its platform. Entries and
configurations with the same content share one environment.`

const makeText = `
Creates every environment of a configuration, or with -r the environment of a
requirements file, and prints the path of its Python. An existing environment is
not changed.

pip resolves the packages first; only package metadata is fetched. env make then
lists the downloads with sizes and the licences that the packages state, and
asks for confirmation. --yes skips the confirmation. Without a terminal and
without --yes, env make stops there. uv installs the packages if uv is on PATH,
else pip does, from a lock with hashes; a requirements file with hashes is its
own lock.`

// makeTimeout bounds one environment unless --timeout says otherwise: 5 GB of torch at 1 MB/s.
const makeTimeout = 2 * time.Hour

func envCommand(e *env) *cobra.Command {
	return parent(&cobra.Command{
		Use: "env", GroupID: groupPrepare, DisableFlagsInUseLine: true,
		Short: "create, list and delete the Python environments of entries",
		Long:  environmentsText, Example: "rewardloop env make -c cfg.yaml\nrewardloop env list -c cfg.yaml\nrewardloop env remove --unused -c cfg.yaml",
	}, envMakeCommand(e), envListCommand(e), envRemoveCommand(e))
}

// environments returns the folder of the environments.
func (e *env) environments() (pyenv.Store, error) {
	s, err := pyenv.FromEnvironment(e.getenv)
	if err != nil {
		return s, wrong(err)
	}
	return s, nil
}

// envMake is one call of env make.
type envMake struct {
	*env
	store   pyenv.Store
	options pyenv.Options
	yes     bool
	asJSON  bool
}

// wantedEnv is an environment that a call is to make.
type wantedEnv struct {
	Keys []string   `json:"entries"` // of the configuration; none with -r
	spec pyenv.Spec // what it is to be
	Env  pyenv.Env  `json:"environment"`
	Here bool       `json:"here"` // it was made before
}

func envMakeCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "make [-c cfg.yaml | -r FILE] [flags] [key=value...]", DisableFlagsInUseLine: true,
		Short: "create the environments of a configuration, or one",
		Long:  makeText, Example: "rewardloop env make -c cfg.yaml\nrewardloop env make -r hpsv3.txt --python 3.11 --lock hpsv3.lock --yes",
	}
	s := configFlags(e, cmd)
	c := &envMake{env: e}
	var spec pyenv.Spec
	var requirements string
	cmd.Flags().StringVarP(&requirements, "requirements", "r", "", "requirements `file` for pip, instead of a configuration")
	cmd.Flags().StringVar(&spec.Python, "python", "", "with -r: Python `version` such as 3.11, or the path of an interpreter; default: pool.python")
	cmd.Flags().BoolVar(&spec.SystemSitePackages, "system-site-packages", false, "with -r: make packages of the base Python, such as torch, visible in the environment")
	cmd.Flags().StringVar(&c.options.Lock, "lock", "", "with -r: also write versions and hashes to this `file`")
	cmd.Flags().BoolVar(&c.options.Source, "allow-source", false, "allow packages without a wheel; their code is built and run on this machine")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "download without confirmation")
	cmd.Flags().DurationVar(&c.options.Timeout, "timeout", makeTimeout, "maximum `time` for each environment")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print the output as one JSON document")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		switch {
		case s.given() == (requirements != ""):
			return errors.New("name what to make: -c cfg.yaml for the environments of a configuration, or -r requirements.txt for one environment")
		case requirements == "" && (spec != pyenv.Spec{} || c.options.Lock != ""):
			return errors.New("--python, --system-site-packages and --lock go with -r; for an entry write python and system_site_packages in its environment")
		case c.options.Timeout <= 0:
			return errors.New("--timeout must be above 0")
		}
		if c.store, err = e.environments(); err != nil {
			return err
		}
		wanted := []wantedEnv{{Keys: []string{}, spec: spec}}
		if requirements != "" {
			err = wanted[0].spec.ReadFile(requirements)
		} else {
			wanted, err = c.ofConfig(s)
		}
		if err != nil {
			return wrong(err)
		}
		return c.makeAll(cmd.Context(), wanted)
	}
	return cmd
}

// ofConfig returns what a configuration wants, equal ones once.
func (c *envMake) ofConfig(s *settings) ([]wantedEnv, error) {
	cfg, err := s.read()
	if err != nil {
		return nil, err
	}
	c.store.Python = cmp.Or(cfg.Pool.Python.Interpreter, c.store.Python)
	for _, n := range cfg.Notes() { // what its models download later, with size and licence
		fmt.Fprintln(c.stderr, "note:", n)
	}
	return wantedOf(cfg), nil
}

// wantedOf are the environments of a configuration, equal ones once.
func wantedOf(cfg *config.Config) (out []wantedEnv) {
	all := cfg.Environments()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		same := slices.IndexFunc(out, func(w wantedEnv) bool { return w.spec.Equal(all[key]) })
		if same < 0 {
			same, out = len(out), append(out, wantedEnv{spec: all[key]})
		}
		out[same].Keys = append(out[same].Keys, key)
	}
	return out
}

// makeAll makes what is wanted, one after the other. One that fails does not stop the others.
func (c *envMake) makeAll(ctx context.Context, wanted []wantedEnv) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	if len(wanted) == 0 {
		fmt.Fprintln(c.stderr, "no entry of this configuration has an environment: nothing to make")
	}
	var faults []error
	for i := range wanted {
		w := &wanted[i]
		shown := newEnvProgress(c.stderr, isTerminal(c.stderr))
		o := c.options
		o.Progress = shown.event
		o.Agree = func(ctx context.Context, p pyenv.Plan) error {
			shown.end()
			return c.agree(ctx, w, p)
		}
		begun := time.Now()
		made, err := c.store.Make(ctx, w.spec, o)
		shown.end()
		switch {
		case ctx.Err() != nil:
			return failed(interrupted(ctx, err, "downloaded packages are in the cache of pip or uv"))
		case errors.Is(err, pyenv.ErrSpec):
			faults = append(faults, wrong(err))
			continue
		case err != nil:
			faults = append(faults, keyed(w.Keys, unreachable(err)))
			continue
		}
		w.Env, w.Here = made, !shown.made
		if !c.asJSON {
			c.say(w, time.Since(begun))
		}
	}
	if len(faults) > 0 {
		return failed(errors.Join(faults...))
	}
	if c.asJSON {
		return c.json(map[string]any{"folder": c.store.Dir, "environments": append([]wantedEnv{}, wanted...)})
	}
	return nil
}

// keyed names the entries that an error is about.
func keyed(keys []string, err error) error {
	if len(keys) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(keys, ", "), err)
}

// say prints the path of an interpreter, and beside it what became of it.
func (c *envMake) say(w *wantedEnv, took time.Duration) {
	what := fmt.Sprintf("made in %v", took.Round(time.Second/10))
	if w.Here {
		what = "was there"
	}
	of := ""
	if len(w.Keys) > 0 {
		of = ", for " + strings.Join(w.Keys, ", ")
	}
	fmt.Fprintf(c.stderr, "%s: %s, Python %s with %s, %s%s\n", w.Env.Name, what, w.Env.Python, rewards.Count(len(w.Env.Packages), "package"), megabytes(w.Env.Size), of)
	fmt.Fprintln(c.stdout, w.Env.Interpreter)
}

// canAsk reports whether a person can read the question and answer it.
func (e *env) canAsk() bool {
	in, ok := e.stdin.(*os.File)
	return ok && isTerminal(in) && isTerminal(e.stderr)
}

// agree says what will be downloaded, and asks unless --yes stands.
func (c *envMake) agree(ctx context.Context, w *wantedEnv, p pyenv.Plan) error {
	of := ""
	if len(w.Keys) > 0 {
		of = " for " + strings.Join(w.Keys, ", ")
	}
	c.printPackages(p, of)
	if c.yes || len(p.Packages) == 0 {
		return nil
	}
	return c.confirm(ctx, "Download and install?")
}

// printPackages says what an environment downloads; of is what it is for.
func (e *env) printPackages(p pyenv.Plan, of string) {
	fmt.Fprintf(e.stderr, "%s%s: Python %s, into %s\n", p.Name, of, p.Python, p.Dir)
	t := newTable(&env{stdout: e.stderr, stderr: e.stderr, getenv: e.getenv}, "package", "version", "size", "licence, as the package states it")
	for _, one := range p.Packages {
		licence := cmp.Or(one.Licence, "unknown")
		if one.Source {
			licence += "; source, is built here"
		}
		t.row(one.Name, one.Version, megabytes(one.Size), licence)
	}
	if len(p.Packages) > 0 {
		t.print()
	}
	total := megabytes(p.Total)
	switch {
	case len(p.Packages) == 0:
		total = "nothing"
	case p.Unknown > 0:
		total = fmt.Sprintf("more than %s: the sizes of %s are unknown", megabytes(p.Total), rewards.Count(p.Unknown, "file"))
		if p.Total == 0 {
			total = "an unknown amount"
		}
	}
	fmt.Fprintf(e.stderr, "%s to download: %s\n", rewards.Count(len(p.Packages), "package"), total)
}

// confirm asks; the error says why the answer is no.
func (e *env) confirm(ctx context.Context, question string) error {
	if !e.canAsk() {
		return errors.New("the command needs a terminal to ask for agreement: run it again with --yes to agree")
	}
	fmt.Fprint(e.stderr, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() { // ends with a line, or with the process
		line, _ := bufio.NewReader(e.stdin).ReadString('\n') // what ends without a line is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case said := <-answer:
		if said == "y" || said == "yes" {
			return nil
		}
		return errors.New("the answer was not y")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
