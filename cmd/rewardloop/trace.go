package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rewardloop/rewardloop/internal/sim"
)

const traceText = `
Measures a step that a server has recorded: how long the trainer waited for rewards that
the rollout did not hide (exposed), against an ideal queue and a bound that no schedule
beats, where the time of the samples went, and who was last. All of it is computed from
the recorded times alone, so that anybody can compute it again from the saved file.

  rewardloop trace --url http://127.0.0.1:8080 --run my-run --step 12 -o step.json

asks a server for GET /v1/runs/{run}/steps/{step}/trace; -i reads a file instead, - is
stdin. --chrome draws the step for https://ui.perfetto.dev: a track per worker, the queue,
and how many samples were waiting and in flight at each moment. Several steps, as in
--step 10-19, are measured one by one and put together at the end.`

const traceExample = `
rewardloop plan --samples 64 --generation 20s --reward lognormal:1s,1.0 --concurrency 8 --save step.json
rewardloop trace -i step.json --chrome step.trace.json`

// maxSteps is how many steps are measured at once.
const maxSteps = 1000

type traceOptions struct {
	url, run, step, split, tokenFile string
	in, out, chrome                  string
	json                             bool
}

func trace(ctx context.Context, args []string, e env) int {
	fs := newFlags(e, "trace", traceText, traceExample)
	var o traceOptions
	fs.StringVar(&o.url, "url", "", "`address` of the server, such as http://127.0.0.1:8080")
	fs.StringVar(&o.run, "run", "", "`name` of the run")
	fs.StringVar(&o.step, "step", "", "`number` of the step, or a range such as 10-19")
	fs.StringVar(&o.split, "split", "train", "split of the step: train or val")
	fs.StringVar(&o.tokenFile, "token-file", "", "`file` with the server's token")
	fs.StringVar(&o.in, "i", "", "read the trace from `file` instead; - is stdin")
	fs.StringVar(&o.out, "o", "", "save the trace to `file`")
	fs.StringVar(&o.chrome, "chrome", "", "draw the trace to `file`, for ui.perfetto.dev")
	fs.BoolVar(&o.json, "json", false, "print the report as one JSON object")
	if code, done := parse(fs, args, e); done {
		return code
	}
	var err error
	if fs.NArg() > 0 {
		err = fmt.Errorf("unexpected %q; see --help", fs.Arg(0))
	}
	first, last, rangeErr := o.check()
	if err = errors.Join(err, rangeErr); err != nil {
		return complain(e, "trace", exitUsage, err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.measure(ctx, e, first, last); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return complain(e, "trace", exitFailure, err)
	}
	return exitOK
}

// check refuses what does not go together and reads the range of steps.
func (o *traceOptions) check() (first, last int64, err error) {
	switch {
	case (o.in == "") == (o.url == ""):
		return 0, 0, errors.New("give either -i step.json or --url, --run and --step; see --help")
	case o.out != "" && o.out == o.chrome:
		return 0, 0, errors.New("-o and --chrome name the same file")
	case o.in != "" && (o.run != "" || o.step != "" || o.tokenFile != ""):
		return 0, 0, errors.New("-i does not go with --run, --step or --token-file: the file says it")
	case o.in != "":
		return 0, 0, nil
	case o.run == "" || o.step == "":
		return 0, 0, errors.New("--url needs --run and --step")
	}
	if err := checkServer(o.url); err != nil {
		return 0, 0, err
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
		return 0, 0, fmt.Errorf("--step %q: must be a number, or a range such as 10-19", o.step)
	case last-first >= maxSteps:
		return 0, 0, fmt.Errorf("--step %q: at most %d steps at once", o.step, maxSteps)
	case last > first && (o.out != "" || o.chrome != ""):
		return 0, 0, errors.New("-o and --chrome hold one step; give a single --step")
	}
	return first, last, nil
}

// measure measures the step, or the steps one after the other.
func (o *traceOptions) measure(ctx context.Context, e env, first, last int64) error {
	token, err := tokenOf(o.tokenFile)
	if err != nil {
		return err
	}
	var reports []sim.Report
	for step := first; step <= last; step++ {
		t, err := o.read(ctx, e, step, token)
		if err != nil {
			return err
		}
		rep, err := sim.Measure(t)
		if err != nil {
			return err
		}
		if err := o.write(e, t); err != nil {
			return err
		}
		reports = append(reports, rep)
		if !o.json {
			printReport(e.stdout, t, rep)
		}
	}
	return o.conclude(e, reports)
}

// conclude prints what is said after the steps.
func (o *traceOptions) conclude(e env, reports []sim.Report) error {
	sum := sim.Summarize(reports)
	switch {
	case o.json:
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", " ")
		if len(reports) == 1 {
			return enc.Encode(reports[0])
		}
		return enc.Encode(map[string]any{"summary": sum, "steps": reports})
	case len(reports) > 1:
		fmt.Fprintf(e.stdout, "all together: %s", sum.String())
	}
	if o.chrome != "" {
		fmt.Fprintf(e.stdout, "\n%s: open it at https://ui.perfetto.dev (Open trace file); nothing of it leaves the browser\n", o.chrome)
	}
	return nil
}

func printReport(w io.Writer, t sim.Trace, rep sim.Report) {
	if t.Run != "" {
		fmt.Fprintf(w, "run %s, %s step %d\n", t.Run, orTrain(t.Split), t.Step)
	}
	fmt.Fprintf(w, "%s%s\n", rep.String(), rep.Details())
}

func orTrain(split string) string {
	if split == "" {
		return "train"
	}
	return split
}

// read returns the trace of a step, from where the flags say.
func (o *traceOptions) read(ctx context.Context, e env, step int64, token string) (sim.Trace, error) {
	switch o.in {
	case "":
		return o.fetch(ctx, step, token)
	case "-":
		return sim.ReadTrace(e.stdin)
	}
	f, err := os.Open(o.in)
	if err != nil {
		return sim.Trace{}, err
	}
	defer f.Close()
	t, err := sim.ReadTrace(f)
	if err != nil {
		return sim.Trace{}, fmt.Errorf("%s: %w", o.in, err)
	}
	return t, nil
}

// fetch asks the server for a step.
func (o *traceOptions) fetch(ctx context.Context, step int64, token string) (t sim.Trace, err error) {
	path := fmt.Sprintf("/v1/runs/%s/steps/%d/trace?split=%s", url.PathEscape(o.run), step, url.QueryEscape(o.split))
	err = ask(ctx, o.url, path, token, func(body io.Reader) (err error) {
		t, err = sim.ReadTrace(body)
		return err
	})
	return t, err
}

// write saves and draws the trace where that was asked for.
func (o *traceOptions) write(e env, t sim.Trace) error {
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
