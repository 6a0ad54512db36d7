package main

import (
	"fmt"
	"io"
	"time"

	"github.com/rewardloop/rewardloop/internal/pyenv"
)

// envProgress says how the making of an environment goes: a line that changes on a terminal, else a
// line for each stage and now and then while it lasts. Make calls it from one goroutine at a time.
type envProgress struct {
	out   io.Writer
	bar   bool
	every time.Duration
	now   func() time.Time

	stage pyenv.Stage
	shown time.Time // when the state was last printed
	drawn bool      // the line on the terminal is to be replaced
	made  bool      // something was installed
}

func newEnvProgress(out io.Writer, bar bool) *envProgress {
	p := &envProgress{out: out, bar: bar, every: lineEvery, now: time.Now}
	if bar {
		p.every = barEvery
	}
	return p
}

// event is pyenv.Options.Progress.
func (p *envProgress) event(e pyenv.Event) {
	if e.Stage != pyenv.Installing && e.Stage != pyenv.Fetching {
		p.end()
		p.stage = e.Stage
		if e.Stage == pyenv.Noted {
			fmt.Fprintln(p.out, e.Note)
			return
		}
		fmt.Fprintf(p.out, "%s: %s\n", e.Stage, e.Note)
		return
	}
	now := p.now()
	first := p.stage != e.Stage
	p.made = p.made || e.Stage == pyenv.Installing
	if !first && now.Sub(p.shown) < p.every {
		return
	}
	p.stage, p.shown = e.Stage, now
	text := string(e.Stage) + " " + e.Note
	if !first {
		text += ": " + megabytes(e.Bytes) + " on the disk"
	}
	if !p.bar {
		fmt.Fprintln(p.out, text)
		return
	}
	p.end()
	fmt.Fprint(p.out, text)
	p.drawn = true
}

// end takes the line that changes away.
func (p *envProgress) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}
