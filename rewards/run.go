package rewards

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Run is the scoring of one sample by a Manager.
type Run struct {
	// Result is final; it does not change any more.
	Result Result
	done   chan struct{}
}

// Done returns a channel that is closed when every goroutine of the run has returned, including
// abandoned scorers. Until then the sample and its bytes must not change.
func (r *Run) Done() <-chan struct{} { return r.done }

// Run scores s with all components at the same time, and returns when the result is decided. Run
// returns at the latest when the longest deadline of a component passes or ctx ends, even if
// scorers have not returned. If ctx ends first, the outcome is cancelled, and the rest of the
// result is meaningless.
func (m *Manager) Run(ctx context.Context, s *Sample, opts ...RunOption) *Run {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := &Run{done: make(chan struct{})}
	p := m.newPass(run.done, opts)
	defer p.close()
	if m.cfg.Begun != nil {
		p.over = m.cfg.Begun(s)
	}
	ctx = p.context(ctx)
	c := &collector{
		m:       m,
		pass:    p,
		results: make([]ComponentResult, len(m.cfg.Components)),
		tries:   make([]atomic.Int32, len(m.cfg.Components)),
		clocks:  make([]*clock, len(m.cfg.Components)),
		answers: make(chan answer, len(m.cfg.Components)),
		began:   make(chan struct{}, 1),
		start:   time.Now(),
	}
	for i, t := range m.cfg.Components {
		c.clocks[i] = &clock{timeout: t.Timeout, told: c.tell}
	}
	s = m.named(s)
	p.reads(s)
	p.endComponents(func(_ int, t *Component) bool { return t.Group != nil && !t.alone(s) })
	s, err := m.prepare(ctx, s)
	p.end(len(m.cfg.Components))
	if err != nil {
		var waits bool
		if run.Result, waits = p.unready(err); !waits {
			run.Result = m.unprepared(err)
		}
		if ctx.Err() != nil {
			run.Result = Result{Outcome: OutcomeCancelled}
		}
		return run
	}
	c.sample = s
	p.reads(s)
	alone := c.begin(s)
	p.endComponents(func(i int, t *Component) bool {
		return !slices.Contains(alone, i) && (!t.alone(s) || c.results[i].Status != StatusWaiting)
	})
	for _, i := range alone {
		p.run(i)
		go func() { // ends with its scorer; Run.Done tells when all have
			t := &m.cfg.Components[i]
			a := answer{i, ComponentResult{
				Key: t.Key, Status: StatusFailed, Class: Panicked, Message: "the scorer ended its goroutine (runtime.Goexit)", Attempts: 1,
			}}
			defer func() {
				p.end(i)
				c.answers <- a
				p.leave()
			}()
			a.result = m.score(ctx, c.clocks[i], t, s, &c.tries[i])
		}()
	}
	run.Result = c.collect(ctx)
	if run.Result.Partial != nil && run.Result.Waits == "" && !s.HasGroup() {
		run.Result = m.runGroup(ctx, p, []GroupMember{{s, run.Result.Partial}}, 1, nil)[0]
	}
	return run
}

// alone reports whether the component looks at the sample as a group of its own, in its Run.
func (t *Component) alone(s *Sample) bool {
	return t.Group != nil && t.MinMembers == 1 && !s.HasGroup()
}

// begin answers for the components that do not look at this sample now, and returns the
// others.
func (c *collector) begin(s *Sample) (alone []int) {
	value := c.m.route(s)
	for i := range c.m.cfg.Components {
		t := &c.m.cfg.Components[i]
		if r, skipped := c.m.elsewhere(t, value); skipped {
			c.results[i] = r
		} else if r, kept := c.pass.keeps(i); kept {
			c.results[i] = r
		} else if t.Group != nil {
			c.results[i] = c.m.waiting(s, t)
		} else {
			alone = append(alone, i)
		}
	}
	return alone
}

// answer is what a component's goroutine sends, once.
type answer struct {
	component int
	result    ComponentResult
}

// collector gathers the answers of one run; but for tries, only the goroutine of
// Run uses it.
type collector struct {
	m       *Manager
	pass    *pass
	sample  *Sample
	results []ComponentResult // those without a key have not come
	tries   []atomic.Int32    // attempts begun; counted by the component's goroutine
	clocks  []*clock
	answers chan answer   // one place per component, so that an abandoned one never blocks
	began   chan struct{} // capacity 1: a clock has started
	start   time.Time
}

// tell wakes collect: there is a new deadline.
func (c *collector) tell() {
	select {
	case c.began <- struct{}{}:
	default:
	}
}

// collect waits for all answers, for the deadlines of those that do not come, for
// the failure of a required component, or for the end of ctx.
func (c *collector) collect(ctx context.Context) Result {
	timer := time.NewTimer(c.nextDeadline())
	defer timer.Stop()
	for !c.complete() {
		select {
		case a := <-c.answers:
			c.take(a)
		case <-c.began:
			timer.Reset(c.nextDeadline())
		case <-timer.C:
			c.giveUp()
			timer.Reset(c.nextDeadline())
		case <-ctx.Done():
			return Result{Outcome: OutcomeCancelled}
		}
		// A scorer that fails because the caller left has not decided anything.
		if c.failedRequired() && ctx.Err() == nil {
			return c.m.failed(c.sample, c.settle())
		}
	}
	if ctx.Err() != nil {
		return Result{Outcome: OutcomeCancelled}
	}
	return c.m.decide(c.sample, c.results, c.pass.returns)
}

// waiting is what a component that looks at whole groups says of a sample alone.
func (m *Manager) waiting(s *Sample, t *Component) ComponentResult {
	if s.HasGroup() || t.alone(s) {
		return ComponentResult{Key: t.Key, Status: StatusWaiting}
	}
	return ComponentResult{
		Key: t.Key, Status: StatusFailed, Class: BadInput,
		Message: fmt.Sprintf("%v: sample %q belongs to no group of two or more, but %q compares the members of a group: send uid and group_size",
			BadInput, s.ID, t.Key),
	}
}

// decide makes the result of a sample whose components have answered, or leaves it to
// RunGroup where some of them wait for its group. Returns says that a sample is returned
// that waits for a dependency.
func (m *Manager) decide(s *Sample, components []ComponentResult, returns bool) Result {
	waiting := false
	if returns {
		if why := m.awaited(s, components); why != nil {
			return returned(components, why)
		}
	}
	for i := range components {
		if components[i].Status == StatusFailed && m.cfg.Components[i].Required {
			return m.failed(s, components)
		}
		waiting = waiting || components[i].Status == StatusWaiting
	}
	if waiting {
		return Result{Components: components, Partial: components, OnFailure: m.cfg.OnSampleFailure}
	}
	return m.combine(s, components)
}

func (c *collector) complete() bool {
	return !slices.ContainsFunc(c.results, func(r ComponentResult) bool { return r.Key == "" })
}

// take keeps an answer, unless its component was given up at its deadline.
func (c *collector) take(a answer) {
	if c.results[a.component].Key == "" {
		c.results[a.component] = a.result
	}
}

// grace is how long after its deadline a component is waited for: it lets a scorer
// that heeds its context answer for itself.
const grace = 100 * time.Millisecond

// nextDeadline returns how long until the next unanswered component is overdue.
func (c *collector) nextDeadline() time.Duration {
	next := time.Duration(1<<63 - 1)
	for i := range c.m.cfg.Components {
		if over, begun := c.clocks[i].over(); begun && c.results[i].Key == "" {
			next = min(next, time.Until(over)+grace)
		}
	}
	return max(next, 0)
}

// giveUp fails every overdue component. On a machine so busy that this goroutine itself
// is late, answers that came in time may lie unread: they count.
func (c *collector) giveUp() {
	for len(c.answers) > 0 { // nobody else receives
		c.take(<-c.answers)
	}
	for i, t := range c.m.cfg.Components {
		if over, begun := c.clocks[i].over(); begun && c.results[i].Key == "" && time.Since(over) >= grace {
			c.results[i] = ComponentResult{
				Key: t.Key, Status: StatusFailed, Class: Timeout, Blame: BlameReward, Attempts: int(c.tries[i].Load()), Began: c.start, Took: time.Since(c.start),
				Message: fmt.Sprintf("the scorer did not return within %v and ignored its context", t.Timeout),
			}
		}
	}
}

// failedRequired reports whether a component has decided. One that waits for a dependency has not:
// what the others say is kept until that is back.
func (c *collector) failedRequired() bool {
	for i, t := range c.m.cfg.Components {
		if t.Required && c.results[i].Status == StatusFailed && (!c.pass.returns || c.results[i].Waits == "") {
			return true
		}
	}
	return false
}

// settle marks the components that had no time to answer as skipped.
func (c *collector) settle() []ComponentResult {
	for i, t := range c.m.cfg.Components {
		if c.results[i].Key == "" {
			c.results[i] = ComponentResult{
				Key: t.Key, Status: StatusSkipped, Reason: "a required component of the sample failed",
				Attempts: int(c.tries[i].Load()), Began: c.start, Took: time.Since(c.start),
			}
		}
	}
	return c.results
}

// score runs one component to its final answer: attempts with a doubling, jittered
// pause between them while Retries and the timeout, which is the clock's, last.
func (m *Manager) score(ctx context.Context, c *clock, t *Component, s *Sample, tries *atomic.Int32) ComponentResult {
	ctx, cancel := clocked(ctx, c, t.Scorer)
	defer cancel()
	start := time.Now()
	pause := m.cfg.Backoff
	for attempt := 1; ; attempt++ {
		tries.Add(1)
		r := t.attempt(ctx, s)
		r.Attempts, r.Began, r.Took = attempt, start, time.Since(start)
		if r.Status != StatusFailed || attempt > t.Retries || !repeats(r.Blame, r.Permanent) || r.Waits != "" && Returns(ctx) || ctx.Err() != nil {
			return r
		}
		jitter := time.Duration(rand.Int64N(int64(pause) + 1)) // a pause needs no secret randomness
		if !sleep(ctx, pause/2+jitter) {
			r.Took = time.Since(start)
			return r
		}
		pause *= 2
	}
}

// attempt calls the scorer once and judges what it returned; a panic in either
// (an error's own methods are the scorer's code too) is a failure.
func (t *Component) attempt(ctx context.Context, s *Sample) (r ComponentResult) {
	ctx, reader := withReader(ctx)
	defer reader.end()
	err := Guard(func() error {
		r = t.judge(t.Scorer.Score(ctx, s))
		return nil
	})
	if err != nil {
		return ComponentResult{Key: t.Key, Status: StatusFailed, Class: Panicked, Message: tell(t.redact, err.Error()), Blame: BlameReward}
	}
	return r
}

// repeats reports whether Retries apply to a failure: the same call on the same worker may
// do better. What a sample lacks stays lacking, and a worker's fault is for another worker.
func repeats(b Blame, permanent bool) bool {
	return !permanent && (b == BlameReward || b == BlameDependency)
}

// maxMessage bounds what a scorer says about a failure, in bytes: messages travel
// with the result and are remembered with it.
const maxMessage = 4096

// MessageOf returns the text of err without the name of its class at the beginning.
func MessageOf(err error) string {
	text := err.Error()
	class := string(ClassOf(err)) + ": "
	for strings.HasPrefix(text, class) {
		text = text[len(class):]
	}
	return text
}

// tell is what a scorer said of a failure, without secrets, within maxMessage. What is cut
// off first is far behind that, so that no part of a secret is left at the end.
func tell(redact func(string) string, text string) string {
	if redact != nil {
		text = redact(clip(text, 4*maxMessage))
	}
	return clip(text, maxMessage)
}

// clip cuts s to n bytes or a little less, never within a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = " …"
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
