package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/loop/trace"
)

const traceText = `
Measures a recorded step of a server: how long the trainer waited for rewards
after the rollout (exposed), compared with an ideal queue and with a lower bound
for every schedule; where the samples spent their time; and which samples
finished last, and why. All figures are computed from the recorded times, so the
saved file is enough to recompute the figures.

  rewardloop trace --run my-run --step latest -o step.json

requests GET /v1/runs/{run}/steps/{step}/trace from a server. --run is optional
if the server has one run. latest is the newest step whose samples are all
answered. -i FILE, or FILE as an argument, reads a saved trace instead; - reads
standard input.

--chrome writes a timeline of the step for https://ui.perfetto.dev: one track
per worker, the queue, and the number of waiting and in-flight samples over
time. Several steps, such as --step 10-19, are measured one by one and
summarized at the end.`

const traceExample = `
rewardloop plan --samples 64 --generation 20s --reward lognormal:1s,1.0 \
  --concurrency 8 --save step.json
rewardloop trace -i step.json --chrome step.trace.json`

const (
	// maxSteps is how many steps are measured at once.
	maxSteps = 1000
	// latestStep is the newest step all of whose samples are answered.
	latestStep = "latest"
)

type traceOptions struct {
	server           *serverFlags
	run, step, split string
	in, out, chrome  string
	json             *bool
}

func traceCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "trace [--run RUN] [--step latest|N|N-M] [flags] [step.json]", GroupID: groupServer, DisableFlagsInUseLine: true,
		Short: "measure a recorded step, and draw its timeline",
		Long:  traceText, Example: traceExample,
	}
	o := traceOptions{server: addServerFlags(e, cmd), json: jsonFlag(cmd)}
	cmd.Flags().StringVar(&o.run, "run", "", "`name` of the run; default: the only run of the server")
	cmd.Flags().StringVar(&o.step, "step", latestStep, "`number` of the step, a range such as 10-19, or latest")
	cmd.Flags().StringVar(&o.split, "split", "train", "`split` of the step: train or val")
	cmd.Flags().StringVarP(&o.in, "input", "i", "", "read the trace from `file` instead; - reads standard input")
	cmd.Flags().StringVarP(&o.out, "output", "o", "", "save the trace to `file`")
	cmd.Flags().StringVar(&o.chrome, "chrome", "", "write a timeline for ui.perfetto.dev to `file`")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1 || len(args) == 1 && o.in != "":
			return fmt.Errorf("unexpected %q: name one file", args[len(args)-1])
		case len(args) == 1:
			if o.in = args[0]; o.in == "-" {
				return nil
			}
			if _, err := os.Stat(o.in); err != nil {
				return fmt.Errorf("%w; a step of a server is named by --run RUN --step %s", err, stepOr(o.in))
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.in != "" {
			for _, name := range []string{"server", "token-file", "run", "step", "split"} {
				if cmd.Flags().Changed(name) {
					return fmt.Errorf("-i and --%s exclude each other: the file has this value", name)
				}
			}
		}
		first, last, err := o.check()
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		if err := o.measure(ctx, e, first, last); err != nil {
			return failed(interrupted(ctx, err, ""))
		}
		return nil
	}
	return cmd
}

// stepOr is a word that may be a step's number.
func stepOr(word string) string {
	if _, err := strconv.Atoi(word); err != nil {
		return "N"
	}
	return word
}

// check refuses what does not go together and reads the range of steps; -1: the latest one.
func (o *traceOptions) check() (first, last int64, err error) {
	switch {
	case o.out != "" && o.out == o.chrome:
		return 0, 0, errors.New("-o and --chrome name the same file")
	case o.split != "train" && o.split != "val":
		return 0, 0, fmt.Errorf("--split %q: must be train or val", o.split)
	case o.in != "":
		return 0, 0, nil
	case o.step == latestStep:
		return -1, -1, nil
	}
	from, to, isRange := strings.Cut(o.step, "-")
	first, errFirst := strconv.ParseInt(from, 10, 64)
	last = first
	var errLast error
	if isRange {
		last, errLast = strconv.ParseInt(to, 10, 64)
	}
	switch {
	case errFirst != nil || errLast != nil || first < 0 || last < first:
		return 0, 0, fmt.Errorf("--step %q: must be latest, a number, or a range such as 10-19", o.step)
	case last-first >= maxSteps:
		return 0, 0, fmt.Errorf("--step %q: at most %d steps at once", o.step, maxSteps)
	case last > first && (o.out != "" || o.chrome != ""):
		return 0, 0, errors.New("-o and --chrome hold one step; give a single --step")
	}
	return first, last, nil
}

// measure measures the step, or the steps one after the other.
func (o *traceOptions) measure(ctx context.Context, e *env, first, last int64) error {
	if o.in == "" && (o.run == "" || first < 0) {
		r, err := o.server.run(ctx, o.run)
		if err != nil {
			return err
		}
		o.run = r.Run
		if first < 0 {
			if first, err = latestOf(r, o.split); err != nil {
				return err
			}
			last = first
		}
	}
	var reports []trace.Report
	for step := first; step <= last; step++ {
		t, err := o.read(ctx, e, step)
		if err != nil {
			return err
		}
		rep, err := trace.Measure(t)
		if err != nil {
			return err
		}
		if err := o.write(e, t); err != nil {
			return err
		}
		reports = append(reports, rep)
		if !*o.json {
			printReport(e.stdout, t, rep)
		}
	}
	return o.conclude(e, reports)
}

// conclude prints what is said after the steps.
func (o *traceOptions) conclude(e *env, reports []trace.Report) error {
	sum := trace.Summarize(reports)
	switch {
	case *o.json:
		if len(reports) == 1 {
			return e.json(reports[0])
		}
		return e.json(map[string]any{"summary": sum, "steps": reports})
	case len(reports) > 1:
		fmt.Fprintf(e.stdout, "all together: %s", sum.String())
	}
	if o.chrome != "" {
		fmt.Fprintf(e.stdout, "\n%s: open it at https://ui.perfetto.dev (Open trace file); nothing of it leaves the browser\n", o.chrome)
	}
	return nil
}

func printReport(w io.Writer, t trace.Trace, rep trace.Report) {
	if t.Run != "" {
		fmt.Fprintf(w, "run %s, %s step %d\n", t.Run, cmp.Or(t.Split, "train"), t.Step)
	}
	fmt.Fprintf(w, "%s%s\n", rep.String(), rep.Details())
}

// read returns the trace of a step, from where the flags say.
func (o *traceOptions) read(ctx context.Context, e *env, step int64) (trace.Trace, error) {
	if o.in == "" {
		return o.fetch(ctx, step)
	}
	return readTrace(o.in, e.stdin)
}

// readTrace reads a saved trace; - is standard input.
func readTrace(path string, stdin io.Reader) (trace.Trace, error) {
	if path == "-" {
		return trace.ReadTrace(stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return trace.Trace{}, err
	}
	defer f.Close()
	t, err := trace.ReadTrace(f)
	if err != nil {
		return trace.Trace{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// fetch asks the server for a step.
func (o *traceOptions) fetch(ctx context.Context, step int64) (t trace.Trace, err error) {
	path := fmt.Sprintf("/v1/runs/%s/steps/%d/trace?split=%s", url.PathEscape(o.run), step, url.QueryEscape(o.split))
	err = o.server.ask(ctx, http.MethodGet, path, func(body io.Reader) (err error) {
		t, err = trace.ReadTrace(body)
		return err
	})
	return t, err
}

// write saves and draws the trace where that was asked for.
func (o *traceOptions) write(e *env, t trace.Trace) error {
	for _, file := range []struct {
		path  string
		write func(io.Writer) error
	}{{o.out, t.Write}, {o.chrome, t.WriteChrome}} {
		if file.path == "" {
			continue
		}
		if err := writeWhole(file.path, file.write); err != nil {
			return err
		}
		fmt.Fprintf(e.stderr, "rewardloop trace: wrote %s\n", file.path)
	}
	return nil
}

// writeWhole writes a file that is either whole or not there: beside its place
// first.
func writeWhole(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error says what is wrong
	}
	return err
}
