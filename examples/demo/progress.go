package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress shows the progress of a run: one line that is overwritten on a terminal, otherwise a
// line for every tenth. A nil Progress shows nothing.
type Progress struct {
	w    io.Writer
	live bool

	mu        sync.Mutex
	label     string        // of the run under way; guarded by mu
	begun     time.Time     // guarded by mu
	total     int           // guarded by mu
	generated int           // guarded by mu
	answered  int           // guarded by mu
	failed    int           // guarded by mu
	tenth     int           // the last that was shown; guarded by mu
	stop      chan struct{} // ends the goroutine that redraws; nil if there is none
	stopped   chan struct{}
}

// NewProgress returns a Progress that writes to w; live means that w is a terminal.
func NewProgress(w io.Writer, live bool) *Progress { return &Progress{w: w, live: live} }

// begin starts a run. Runs do not overlap: end comes first.
func (p *Progress) begin(label string, total int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.label, p.total, p.begun = label, total, time.Now()
	p.generated, p.answered, p.failed, p.tenth = 0, 0, 0, 0
	p.mu.Unlock()
	if !p.live {
		return
	}
	p.stop, p.stopped = make(chan struct{}), make(chan struct{})
	go p.redraw() // ended and waited for by end
}

func (p *Progress) redraw() {
	defer close(p.stopped)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		p.draw("\r", "\x1b[K")
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
	}
}

// end ends the run; what is on the line stays.
func (p *Progress) end() {
	if p == nil || !p.live {
		return
	}
	close(p.stop)
	<-p.stopped
	p.draw("\r", "\x1b[K\n")
}

func (p *Progress) finished() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.generated++
	p.mu.Unlock()
}

func (p *Progress) result(scored bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.answered++
	if !scored {
		p.failed++
	}
	tenth := 10 * p.answered / p.total
	show := !p.live && tenth > p.tenth
	p.tenth = tenth
	p.mu.Unlock()
	if show {
		p.draw("", "\n")
	}
}

func (p *Progress) draw(before, after string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const width = 10 // with all else the line stays below 80 columns
	full := width * p.answered / p.total
	line := fmt.Sprintf("  %-19s %s%s  rollout %3d/%d  scored %3d", p.label,
		strings.Repeat("█", full), strings.Repeat("░", width-full), p.generated, p.total, p.answered-p.failed)
	if p.failed > 0 {
		line += fmt.Sprintf("  failed %d", p.failed)
	}
	fmt.Fprintf(p.w, "%s%s %.1f s%s", before, line, time.Since(p.begun).Seconds(), after)
}
