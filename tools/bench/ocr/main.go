package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// Exit codes.
const (
	exitHeld   = 0
	exitMissed = 1
	exitUsage  = 2 // or something broke
)

func main() {
	if code, child := subprocess.Main(os.Args[1:], ort.Kinds()...); child {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// settings are the flags.
type settings struct {
	model, folder   string
	det, rec        string // paths of the model's files
	python, cjk     string
	extra, pictures string
	out, root       string
	cores           int
	repetitions     int
	seed            int
	quick, fold     bool
}

const helpText = `Measures the reader of text against RapidOCR on the same models and cores; prints
the rows that miss and why. Exit code 1: a row missed its target and tools/bench/misses.yml
does not list it. It needs the models (rewardloop models pull), ONNX Runtime, and the
Python environment of tools/bench/ocr/venv.sh.

  scripts/tool.sh bench/ocr                           PP-OCRv4, into docs/results
  scripts/tool.sh bench/ocr -model ppocr-v6-small     PP-OCRv6; told, not written

`

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("ocr", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		_, _ = io.WriteString(stderr, helpText)
		f.PrintDefaults()
	}
	f.StringVar(&s.model, "model", ocr.DefaultModel, "`name` of the model in the catalogue")
	f.StringVar(&s.folder, "models", "", "`folder` of the models; default: REWARDLOOP_MODELS, or the user's cache")
	f.StringVar(&s.python, "python", "", "Python with RapidOCR; default: REWARDLOOP_OCR_PYTHON, or .cache/ocr-venv/bin/python of the clone")
	f.StringVar(&s.cjk, "cjk", "", "`font` with Chinese characters; default: WenQuanYi's or Noto's where Debian puts them")
	f.StringVar(&s.extra, "extra", os.Getenv("REWARDLOOP_OCR_PICTURES"), "`folder` of more pictures to compare on, such as RapidOCR's python/tests/test_files; default: REWARDLOOP_OCR_PICTURES")
	f.StringVar(&s.pictures, "pictures", "", "`folder` of pictures that were drawn before, instead of drawing them")
	f.StringVar(&s.out, "out", "", "`folder` for the results; default: docs/results for the default model, none with -quick or another one")
	f.IntVar(&s.cores, "cores", 2, "cores to measure on")
	f.IntVar(&s.repetitions, "n", 3, "repetitions of what is timed")
	f.IntVar(&s.seed, "seed", 0, "other pictures than the usual ones")
	f.BoolVar(&s.quick, "quick", false, "few pictures, once: shows that it works, measures nothing")
	f.BoolVar(&s.fold, "fold", true, "fold the models before ours loads them")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if s.repetitions < 1 || s.cores < 1 {
		return s, fmt.Errorf("-n is %d and -cores %d, both must be above 0", s.repetitions, s.cores)
	}
	var err error
	if s.root, err = report.Repository(); err != nil {
		return s, err
	}
	if s.out == "" && !s.quick && s.model == ocr.DefaultModel {
		s.out = filepath.Join(s.root, "docs", "results")
	}
	for _, p := range []string{os.Getenv("REWARDLOOP_OCR_PYTHON"), filepath.Join(s.root, ".cache", "ocr-venv", "bin", "python")} {
		if s.python == "" {
			s.python = p
		}
	}
	return s, s.find()
}

// find looks for the model's files.
func (s *settings) find() error {
	m, err := models.Find(s.model)
	if err != nil {
		return err
	}
	store := models.Store{Dir: s.folder}
	if s.folder == "" {
		if store, err = models.FromEnvironment(os.LookupEnv); err != nil {
			return err
		}
	}
	if !store.Have(m) {
		return fmt.Errorf("model %s is not in %s: run rewardloop models pull %s", m.Name, store.Dir, m.Name)
	}
	for role, path := range map[string]*string{"det": &s.det, "rec": &s.rec} {
		if *path, err = store.Path(m, role); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitHeld
	}
	missed := false
	if err == nil {
		if code, again := s.onCores(ctx, args, stdout, stderr); again {
			return code
		}
		missed, err = s.measure(ctx, stdout)
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "bench/ocr:", err)
		return exitUsage
	case missed:
		return exitMissed
	}
	return exitHeld
}

// onCoresEnv keeps a run that was started on fewer cores from doing so again.
const onCoresEnv = "REWARDLOOP_OCR_ON_CORES"

// onCores starts the program again on fewer cores where the machine has more than it
// should be measured on: whoever starts processes and threads later inherits them.
func (s settings) onCores(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, again bool) {
	taskset, err := exec.LookPath("taskset")
	if runtime.NumCPU() <= s.cores || os.Getenv(onCoresEnv) != "" || err != nil {
		return 0, false
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false
	}
	cmd := exec.CommandContext(ctx, taskset, append([]string{"-c", "0-" + strconv.Itoa(s.cores-1), self}, args...)...) //nolint:gosec // ourselves
	cmd.Env = append(os.Environ(), onCoresEnv+"="+strconv.Itoa(s.cores))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case err == nil:
		return exitHeld, true
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode(), true
	default:
		fmt.Fprintln(stderr, "bench/ocr:", err)
		return exitUsage, true
	}
}
