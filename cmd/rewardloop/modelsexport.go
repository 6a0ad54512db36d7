package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/models/export"
	"github.com/rewardloop/rewardloop/rewards"
)

const modelsExportText = `
Converts a PyTorch checkpoint to an ONNX model on this machine, if nobody
publishes the model in ONNX. NAME is a model that models list marks for export.
A checkpoint of your own needs --family (clip, siglip, aesthetic or text_rm),
--model (a folder, or owner/name of a repository) and --name. Arguments after --
go to the exporter; -- --help lists them.

The exporter runs in its own Python environment, which is created first (see
rewardloop env), unless --interpreter names a Python that has the exporter's
packages. Before any download, models export lists the downloads with sizes and
licences, and asks for confirmation. The exporter compares ONNX with PyTorch and
prints the largest difference; above the limit, the model is discarded. A model
appears under its name only when it is complete, with its SHA-256 recorded. An
existing model is not changed; --again replaces it. The export needs memory of
about three times the checkpoint in float32, and no GPU.`

const modelsExportExample = `
rewardloop models export pickscore-v1
rewardloop models export --family clip --model owner/name --name mine
rewardloop models export --family text_rm --model ./my-rm --name my-rm \
  -- --length 2048`

// modelsExportTimeout bounds an export unless --timeout says otherwise: packages and weights of 4 GB each at 1 MB/s.
const modelsExportTimeout = 3 * time.Hour

// modelsExport is one call of models export.
type modelsExport struct {
	*modelsCall
	recipe   export.Recipe
	exporter export.Exporter
	options  export.Options
	name     string
	yes      bool
}

func modelsExportCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export NAME [flags] [-- ARG...]", DisableFlagsInUseLine: true,
		Short: "convert a PyTorch checkpoint to an ONNX model",
		Long:  modelsExportText, Example: modelsExportExample,
	}
	c := &modelsExport{modelsCall: newModelsCall(e, cmd)}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, m := range models.Catalogue() {
			if m.Export != "" {
				names = append(names, cobra.CompletionWithDesc(m.Name, m.Summary))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	f := cmd.Flags()
	f.StringVar(&c.recipe.Family, "family", "", "exporter for a checkpoint of your own: "+strings.Join(export.Families(), ", "))
	f.StringVar(&c.recipe.Model, "model", "", "with --family: `checkpoint`, a folder or owner/name of a repository")
	f.StringVar(&c.name, "name", "", "with --family: `name` of the model in the models folder")
	f.StringVar(&c.recipe.Revision, "revision", "", "with --model owner/name: `revision` of the repository; default main")
	f.StringVar(&c.recipe.Processor, "processor", "", "with --family: `checkpoint` with preprocessing and tokenizer; default: --model")
	f.StringVar(&c.recipe.Licence, "licence", "", "with --family: SPDX `identifier` of the licence of the weights; default: as stated by the repository")
	f.StringVar(&c.exporter.Interpreter, "interpreter", "", "Python `program` that has the exporter's packages; no environment is created")
	f.StringVar(&c.exporter.Python, "python", "", "Python of the environment: a `version` such as 3.11, or the path of an interpreter")
	f.BoolVar(&c.options.Source, "allow-source", false, "allow packages without a wheel; their code is built and run on this machine")
	f.BoolVar(&c.options.Again, "again", false, "export again, and replace the existing model")
	f.BoolVar(&c.yes, "yes", false, "download without confirmation")
	f.DurationVar(&c.options.Timeout, "timeout", modelsExportTimeout, "maximum `time`; downloads are kept")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			c.recipe.Args, args = args[dash:], args[:dash]
		}
		if err := c.choose(args); err != nil {
			return err
		}
		if err := c.openStore(); err != nil {
			return wrong(err)
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		err := c.export(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, export.ErrRecipe) || errors.Is(err, models.ErrName):
			return wrong(err)
		}
		return failed(interrupted(ctx, err, "nothing was exported; downloads are kept"))
	}
	return cmd
}

// choose settles what is exported.
func (c *modelsExport) choose(names []string) error {
	own := c.recipe.Family != ""
	switch {
	case c.options.Timeout <= 0:
		return errors.New("--timeout must be above 0")
	case c.exporter.Interpreter != "" && c.exporter.Python != "":
		return errors.New("--interpreter and --python are mutually exclusive: --interpreter is used as it is, --python is the base of a new environment")
	case own && len(names) > 0:
		return fmt.Errorf("%s and --family exclude each other: a checkpoint of your own gets its name by --name", names[0])
	case own && c.name == "":
		return errors.New("--family needs --name, the name of the new model")
	case own:
		return nil
	case len(names) != 1:
		return errors.New("nothing named to export: name one model of the catalogue (`rewardloop models list`), or give --family, --model and --name of a checkpoint of your own")
	case c.name+c.recipe.Model+c.recipe.Revision+c.recipe.Processor+c.recipe.Licence != "":
		return fmt.Errorf("--model, --name, --revision, --processor and --licence go with --family; %s has them in the catalogue", names[0])
	}
	more := c.recipe.Args
	r, err := export.Find(names[0])
	if err != nil {
		return wrong(err)
	}
	r.Args = slices.Concat(r.Args, more)
	c.recipe, c.name = r, names[0]
	return nil
}

func (c *modelsExport) export(ctx context.Context) error {
	envs, err := c.environments()
	if err != nil {
		return err
	}
	c.exporter.Models, c.exporter.Envs = c.store, envs
	shown := newEnvProgress(c.stderr, isTerminal(c.stderr))
	said := &exportOutput{envProgress: shown}
	o := c.options
	o.Progress = shown.event
	o.Output = said.line
	o.Agree = func(ctx context.Context, p export.Plan) error {
		shown.end()
		return c.agree(ctx, p)
	}
	is, err := c.exporter.Export(ctx, c.name, c.recipe, o)
	shown.end()
	switch {
	case err != nil:
		return err
	case is.Here:
		fmt.Fprintf(c.stdout, "%s: here already, in %s; nothing was done, and --again makes it anew\n", c.name, is.Dir)
	default:
		fmt.Fprintf(c.stdout, "%s: exported into %s (%s, %s)\n", c.name, is.Dir, rewards.Count(len(is.Model.Files), "file"), megabytes(is.Model.Size()))
	}
	if p := is.Parity; p.Comparisons > 0 {
		fmt.Fprintf(c.stdout, "  parity with PyTorch: off by %.2g at most, in %s of %s; the limit is %g %s\n",
			p.Value, p.Name, rewards.Count(p.Comparisons, "comparison"), p.Limit, p.Unit)
	}
	return nil
}

// agree says what will be downloaded, and asks unless --yes stands.
func (c *modelsExport) agree(ctx context.Context, p export.Plan) error {
	if p.Packages != nil {
		c.printPackages(*p.Packages, " for the export")
	}
	t := newTable(&env{stdout: c.stderr, stderr: c.stderr, getenv: c.getenv}, "weights", "size", "licence, as the repository or you state it")
	more := p.Packages != nil && len(p.Packages.Packages) > 0
	for _, w := range p.Weights {
		size := megabytes(w.Size)
		if w.Here {
			size = "here"
		}
		more = more || !w.Here
		licence := w.Licence
		if licence == "" {
			licence = "unknown"
		}
		t.row(w.Name, size, licence)
	}
	t.print()
	if !more || c.yes {
		return nil
	}
	return c.confirm(ctx, "Download these, and export?")
}

// exportOutput shows what the exporter writes, and of a bar that it draws now and then a line.
type exportOutput struct {
	*envProgress
	passed time.Time // when a line that passes was last shown
}

func (o *exportOutput) line(text string, passing bool) {
	if passing && o.now().Sub(o.passed) < o.every {
		return
	}
	o.end()
	if !passing || !o.bar {
		fmt.Fprintln(o.out, "  "+text)
	} else {
		fmt.Fprint(o.out, "  "+text)
		o.drawn = true
	}
	if passing {
		o.passed = o.now()
	}
}
