package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/rewardloop/rewardloop/internal/node"
)

const scoreText = `
Scores a file of samples offline, with the same rewards and on the same path as
serve, in this process. The input has one sample a line:

  {"id", "uid", "group_size", "data_source", "prompt", "response", "ground_truth",
   "extra_info", "reward", "step", "split", "index",
   and one of "image": path, "images": [path…], "video": folder or [path…]}

Only id should not be missing. Pictures are PNG, JPEG or WebP, told apart by their
bytes; a video is a folder of frames or a list of them. Paths are relative to
--media-root, which they then cannot leave, or without it to the input's folder.

The output has one line for each, in the same order, written as the scores come, so
that what a run that was stopped has written can be used:

  {"id", "outcome", "reward_score", "reward_extra_info", "details", "errors", "timing_ms"}

and "substitute" and "step_scores" where the reward has them.

A line that is not as above is reported with its number, here and in the output
(outcome "rejected"), and the others are scored all the same. A group whose members
are not all in the input is closed with those that are.

Exits with 0 if every sample was scored, 1 if some were not, 2 if it could not begin.
Ctrl-C writes what is final, the rest as cancelled, and exits with 1.`

const scoreExample = `
rewardloop score -c cfg.yaml -i samples.jsonl -o scores.jsonl
rewardloop score -c cfg.yaml -i - -o - --media-root pictures <samples.jsonl >scores.jsonl`

// scoreFlags are what score was asked for.
type scoreFlags struct {
	config, input, output, root string
}

func addScoreFlags(fs *flag.FlagSet) *scoreFlags {
	f := new(scoreFlags)
	fs.StringVar(&f.config, "c", "", "configuration `file` (YAML); none: overrides only")
	fs.StringVar(&f.input, "i", "", "`file` with one sample a line; - reads standard input")
	fs.StringVar(&f.output, "o", "", "`file` for one result a line, overwritten; - writes standard output")
	fs.StringVar(&f.root, "media-root", "", "`folder` that pictures must lie in")
	return f
}

func score(ctx context.Context, args []string, e env) int {
	fs := newFlags(e, "score", scoreText, scoreExample)
	f := addScoreFlags(fs)
	if code, done := parse(fs, args, e); done {
		return code
	}
	if f.input == "" || f.output == "" {
		return complain(e, "score", exitUsage, errors.New("say where samples are and where scores go: -i samples.jsonl -o scores.jsonl"))
	}
	cfg, err := load(ctx, e, f.config, fs.Args(), false)
	if err != nil {
		return complain(e, "score", exitUsage, err)
	}
	e.secrets = cfg.Secrets
	show := newProgress(e, f.output == "-")
	log := slog.New(slog.NewTextHandler(show, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: e.secrets.Attr}))
	for _, n := range cfg.Notes() {
		log.WarnContext(ctx, "configuration", "note", n.String())
	}
	n, err := node.New(node.Options{Config: cfg, Log: log, Version: release(), NoServer: true, Examine: e.stderr})
	if err != nil {
		return complain(e, "score", exitUsage, err)
	}
	files, err := openScoreFiles(f, e)
	if err != nil {
		n.Stop()
		return complain(e, "score", exitUsage, err)
	}
	defer files.close()
	// The first signal ends the run in order, the next one ends the process.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := n.Start(ctx); err != nil {
		return complain(e, "score", exitFailure, err)
	}
	defer n.Stop()
	show.total(files.size)
	most := 0
	for _, c := range n.Capacities() {
		most = max(most, c.Samples)
	}
	s := &scoring{
		loop: n.Loop, show: show,
		media:   &mediaFiles{root: files.root, dir: files.dir, maxBytes: cfg.Loop.MessageBytes, maxFrames: cfg.Pool.Decode.MaxFrames},
		depth:   max(32, 2*most),
		bytes:   min(cfg.Loop.MaxBytes/2, 256<<20),
		patient: cfg.Loop.SampleTimeout,
		items:   make(chan *item, readAhead),
	}
	err = files.begin()
	if err == nil {
		err = errors.Join(s.run(ctx, files.in, files.out), files.finish())
	}
	show.summary()
	if err != nil {
		return complain(e, "score", exitFailure, err)
	}
	if !show.allScored() {
		return exitFailure
	}
	return exitOK
}

// scoreFiles are what score reads and writes.
type scoreFiles struct {
	in   io.Reader
	out  io.Writer
	size int64 // of the input; 0: unknown
	dir  string
	root *os.Root
	open []*os.File
	// regular: the output is a file that is emptied first, and not a device or a pipe.
	regular bool
}

// openScoreFiles opens everything before the first sample is scored.
func openScoreFiles(f *scoreFlags, e env) (*scoreFiles, error) {
	files := &scoreFiles{in: e.stdin, out: e.stdout, dir: "."}
	if err := files.openAll(f); err != nil {
		files.close()
		return nil, err
	}
	return files, nil
}

func (f *scoreFiles) openAll(a *scoreFlags) (err error) {
	if a.root != "" {
		if f.root, err = os.OpenRoot(a.root); err != nil {
			return fmt.Errorf("--media-root: %w", err)
		}
	}
	var before os.FileInfo
	if a.input != "-" {
		in, err := os.Open(a.input)
		if err != nil {
			return fmt.Errorf("-i: %w", err)
		}
		f.open = append(f.open, in)
		if before, err = in.Stat(); err != nil || before.IsDir() {
			return fmt.Errorf("-i: %s is a folder: want a file with one sample a line", a.input)
		}
		if before.Mode().IsRegular() {
			f.size = before.Size()
		}
		f.in, f.dir = in, filepath.Dir(a.input)
	}
	if a.output == "-" {
		return nil
	}
	// Emptied only when scoring begins: what is there must not be lost to a mistake.
	out, err := os.OpenFile(a.output, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	f.open = append(f.open, out)
	now, err := out.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("-o: %w", err)
	case before != nil && os.SameFile(before, now):
		return fmt.Errorf("-o: %s is the input", a.output)
	}
	f.regular = now.Mode().IsRegular()
	f.out = out
	return nil
}

// begin empties the output.
func (f *scoreFiles) begin() error {
	if out, ok := f.out.(*os.File); ok && f.regular {
		return out.Truncate(0)
	}
	return nil
}

// finish closes the output: some file systems say only then that they are full.
func (f *scoreFiles) finish() error {
	n := len(f.open)
	if n == 0 || f.out != io.Writer(f.open[n-1]) {
		return nil // standard output is not ours to close
	}
	out := f.open[n-1]
	f.open = f.open[:n-1]
	return out.Close()
}

func (f *scoreFiles) close() {
	for _, file := range f.open {
		_ = file.Close() // read, or given up
	}
	if f.root != nil {
		_ = f.root.Close()
	}
}
