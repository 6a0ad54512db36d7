package python

import (
	"cmp"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

var (
	_ rewards.Concurrent = (*Scorer)(nil)
	_ rewards.Concurrent = (*postProcess)(nil)
)

// Concurrency is how many calls the function's processes execute at a time. Whether the
// function is async is known when the first process has started, which Warm waits for.
func (s *Scorer) Concurrency() int {
	processes, each := s.pool.executors()
	return processes * each
}

// ConcurrencyReason counts processes and their calls.
func (s *Scorer) ConcurrencyReason() string { return s.pool.concurrencyReason() }

// Concurrency is the Scorer's, whose processes it uses.
func (p *postProcess) Concurrency() int { return p.s.Concurrency() }

// ConcurrencyReason is the Scorer's.
func (p *postProcess) ConcurrencyReason() string { return p.s.ConcurrencyReason() }

// executors are the processes that the function may have now, those that are yet to be
// started included, and the calls that each of them runs at a time.
func (p *pool) executors() (processes, each int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	each = p.capacity
	if !p.known {
		each = cmp.Or(p.opts.Concurrency, 1)
	}
	processes = 1
	if p.held == 0 && (each == 1 || p.share.explicit) {
		processes += p.share.spare
	}
	return processes, each
}

func (p *pool) concurrencyReason() string {
	processes, each := p.executors()
	p.mu.Lock()
	async, known, held := p.async, p.known, p.held > 0
	p.mu.Unlock()
	why := rewards.Count(processes, "Python process")
	switch {
	case async:
		why += fmt.Sprintf(" with %s of an async def function", rewards.Count(each, "call"))
	case each > 1 && known:
		why += " with " + rewards.Count(each, "thread")
	case each > 1:
		why += " with " + rewards.Count(each, "call")
	case !known:
		why += fmt.Sprintf("; %d calls in one if it is an async def function, which its start shows", p.cfg.Concurrency)
	}
	switch {
	case held:
		why += fmt.Sprintf(", because %d samples in a row ended theirs", deadlyRow)
	case processes > 1:
		why += fmt.Sprintf(", of which all Python functions share %d; they start when calls wait", processes-1)
	}
	return why
}
