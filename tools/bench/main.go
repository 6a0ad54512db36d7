package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	nodes "github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// suites is every area, in the order it is measured.
func suites() []Suite {
	return []Suite{transport(), jpegSize(), overHTTP(), inGroups(), inPython(), onnxModels(), overSteps(), overDispatch(), overMachines(), isolation(), overBombs(), overQueue(), overStore(), capacity(), soak(), onCards(), pythonModels()}
}

func main() {
	if code, child := subprocess.Main(os.Args[1:], nodes.Kinds()...); child {
		os.Exit(code)
	}
	if os.Getenv("REWARDLOOP_STORE") == "" {
		_ = os.Setenv("REWARDLOOP_STORE", "off") // no server that is measured keeps results but those that say so
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, suites(), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes.
const (
	exitHeld   = 0
	exitMissed = 1
	exitUsage  = 2 // or something broke
)

// settings are the flags.
type settings struct {
	Options

	rows           *regexp.Regexp
	only           string // this suite
	all, list      bool
	out            string
	root           string
	writeReference bool
	cardResults    string // what scripts/gpu-run.sh left
	tables         bool
	// within is how long after its begin a suite begins another experiment; 0: as long as it takes.
	within time.Duration
}

const helpText = `Measures every promised figure; prints the rows that miss and why.
Exit code 1: a row missed its target and tools/bench/misses.yml does not list it.

  scripts/tool.sh bench                                   everything, into docs/results
  scripts/tool.sh bench -suite python                     what needs Python (make bench-python)
  scripts/tool.sh bench -suite step -n 1                  whole steps at 1:10 (make bench-step); -scale 100 for a look
  scripts/tool.sh bench -suite isolation -n 3 -t 20s      failing runs beside healthy ones (make bench-isolation)
  scripts/tool.sh bench -suite queue -n 3 -t 20s          a hundred idle workers of a hundred profiles (make bench-queue)
  scripts/tool.sh bench -suite store -n 5 -t 12s          a server that keeps results beside one that does not (make bench-store)
  scripts/tool.sh bench -suite capacity -n 3 -t 20s       how many calls are under way at a time (make bench-capacity)
  scripts/tool.sh bench -suite pymodels -n 3 -t 20s       models in Python, in batches (make bench-pymodels)
  scripts/tool.sh bench -suite soak -n 1 -t 60m           a server that is used for an hour (make soak)
  scripts/tool.sh bench -suite gpu -n 3 -t 2s             one card beside bare ONNX Runtime (make bench-gpu); -device cpu: its small form
  scripts/tool.sh bench -rows raw786k -profile /tmp/p     some rows, with CPU profiles

`

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		_, _ = io.WriteString(stderr, helpText)
		f.PrintDefaults()
	}
	rows := f.String("rows", "", "only rows whose experiment/row matches this `regexp`")
	f.StringVar(&s.only, "suite", "", "only this suite; default: all but python, pymodels, isolation and capacity, which need Python, queue and store, which start the program, step and dispatch, which take half an hour, gpu, which needs a card, and soak, which takes as long as -t says")
	f.BoolVar(&s.Quick, "quick", false, "one short repetition: shows that the bench works, measures nothing")
	f.IntVar(&s.Repetitions, "n", 5, "repetitions of every measurement")
	f.DurationVar(&s.Lasting, "t", 3*time.Second, "how long each load lasts")
	f.Float64Var(&s.Scale, "scale", 0, "what the times of whole steps are divided by, 1 for the real ones; default: 10, or more with -quick; another one writes no results unless -out says where")
	f.StringVar(&s.Device, "device", "cuda:0", "what the suite gpu runs models on: cuda:<n>, or cpu for tiny models, which writes no results unless -out says where")
	f.StringVar(&s.out, "out", "", "`folder` for the results; default: docs/results for a whole run, none for -rows and -quick")
	f.StringVar(&s.cardResults, "card-results", "", "measure nothing, and write docs/results/gpu.md from this `file` that scripts/gpu-run.sh left (make gpu-results)")
	f.BoolVar(&s.tables, "tables", false, "measure nothing, and write docs/results/README.md from the JSON files beside it")
	f.DurationVar(&s.within, "within", 0, "begin no experiment of a suite later than so long after its begin; its rows then miss; 0: no bound")
	f.StringVar(&s.Profile, "profile", "", "`folder` for CPU profiles of our side and one of all allocations")
	f.BoolVar(&s.list, "list", false, "print the rows and their targets' lines, and measure nothing")
	f.BoolVar(&s.writeReference, "write-reference", false, "make the calibrations of this run the references, in tools/bench/reference.json")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	s.Calm = cputime.Calm
	if s.Quick {
		s.Repetitions, s.Lasting, s.Calm = 1, 50*time.Millisecond, nil
	}
	if s.Repetitions < 1 || s.Lasting <= 0 {
		return s, fmt.Errorf("-n is %d and -t %v, both must be above 0", s.Repetitions, s.Lasting)
	}
	if !(s.Scale >= 0 && s.Scale <= 10_000) {
		return s, fmt.Errorf("-scale is %v, want up to 10,000, or 0 for the default", s.Scale)
	}
	if s.writeReference && (s.Quick || *rows != "" || s.only != "") {
		return s, errors.New("-write-reference measures everything: leave -quick, -rows and -suite away")
	}
	var err error
	if s.only == "gpu" {
		s.Calm = nil // the card is what is measured, and its machine is seldom quiet
	}
	if s.rows, err = regexp.Compile(*rows); err != nil {
		return s, fmt.Errorf("-rows: %w", err)
	}
	if s.root, err = report.Repository(); err != nil {
		return s, err
	}
	if s.all = *rows == "" && !s.Quick; s.all && s.out == "" && (s.Scale == 0 || s.Scale == usualScale) && (s.only != "gpu" || s.Device != "cpu") {
		s.out = filepath.Join(s.root, "docs", "results")
	}
	return s, nil
}

func run(ctx context.Context, all []Suite, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitHeld
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	if s.list {
		list(all, stdout)
		return exitHeld
	}
	if s.cardResults != "" || s.tables {
		folder := cmp.Or(s.out, filepath.Join(s.root, "docs", "results"))
		write := report.WriteTable
		if s.cardResults != "" {
			write = func(folder string) error { return report.WriteCards(s.cardResults, folder) }
		}
		if err := write(folder); err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			return exitUsage
		}
		return exitHeld
	}
	missed, err := measure(ctx, all, s, stdout)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	case missed:
		return exitMissed
	}
	return exitHeld
}

func list(all []Suite, w io.Writer) {
	for _, s := range all {
		for _, e := range s.Experiments {
			for _, r := range e.Rows {
				fmt.Fprintf(w, "%-30s %s\n", e.Name+"/"+r.Name, r.Issue)
			}
		}
	}
}

// names are the full names of all rows.
func names(all []Suite) []string {
	var out []string
	for _, s := range all {
		for _, e := range s.Experiments {
			for _, r := range e.Rows {
				out = append(out, e.Name+"/"+r.Name)
			}
		}
	}
	return out
}

// readMisses reads the list of known misses, but for those of bench/ocr, which reads the same
// list and judges its own.
func readMisses(path string, rows []string) (map[string]report.Miss, error) {
	return report.ReadMisses(path, func(row string) bool { return !strings.HasPrefix(row, "ocr/") }, rows)
}

// measure runs what was asked for and reports whether a row missed that is not
// listed.
func measure(ctx context.Context, all []Suite, s settings, w io.Writer) (missed bool, err error) {
	known, err := readMisses(filepath.Join(s.root, "tools", "bench", "misses.yml"), names(all))
	if err != nil {
		return false, err
	}
	referenceFile := filepath.Join(s.root, "tools", "bench", "reference.json")
	reference, err := readReference(referenceFile)
	if err != nil {
		return false, err
	}
	for _, dir := range []string{s.out, s.Profile} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // results are for everybody
			return false, err
		}
	}
	picked := chosen(all, s.only, s.rows)
	if len(picked) == 0 {
		return false, fmt.Errorf("no row of suite %q matches %q; rows are listed by -list", s.only, s.rows)
	}
	if s.writeReference {
		reference.Machine, reference.Date, reference.Load = report.ThisMachine(), report.Today(), report.LoadAverage()
	}
	for _, suite := range picked {
		if s.Device == "cpu" {
			suite = withoutCard(suite)
		}
		r, err := s.suite(ctx, suite, &reference, w)
		if err != nil {
			return false, err
		}
		unlisted, mended := report.Judge(r.Rows, known)
		if !s.Quick && s.Scale <= usualScale { // a quick look measures nothing
			report.Tell(r.Rows, unlisted, mended, w)
			missed = missed || len(unlisted) > 0
		}
		if s.out != "" {
			if err := r.Write(s.out); err != nil {
				return false, err
			}
			if suite.Plots != nil {
				if err := suite.Plots(r, s.out); err != nil {
					return false, err
				}
			}
		}
	}
	if s.writeReference {
		if err := reference.write(referenceFile); err != nil {
			return false, err
		}
	}
	if s.out != "" {
		if err := report.WriteTable(s.out); err != nil {
			return false, err
		}
	}
	return missed, writeAllocs(s.Profile)
}

// suite measures one suite. With -write-reference its calibrations become the
// references first, so that its own targets are judged by them.
func (s settings) suite(ctx context.Context, suite Suite, reference *Reference, w io.Writer) (report.Report, error) {
	r := report.Begin(ctx, s.root, suite.Name, suite.About)
	r.Quick, r.Repetitions = s.Quick, s.Repetitions
	fmt.Fprintf(w, "== %s (load %s)\n", suite.Name, r.LoadBefore)
	begun := time.Now()
	for _, e := range suite.Experiments {
		if s.within > 0 && time.Since(begun) > s.within {
			for _, f := range broken(e, reference.Calibrations[e.reference()], fmt.Errorf("the %v of -within were over", s.within)) {
				fmt.Fprintln(w, f.Line())
				r.Rows = append(r.Rows, f)
			}
			continue
		}
		readings, disturbed, err := e.repeat(ctx, s.Options)
		if errors.Is(err, errSkipped) {
			fmt.Fprintf(w, "%s: %v\n", e.Name, err)
			continue
		}
		if err != nil && e.GoesOn && ctx.Err() == nil {
			for _, f := range broken(e, reference.Calibrations[e.reference()], err) {
				fmt.Fprintln(w, f.Line())
				r.Rows = append(r.Rows, f)
			}
			continue
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", e.Name, err)
		}
		r.Disturbed += disturbed
		if s.writeReference {
			reference.take(e, readings)
		}
		for _, row := range e.Rows {
			f, err := figure(e.Name, row, readings, reference.Calibrations[e.reference()])
			if err != nil {
				return r, err
			}
			fmt.Fprintln(w, f.Line())
			r.Rows = append(r.Rows, f)
		}
	}
	r.End()
	return r, nil
}

// errSkipped says that an experiment needs what this machine lacks, and that its absence is no miss.
var errSkipped = errors.New("SKIPPED")

// take makes an experiment's calibrations the references.
func (r *Reference) take(e Experiment, readings []Readings) {
	now := medians(readings)
	r.Calibrations[e.Name] = Readings{}
	for _, name := range e.Calibrations {
		r.Calibrations[e.Name][name] = lookup(now, name)
	}
}

// repeat sets the experiment up and measures it. A repetition that others disturbed is
// measured again while there are spare ones, twice as many as asked for; after that it
// counts, and is counted.
func (e Experiment) repeat(ctx context.Context, o Options) (all []Readings, disturbed int, err error) {
	t, err := e.Setup(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	for spare := 2 * o.Repetitions; len(all) < o.Repetitions; {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		if o.Calm != nil {
			o.Calm(ctx)
		}
		r, err := t.Measure(ctx, len(all))
		if err != nil {
			return nil, 0, fmt.Errorf("repetition %d: %w", len(all)+1, err)
		}
		if r[othersCores] > cputime.MostOthers && !o.Quick {
			if spare > 0 {
				spare--
				continue
			}
			disturbed++
		}
		all = append(all, r)
	}
	return all, disturbed, nil
}
