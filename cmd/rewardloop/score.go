package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/node"
)

const scoreText = `
Scores a file of samples offline, in this process, with the same rewards and on
the same path as serve. The input is one of

  samples.jsonl    one JSON object per line: id, uid, group_size, data_source,
                   prompt, response, ground_truth, extra_info, reward, step,
                   split, index, one of image (a path), images (paths) and
                   video (an MP4, WebM or GIF file, a folder of frames, or
                   their paths), and audio (a WAV or FLAC file)
  samples.csv      the same names in the first row; extra_info and images are
                   JSON
  samples.parquet  the same names as columns; a picture is a path, or a struct
                   of bytes and path, as Hugging Face's datasets writes it
  FOLDER           every picture and video in the folder, with the file name as
                   id and without a prompt; or one picture or video
  -                standard input, as JSON lines

All fields are optional; id is recommended (default: line-N, from the line
number). Pictures are PNG, JPEG or WebP, detected by their bytes. Paths are
relative to --media-root and cannot leave that folder; without --media-root,
paths are relative to the folder of the input.

The output is one of

  scores.jsonl     one line per sample, in the order of the input: id, outcome,
                   reward_score, reward_extra_info, details, errors, timing_ms,
                   and fallback and step_scores if the reward has them
  scores.csv       the same; objects and lists are JSON
  scores.parquet   one flat row per sample: the same, the texts of the sample,
                   and a typed column for each component, extra value and time
  scores.html      a report in one file: distribution, best, worst, failures,
                   groups, components, thumbnails
  -                standard output, as JSON lines

JSON lines and CSV are written while scores arrive, so the output of a stopped
run is usable. Parquet and HTML are written at the end of the run or after
Ctrl-C; until then the results are in NAME.partial.jsonl.

An invalid line is reported with its line number, on standard error and in the
output (outcome "rejected"); the other lines are scored. An incomplete group is
closed with the members that the input has. On a terminal, the run ends with
quantiles and a histogram of the reward and of each component.

Exit code: 0 if every sample was scored, 1 if some samples were not, 2 if the
run could not start. After Ctrl-C, finished samples are written with their
results and the others as cancelled, and the exit code is 1.`

const scoreExample = `
rewardloop score -c cfg.yaml -i samples.jsonl -o scores.jsonl
rewardloop score cfg.yaml -i pictures -o report.html
rewardloop score cfg.yaml -i samples.parquet -o scores.parquet
rewardloop score -c cfg.yaml -i - -o - --media-root pictures \
  <samples.jsonl >scores.jsonl`

// scoreFlags are what score was asked for.
type scoreFlags struct {
	input, output, root string
}

func scoreCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "score [cfg.yaml] -i SAMPLES -o SCORES [key=value...]", GroupID: groupScore, DisableFlagsInUseLine: true,
		SuggestFor: []string{"eval", "evaluate", "reward"},
		Short:      "score a file of samples offline, with the same rewards as serve",
		Long:       scoreText, Example: scoreExample,
	}
	s := configFlags(e, cmd)
	f := new(scoreFlags)
	cmd.Flags().StringVarP(&f.input, "input", "i", "", "input `samples`: .jsonl, .csv, .parquet, or a folder of pictures; - reads standard input")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "output `file`, overwritten: .jsonl, .csv, .parquet or .html; - writes standard output")
	cmd.Flags().StringVar(&f.root, "media-root", "", "`folder` that must contain all pictures")
	_ = cmd.MarkFlagDirname("media-root") // the flag is there
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if err := s.take(args); err != nil {
			return fmt.Errorf("%w; samples follow -i, scores -o", err)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case f.input == "" || f.output == "":
			return errors.New("name the file of samples and the file for scores: -i samples.jsonl -o scores.jsonl")
		case f.input == "-" && s.file == "-":
			return errors.New("-c - and -i - both read standard input: write one to a file")
		}
		return score(cmd.Context(), e, s, f)
	}
	return cmd
}

func score(ctx context.Context, e *env, set *settings, f *scoreFlags) error {
	if err := checkForms(f); err != nil {
		return wrong(err)
	}
	cfg, err := set.load(ctx, false)
	if err != nil {
		return wrong(err)
	}
	show := newProgress(e, f.output == "-")
	log := slog.New(slog.NewTextHandler(show, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: e.secrets.Attr}))
	for _, n := range cfg.Notes() {
		log.WarnContext(ctx, "a key of the configuration may not have the expected effect", "note", n.String())
	}
	n, err := node.New(node.Options{Config: cfg, Log: log, Version: release(), NoServer: true, Examine: e.stderr})
	if err != nil {
		return wrong(err)
	}
	files, err := openScoreFiles(f, e)
	if err != nil {
		n.Stop()
		return wrong(err)
	}
	defer files.close()
	ctx, stop := interruptible(ctx) // the first signal ends the run in order
	defer stop()
	if err := n.Start(ctx); err != nil {
		return failed(err)
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
		encode:  encode,
	}
	decoder, err := node.NewDecoder(cfg.Pool.Decode) // of the report's pictures
	if err != nil {
		return failed(err)
	}
	out := files.out
	switch {
	case isCSV(f.output):
		s.encode, s.head = encodeCSV, headCSV()
	case files.kept != nil:
		out, s.keep = files.kept.results, files.kept.sample
		s.encode = func(r *outputLine) []byte {
			line := encode(r)
			files.columns.note(r)
			return line
		}
	}
	err = files.begin()
	if err == nil {
		err = errors.Join(s.run(ctx, files.in, out), files.late(ctx, &scoreReport{files: files, media: s.media, decoder: decoder, show: show}), files.finish())
	}
	show.summary()
	if err != nil {
		return failed(err)
	}
	if !show.allScored() {
		return failed(nil)
	}
	return nil
}

// scoreFiles are what score reads and writes.
type scoreFiles struct {
	in           lineSource
	out          io.Writer
	source, name string // of the input and of the output
	size         int64  // of the input; 0: unknown
	dir          string
	root         *os.Root
	open         []*os.File
	// regular: the output is a file that is emptied first, and not a device or a pipe.
	regular bool
	// kept: the output is written when all is scored; nil: as the scores come.
	kept    *kept
	columns columnsOf
}

// openScoreFiles opens everything before the first sample is scored.
func openScoreFiles(f *scoreFlags, e *env) (*scoreFiles, error) {
	files := &scoreFiles{in: newLineReader(e.stdin), out: e.stdout, source: f.input, name: f.output, dir: "."}
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
		if before, err = f.openInput(a); err != nil {
			return fmt.Errorf("-i: %w", err)
		}
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
	if atEnd(a.output) {
		if f.kept, err = newKept(a.output); err != nil {
			return fmt.Errorf("-o: %w", err)
		}
		f.columns.seen = map[string]*scalars{}
	}
	return nil
}

// atEnd reports whether an output is written when all is scored.
func atEnd(output string) bool { return form(output) == ".parquet" || form(output) == ".html" }

// late writes an output that is written when all is scored, or the run was told to end.
func (f *scoreFiles) late(ctx context.Context, report *scoreReport) (err error) {
	if f.kept == nil {
		return nil
	}
	k := f.kept
	f.kept = nil
	out := bufio.NewWriterSize(f.out, 256<<10)
	if form(f.name) == ".html" {
		report.ended = ctx.Err() != nil
		err = report.write(ctx, k, out)
	} else {
		err = writeParquet(k, &f.columns, out)
	}
	if err == nil {
		err = out.Flush()
	}
	k.drop(err == nil)
	if err != nil {
		return fmt.Errorf("writing %s: %w; the results are in %s", f.name, err, f.name+partial)
	}
	return nil
}

// openInput opens the samples by what they are.
func (f *scoreFiles) openInput(a *scoreFlags) (os.FileInfo, error) {
	in, err := os.Open(a.input)
	if err != nil {
		return nil, err
	}
	f.open = append(f.open, in)
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	f.dir = filepath.Dir(a.input)
	if info.Mode().IsRegular() {
		f.size = info.Size()
	}
	switch {
	case info.IsDir() && f.root != nil:
		return nil, fmt.Errorf("%s is a folder, and its pictures are the samples: leave out --media-root", a.input)
	case info.IsDir():
		f.dir = a.input
		f.in, err = newFolderLines(in)
	case isPicture(a.input) || isVideo(a.input):
		f.in = &folderLines{names: []string{filepath.Base(a.input)}}
	case form(a.input) == ".parquet" && info.Mode().IsRegular():
		f.in, err = newParquetLines(in, info.Size())
	case info.Mode().IsRegular() && isBinary(in):
		err = errors.New("is not a text file: give JSON lines, a .csv or .parquet file or a folder of pictures")
	case isCSV(a.input):
		f.in, err = newCSVLines(in)
	default:
		f.in = newLineReader(in)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.input, err)
	}
	return info, nil
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
	if f.kept != nil {
		f.kept.drop(true) // nothing was scored
	}
	for _, file := range f.open {
		_ = file.Close() // read, or given up
	}
	if f.root != nil {
		_ = f.root.Close()
	}
}
