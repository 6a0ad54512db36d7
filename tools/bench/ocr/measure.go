package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// The four that are measured, as they are called in tables.
const (
	rapidDefault = "RapidOCR, its defaults"
	rapidTwo     = "RapidOCR, 2 processes of 1 thread"
	oursParity   = "ours, parity"
	oursFast     = "ours, fast"
)

const about = "The text reader on PP-OCR models against RapidOCR on the same models, pictures and cores, RapidOCR at its defaults without the classifier."

// bench is everything that is measured, started.
type bench struct {
	rapid, two   team
	runtime      *session
	parity, fast *ours
	folder       string
}

// measure runs everything and reports whether a row missed that is not listed.
func (s settings) measure(ctx context.Context, w io.Writer) (missed bool, err error) {
	known, err := readMisses(filepath.Join(s.root, "tools", "bench", "misses.yml"))
	if err != nil {
		return false, err
	}
	r := &results{
		Report: report.Begin(ctx, s.root, "ocr", about), Models: [2]string{filepath.Base(s.det), filepath.Base(s.rec)},
		Pictures: map[string]int{}, Errors: map[string]float64{}, Exact: map[string]float64{},
	}
	r.Quick, r.Repetitions = s.quick, s.repetitions
	b := &bench{}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.folder, err = os.MkdirTemp("", "rewardloop-ocr-"); err != nil {
		return false, err
	}
	pictures, err := s.picturesIn(ctx, b.folder)
	if err != nil {
		return false, err
	}
	for _, p := range pictures {
		r.Pictures[p.Kind]++
	}
	if err := s.start(ctx, b); err != nil {
		return false, err
	}
	r.Reference, r.Engine = b.rapid[0].version, b.runtime.describe()
	fmt.Fprintf(w, "%d pictures; %s; ours on %s\n", len(pictures), r.Reference, r.Engine)
	if err := s.fill(ctx, r, b, pictures, w); err != nil {
		return false, err
	}
	r.End()
	for _, f := range r.Rows {
		fmt.Fprintf(w, "%-22s %10.4g  %-8s%s\n", f.Row, f.Value, f.TargetText(), beside(f.Beside))
	}
	unlisted, mended := report.Judge(r.Rows, known)
	report.Tell(r.Rows, unlisted, mended, w)
	missed = len(unlisted) > 0 && !s.quick
	if s.out == "" {
		return missed, nil
	}
	return missed, r.Write(s.out)
}

// picturesIn draws the pictures, or takes those that were drawn before.
func (s settings) picturesIn(ctx context.Context, folder string) ([]picture, error) {
	if s.pictures == "" {
		s.pictures = filepath.Join(folder, "pictures")
		if err := s.draw(ctx, s.pictures, 200); err != nil {
			return nil, err
		}
	}
	pictures, err := load(s.pictures)
	if err == nil && s.quick {
		pictures = thin(pictures, 12)
	}
	return pictures, err
}

// start starts the readers.
func (s settings) start(ctx context.Context, b *bench) error {
	for _, want := range []struct {
		into    *team
		threads int
	}{{&b.rapid, -1}, {&b.two, 1}, {&b.two, 1}} {
		r, err := s.startRapid(ctx, want.threads)
		if err != nil {
			return err
		}
		*want.into = append(*want.into, r)
	}
	folded := ""
	if s.fold {
		folded = filepath.Join(b.folder, "folded")
	}
	var err error
	if b.runtime, err = open(s.det, s.rec, folded); err != nil {
		return err
	}
	if b.parity, err = newOurs(ctx, ppocr.Config{Mode: ppocr.Parity}, b.runtime); err != nil {
		return err
	}
	if b.fast, err = newOurs(ctx, ppocr.Config{Mode: ppocr.Fast}, b.runtime); err != nil {
		return err
	}
	for _, r := range slices.Concat(b.rapid, b.two) {
		b.parity.others = append(b.parity.others, r.cmd.Process.Pid)
	}
	b.fast.others = b.parity.others
	return nil
}

func (b *bench) close() error {
	var errs []error
	for _, r := range slices.Concat(b.rapid, b.two) {
		errs = append(errs, r.close())
	}
	for _, o := range []*ours{b.parity, b.fast} {
		if o != nil {
			errs = append(errs, o.reader.Close())
		}
	}
	if b.runtime != nil {
		errs = append(errs, b.runtime.close())
	}
	if b.folder != "" {
		errs = append(errs, os.RemoveAll(b.folder))
	}
	return errors.Join(errs...)
}

// fill compares, times, and makes the rows.
func (s settings) fill(ctx context.Context, r *results, b *bench, pictures []picture, w io.Writer) error {
	c, err := b.compare(ctx, pictures)
	if err != nil {
		return err
	}
	r.Parity = c.parity.differences
	for _, d := range c.fast.differences {
		if d.Cause == theLines {
			r.Fast = append(r.Fast, d)
		}
	}
	for name, f := range c.errors {
		r.Errors[name], r.Exact[name] = f.mean(), f.share()
	}
	var timed []picture
	for _, p := range pictures {
		if p.Kind == golden {
			timed = append(timed, p)
		}
	}
	reps := s.repetitions
	if s.quick {
		reps = 1
	}
	if r.Timings, err = race(ctx, b.contenders(), timed, reps, s.quick, w); err != nil {
		return err
	}
	r.Repetitions = reps
	for _, t := range r.Timings {
		for _, t := range t {
			if t.Others > cputime.MostOthers {
				r.Disturbed++
			}
		}
	}
	video, err := b.watch(ctx, pictures, reps)
	if err != nil {
		return err
	}
	r.Rows, err = rows(c, r.Timings, video)
	return err
}

// comparison is what was read, compared.
type comparison struct {
	parity, fast tally
	errors       map[string]*fidelity
}

// compare reads all pictures with RapidOCR and both modes.
func (b *bench) compare(ctx context.Context, pictures []picture) (*comparison, error) {
	_, _, pages, err := b.rapid.read(pictures)
	if err != nil {
		return nil, err
	}
	_, parity, err := b.parity.read(ctx, pictures)
	if err != nil {
		return nil, err
	}
	_, fast, err := b.fast.read(ctx, pictures)
	if err != nil {
		return nil, err
	}
	c := &comparison{errors: map[string]*fidelity{}}
	for i, p := range pictures {
		want := pages[i].lines()
		if err := errors.Join(c.parity.add(p, want, parity[i]), c.fast.add(p, parity[i], fast[i])); err != nil {
			return nil, err
		}
		for name, lines := range map[string][]line{rapidDefault: want, oursParity: parity[i], oursFast: fast[i]} {
			if c.errors[name] == nil {
				c.errors[name] = &fidelity{}
			}
			if err := c.errors[name].add(p, lines); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// contenders are the four that are timed.
func (b *bench) contenders() []contender {
	python := func(name string, t team) contender {
		return contender{name, func(_ context.Context, pictures []picture) (usage, error) {
			took, cpu, _, err := t.read(pictures)
			return usage{took: took, ort: cpu}, err
		}}
	}
	golang := func(name string, o *ours) contender {
		return contender{name, func(ctx context.Context, pictures []picture) (usage, error) {
			u, _, err := o.read(ctx, pictures)
			return u, err
		}}
	}
	return []contender{python(rapidDefault, b.rapid), golang(oursFast, b.fast), python(rapidTwo, b.two), golang(oursParity, b.parity)}
}

// rows makes the figures.
func rows(c *comparison, timings map[string][]timing, video []float64) ([]report.Figure, error) {
	var out []report.Figure
	var errs []error
	add := func(name string, beside map[string]float64, values ...float64) {
		r, err := figure(name, beside, values...)
		out, errs = append(out, r), append(errs, err)
	}
	p, f := &c.parity, &c.fast
	add("parity-lines", map[string]float64{"lines": float64(p.lines)}, p.part(p.texts, p.lines))
	add("parity-corners", map[string]float64{"lines": float64(p.lines)}, p.part(p.corners, p.lines))
	add("parity-rewards", map[string]float64{"pictures": float64(p.rewards)}, p.part(p.sameRewards, p.rewards))
	add("fast-rewards", map[string]float64{"pictures": float64(f.rewards)}, f.part(f.sameRewards, f.rewards))
	fast, parity, rapid := c.errors[oursFast], c.errors[oursParity], c.errors[rapidDefault]
	add("fast-error-added", nil, fast.mean()-parity.mean())
	add("error", map[string]float64{"RapidOCR": rapid.mean(), "parity": parity.mean(), "pictures": float64(fast.pictures)}, fast.mean())
	add("exact", map[string]float64{"RapidOCR": rapid.share(), "parity": parity.share()}, fast.share())
	var fastSpeed, paritySpeed, share, best, less []float64
	for i := range timings[oursFast] {
		better := max(timings[rapidDefault][i].Rate, timings[rapidTwo][i].Rate)
		t := timings[oursFast][i]
		best = append(best, better)
		less = append(less, min(timings[rapidDefault][i].CPU, timings[rapidTwo][i].CPU)/t.CPU)
		fastSpeed = append(fastSpeed, t.Rate/better)
		paritySpeed = append(paritySpeed, timings[oursParity][i].Rate/better)
		share = append(share, t.Own/t.CPU)
	}
	add("fast-speed", map[string]float64{"RapidOCR /s": report.Median(best), "times less CPU": report.Median(less)}, fastSpeed...)
	add("parity-speed", nil, paritySpeed...)
	add("own-share", nil, share...)
	add("video-frames", nil, video...)
	return out, errors.Join(errs...)
}
