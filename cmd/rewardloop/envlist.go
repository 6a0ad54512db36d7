package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/rewards"
)

// listedEnv is an environment in env list --json.
type listedEnv struct {
	pyenv.Env

	Gone       bool     `json:"python_gone"` // the Python that it was made of is no more
	Unfinished bool     `json:"unfinished"`  // its maker works on it, or was ended
	Entries    []string `json:"entries"`     // of the configuration that use it
}

func envListCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [-c cfg.yaml] [flags] [key=value...]", DisableFlagsInUseLine: true,
		Short: "list the existing environments",
		Long: "Lists the existing environments: name, Python, packages, size on disk, creation\n" +
			"date, and with -c the entries that use each environment.",
		Example: "rewardloop env list\nrewardloop env list -c cfg.yaml --json",
	}
	s, asJSON := configFlags(e, cmd), jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		store, err := e.environments()
		if err != nil {
			return err
		}
		used, err := usedEnvs(s, store)
		if err != nil {
			return wrong(err)
		}
		made, unfinished, err := store.List()
		if err != nil {
			return failed(fmt.Errorf("environments: %w", err))
		}
		all := []listedEnv{}
		for _, m := range made {
			all = append(all, listedEnv{Env: m, Gone: store.Gone(m), Entries: append([]string{}, used[m.Name]...)})
		}
		for _, name := range unfinished {
			all = append(all, listedEnv{Env: pyenv.Env{Name: name, Packages: []pyenv.Package{}}, Unfinished: true, Entries: []string{}})
		}
		if *asJSON {
			return e.json(map[string]any{"folder": store.Dir, "environments": all})
		}
		e.listEnvs(all, s.given())
		fmt.Fprintf(e.stdout, "folder: %s\n", store.Dir)
		return nil
	}
	return cmd
}

// usedEnvs are the entries of a configuration by the name of the environment that each uses; without
// a configuration none.
func usedEnvs(s *settings, store pyenv.Store) (map[string][]string, error) {
	used := map[string][]string{}
	if !s.given() {
		return used, nil
	}
	cfg, err := s.read()
	if err != nil {
		return nil, err
	}
	for _, w := range wantedOf(cfg) {
		if made, err := store.Find(w.spec); err == nil || made.Name != "" {
			used[made.Name] = append(used[made.Name], w.Keys...)
		}
	}
	return used, nil
}

func (e *env) listEnvs(all []listedEnv, entries bool) {
	if len(all) == 0 {
		fmt.Fprintln(e.stdout, "no environment is made; `rewardloop env make -c cfg.yaml` makes those of a configuration")
		return
	}
	columns := []string{"name", "python", "packages", "size", "made"}
	if entries {
		columns = append(columns, "used by")
	}
	t := newTable(e, columns...)
	for _, l := range all {
		row := []string{l.Name, l.Python, strconv.Itoa(len(l.Packages)), megabytes(l.Size), l.Made.Local().Format(time.DateOnly)}
		switch {
		case l.Unfinished:
			row = []string{l.Name, "", "", "", "unfinished"}
		case l.Gone:
			row[1] += ", which no longer exists"
		case l.SystemSitePackages:
			row[2] += " in addition to the packages of its Python"
		}
		if entries {
			row = append(row, cmp.Or(strings.Join(l.Entries, ", "), "no entry"))
		}
		t.row(row...)
	}
	t.print()
	fmt.Fprintln(e.stdout)
}

func envRemoveCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove NAME... | --unused -c cfg.yaml", DisableFlagsInUseLine: true,
		Short: "delete environments",
		Long: "Deletes environments and prints the number of freed bytes. --unused deletes all\n" +
			"environments that no entry of the configuration uses. An environment is kept\n" +
			"while a process of this machine runs in the environment (detected on Linux only)\n" +
			"or while env make creates it.",
		Example: "rewardloop env remove py3.11-0123456789abcdef\nrewardloop env remove --unused -c cfg.yaml",
	}
	s := &settings{e: e, flags: map[string]string{}}
	cmd.Flags().StringVarP(&s.file, "config", "c", "", "with --unused: configuration `file` (YAML); its environments are kept")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml") // the flag is there
	unused := cmd.Flags().Bool("unused", false, "delete all environments that the configuration does not use")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		switch {
		case *unused != s.given():
			return errors.New("--unused and -c go together: what the configuration does not use is deleted")
		case *unused == (len(names) > 0):
			return errors.New("name the environments, as `rewardloop env list` shows them, or use --unused -c cfg.yaml")
		}
		store, err := e.environments()
		if err != nil {
			return err
		}
		if *unused {
			if names, err = unusedEnvs(s, store); err != nil {
				return wrong(err)
			}
		}
		return e.removeEnvs(cmd.Context(), store, names)
	}
	return cmd
}

// unusedEnvs are the names of what a configuration does not use.
func unusedEnvs(s *settings, store pyenv.Store) ([]string, error) {
	used, err := usedEnvs(s, store)
	if err != nil {
		return nil, err
	}
	made, names, err := store.List()
	if err != nil {
		return nil, fmt.Errorf("environments: %w", err)
	}
	for _, m := range made {
		if used[m.Name] == nil {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// removeEnvs deletes environments. One that cannot be deleted does not stop the others.
func (e *env) removeEnvs(ctx context.Context, store pyenv.Store, names []string) error {
	var faults []error
	var sum int64
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		freed, err := store.Remove(name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		sum += freed
		fmt.Fprintf(e.stdout, "%s: removed, %d bytes\n", name, freed)
	}
	removed := len(names) - len(faults)
	fmt.Fprintf(e.stdout, "%s removed, %s freed\n", rewards.Count(removed, "environment"), megabytesOrNone(sum))
	err := errors.Join(faults...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pyenv.ErrUnknown):
		return wrong(err)
	}
	return failed(err)
}

// megabytesOrNone is megabytes, where 0 is known to be 0.
func megabytesOrNone(n int64) string {
	if n == 0 {
		return "0 bytes"
	}
	return megabytes(n)
}
