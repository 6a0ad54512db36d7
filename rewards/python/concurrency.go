package python

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

var (
	_ rewards.Concurrent = (*Scorer)(nil)
	_ rewards.Concurrent = (*postProcess)(nil)
)

// Concurrency returns how many calls the function's processes execute at the same time. Whether the
// function is async is known after the first process has started, for which Warm waits.
func (s *Scorer) Concurrency() int {
	processes, each, _ := s.pool.executors()
	return processes * each
}

// ConcurrencyReason returns the numbers of processes and of calls per process, as text.
func (s *Scorer) ConcurrencyReason() string { return s.pool.concurrencyReason() }

// Concurrency is the Scorer's, whose processes it uses.
func (p *postProcess) Concurrency() int { return p.s.Concurrency() }

// ConcurrencyReason is the Scorer's.
func (p *postProcess) ConcurrencyReason() string { return p.s.ConcurrencyReason() }

// executors are the processes that the function may have now, those that are yet to be
// started included, and the calls that each of them runs at a time. Before the first one has
// started they are what the function's file looks like.
func (p *processes) executors() (processes, each int, async bool) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	looks := !known && p.looksAsync() // it reads a file
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.known:
		each, async = p.capacity, p.async
	case looks:
		each, async = cmp.Or(p.opts.Concurrency, p.cfg.Concurrency), true
	default:
		each = cmp.Or(p.opts.Concurrency, 1)
	}
	processes = 1
	if p.held == 0 && (each == 1 || p.share.explicit) {
		processes += p.share.spare
	}
	return processes, each, async
}

func (p *processes) concurrencyReason() string {
	processes, each, async := p.executors()
	p.mu.Lock()
	known, held := p.known, p.held > 0
	p.mu.Unlock()
	why := rewards.Count(processes, "Python process")
	switch {
	case async:
		why += fmt.Sprintf(" with %s of an async def function", rewards.Count(each, "call"))
	case each > 1 && known:
		why += " with " + rewards.Count(each, "thread")
	case each > 1:
		why += " with " + rewards.Count(each, "call")
	}
	switch {
	case held:
		why += fmt.Sprintf(", because %d samples in a row crashed their process", deadlyRow)
	case processes > 1:
		why += fmt.Sprintf(": its own, and %d that all functions share, started when calls wait", processes-1)
	}
	if !known {
		why += "; its start shows whether it is async"
	}
	return why
}

// maxLook is how much of a function's file is looked at, in bytes.
const maxLook = 1 << 20

// looksAsync reports whether a file has an async def of that name at its top level. One of a
// class or a module its process tells.
func looksAsync(path, name string) bool {
	file, err := os.Open(strings.TrimPrefix(path, "file://"))
	if err != nil {
		return false
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxLook))
	return err == nil && regexp.MustCompile(`(?m)^async\s+def\s+`+regexp.QuoteMeta(name)+`\s*\(`).Match(text)
}
