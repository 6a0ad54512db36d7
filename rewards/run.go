package rewards

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Run is one sample's way through a Manager.
type Run struct {
	// Result is decided; it does not change any more.
	Result Result
	done   chan struct{}
}

// Done is closed when every goroutine of the run has returned, abandoned scorers
// included. Until then the sample and its bytes must stay as they are.
func (r *Run) Done() <-chan struct{} { return r.done }

// Run scores s with all terms at once and returns when the result is decided: at
// the latest when the longest term's deadline passes or ctx ends, whether or not
// the scorers have noticed. If ctx ends first the outcome is cancelled, and
// nothing else in the result means anything.
func (m *Manager) Run(ctx context.Context, s *Sample) *Run {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &collector{
		m:       m,
		sample:  s,
		results: make([]TermResult, len(m.cfg.Terms)),
		answers: make(chan answer, len(m.cfg.Terms)),
		start:   time.Now(),
	}
	run := &Run{done: make(chan struct{})}
	var left atomic.Int32
	left.Store(int32(len(m.cfg.Terms))) //nolint:gosec // a profile has a handful of terms
	for i := range m.cfg.Terms {
		go func() { // ends with its scorer; Run.Done tells when all have
			c.answers <- answer{i, m.score(ctx, &m.cfg.Terms[i], s)}
			if left.Add(-1) == 0 {
				close(run.done)
			}
		}()
	}
	run.Result = c.collect(ctx)
	return run
}

// answer is what a term's goroutine sends, once.
type answer struct {
	term   int
	result TermResult
}

// collector gathers the answers of one run; only the goroutine of Run uses it.
type collector struct {
	m       *Manager
	sample  *Sample
	results []TermResult
	answers chan answer // one place per term, so that an abandoned one never blocks
	start   time.Time
}

// collect waits for all answers, for the deadlines of those that do not come, for
// the failure of a required term, or for the end of ctx.
func (c *collector) collect(ctx context.Context) Result {
	terms := c.m.cfg.Terms
	timer := time.NewTimer(c.nextDeadline())
	defer timer.Stop()
	for left := len(terms); left > 0; left-- {
		select {
		case a := <-c.answers:
			if c.results[a.term].Key != "" {
				left++ // it was given up at its deadline
				continue
			}
			c.results[a.term] = a.result
			if a.result.Status == StatusFailed && terms[a.term].Required && ctx.Err() == nil {
				return c.m.failed(c.settle())
			}
		case <-timer.C:
			left -= c.giveUp() - 1
			timer.Reset(c.nextDeadline())
			if c.failedRequired() {
				return c.m.failed(c.settle())
			}
		case <-ctx.Done():
			return Result{Outcome: OutcomeCancelled}
		}
	}
	if ctx.Err() != nil {
		return Result{Outcome: OutcomeCancelled}
	}
	return c.m.combine(c.sample, c.results)
}

// nextDeadline returns how long until the next unanswered term is overdue. The
// grace lets a scorer that heeds its context answer for itself.
func (c *collector) nextDeadline() time.Duration {
	const grace = 100 * time.Millisecond
	next := time.Duration(1<<63 - 1)
	for i, t := range c.m.cfg.Terms {
		if c.results[i].Key == "" {
			next = min(next, t.Timeout+grace-time.Since(c.start))
		}
	}
	return max(next, 0)
}

// giveUp fails every overdue term and returns how many there were.
func (c *collector) giveUp() int {
	n := 0
	for i, t := range c.m.cfg.Terms {
		if c.results[i].Key == "" && time.Since(c.start) >= t.Timeout {
			c.results[i] = TermResult{
				Key: t.Key, Status: StatusFailed, Class: Timeout, Attempts: 1, Took: time.Since(c.start),
				Message: fmt.Sprintf("the scorer did not return within %v and ignored its context", t.Timeout),
			}
			n++
		}
	}
	return n
}

func (c *collector) failedRequired() bool {
	for i, t := range c.m.cfg.Terms {
		if t.Required && c.results[i].Status == StatusFailed {
			return true
		}
	}
	return false
}

// settle marks the terms that had no time to answer as cancelled.
func (c *collector) settle() []TermResult {
	for i, t := range c.m.cfg.Terms {
		if c.results[i].Key == "" {
			c.results[i] = TermResult{
				Key: t.Key, Status: StatusSkipped, Reason: "a required term of the sample failed", Took: time.Since(c.start),
			}
		}
	}
	return c.results
}

// score runs one term to its final answer: attempts with a doubling, jittered
// pause between them while the failure is transient and the budget lasts.
func (m *Manager) score(ctx context.Context, t *Term, s *Sample) TermResult {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	start := time.Now()
	pause := m.cfg.Backoff
	for attempt := 1; ; attempt++ {
		score, err := guard(ctx, t.Scorer, s)
		r := t.judge(score, err)
		r.Attempts, r.Took = attempt, time.Since(start)
		if r.Status != StatusFailed || !r.Class.Transient() || attempt > t.Retries || ctx.Err() != nil {
			return r
		}
		jitter := time.Duration(rand.Int64N(int64(pause) + 1)) //nolint:gosec // a pause needs no secret randomness
		select {
		case <-time.After(pause/2 + jitter):
		case <-ctx.Done():
			return r
		}
		pause *= 2
	}
}

// guard calls the scorer and turns a panic into an error. It must stand in the
// goroutine that makes the call: a recover anywhere else would not be reached and
// the process would die.
func guard(ctx context.Context, sc Scorer, s *Sample) (score Score, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", Panicked, p, firstLines(debug.Stack(), 2048))
		}
	}()
	return sc.Score(ctx, s)
}

func firstLines(b []byte, n int) []byte { return b[:min(len(b), n)] }
