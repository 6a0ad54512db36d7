package loop

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is where the gateway meets the book of steps (package step), their statistics
// (package stats) and their reports (package trace): what clients say and ask of a step, and
// what the book's events mean to the rest of the gateway.

// declare takes a client's word about a step.
func (m *Manager) declare(s *stream.Session, msg *wire.Step) error {
	m.mu.Lock()
	r := m.current(s)
	if r == nil {
		m.mu.Unlock()
		return errEpoch(s.Run())
	}
	ev, err := m.core.book.Declare(time.Now(), r.name, step.Client{Name: s.ID().Client, Lane: s.ID().Lane}, msg)
	fx := effects{wake: err == nil}
	m.core.heed(ev, &fx)
	m.mu.Unlock()
	m.apply(fx)
	return err
}

// endStep takes a client's word that it sends no more of a step.
func (m *Manager) endStep(s *stream.Session, msg *wire.EndOfStep) error {
	m.mu.Lock()
	r := m.current(s)
	if r == nil {
		m.mu.Unlock()
		return errEpoch(s.Run())
	}
	fx := effects{wake: true}
	m.core.heed(m.core.book.EndStep(time.Now(), r.name, msg), &fx)
	m.mu.Unlock()
	m.apply(fx)
	return nil
}

func errEpoch(run string) error {
	return fmt.Errorf("%w: run %q has begun a new epoch on another connection", rewards.Malformed, run)
}

// heed does what the book's events ask for.
func (c *core) heed(ev step.Events, fx *effects) {
	for _, a := range ev.Alarms {
		c.setAlarm(a)
	}
	for _, st := range ev.Over {
		c.reports.Expect(st)
	}
	for _, st := range ev.Dropped {
		c.stats.Forget(stats.Key(st.Key()))
		c.reports.Forget(st)
		if a := c.deadlines[st]; a != nil && a.place == 0 {
			delete(c.deadlines, st)
		}
	}
	if ev.Forgotten > 0 {
		c.metrics.stepsForgotten.Add(float64(ev.Forgotten))
	}
	fx.over = append(fx.over, ev.Over...)
	fx.whole = fx.whole || ev.Whole
}

// setAlarm sets or clears the alarm of a step's deadline. A step keeps its alarm while it
// is in the book: of those that ring at the same moment the one that was first set comes
// first.
func (c *core) setAlarm(s step.Alarm) {
	a := c.deadlines[s.Step]
	switch {
	case !s.At.IsZero():
		if a == nil {
			a = &alarm{step: s.Step}
			c.deadlines[s.Step] = a
		}
		c.alarms.put(a, s.At)
	case a != nil:
		c.alarms.clear(a)
		if !c.book.Has(s.Step) {
			delete(c.deadlines, s.Step)
		}
	}
}

// closeStep ends a step at its deadline: whatever is in flight expires now, and nothing
// more is taken in.
func (c *core) closeStep(now time.Time, st *step.Step, fx *effects) {
	ends, ev := c.book.Due(st)
	c.heed(ev, fx)
	if !ends {
		return
	}
	for _, e := range c.all() {
		if e.step == st && e.state != final {
			e.deadline = now
			c.look(now, e, fx)
		}
	}
	c.metrics.stepsShort.Inc()
	c.heed(c.book.Short(now, st), fx)
}

// noteResult takes a final result into the book and the statistics of its step.
func (c *core) noteResult(now time.Time, e *entry, res *wire.Result, fx *effects) {
	own := *res
	own.Details = nil
	c.heed(c.book.Finished(now, e.step, e.row, res, sizeOf(&own), e.item.Profile().Capacity()), fx)
	key := stats.Key(e.step.Key())
	c.stats.Note(key, res)
	if e.step.InFlight() == 0 {
		c.stats.Pack(key.Run, key.Split)
	}
}

// progress tells the statistics how far the steps of a run have come.
func (c *core) progress(run string) iter.Seq[stats.Progress] {
	return func(yield func(stats.Progress) bool) {
		for st := range c.book.Steps(run) {
			p := stats.Progress{
				Key: stats.Key(st.Key()), Expected: st.Expected(), Arrived: st.Arrived(), InFlight: st.InFlight(), Whole: st.Whole(),
			}
			if !yield(p) {
				return
			}
		}
	}
}

// Whereabouts implements step.Flight.
func (e *entry) Whereabouts() (stage string, arrived time.Time, worker string) {
	if n := len(e.attempts); n > 0 {
		worker = e.attempts[n-1].worker
	}
	return string(e.state), e.arrived, worker
}

// tried notes that an attempt of the entry has ended.
func (e *entry) tried(a attempt, now time.Time, outcome string, errs ...rewards.ComponentError) {
	e.trace.tried(&a, now, outcome, errs)
	e.row.Tried(step.Attempt{Worker: a.worker, Began: a.since, Ended: now, Backup: a.backup, Outcome: outcome})
}

// Rewards waits for the next chunk of a step's rewards, or returns a chunk again that was handed
// out before. Epoch 0 means the current epoch of the run. If the chunk is not ready, Rewards
// returns after at most t.WaitMS milliseconds with Ready false, or earlier when ctx ends. With
// step.All as the chunk, Rewards waits for the end of the step, and returns the complete rows. The
// last chunk may come up to 1 s later, because Rewards waits for the report of the step.
//
// The error wraps ErrUnknown and rewards.Malformed for an unknown run, rewards.Malformed for a
// chunk too far ahead, and rewards.Expired for a step whose rows were deleted. After Stop the error
// is ErrStopped.
func (m *Manager) Rewards(ctx context.Context, run string, epoch uint64, t wire.Fetch) (*wire.Rewards, error) {
	timer := time.NewTimer(time.Duration(min(t.WaitMS, wire.MaxFetchWaitMS)) * time.Millisecond)
	defer timer.Stop()
	for last := t.WaitMS <= 0; ; {
		res, news, err := m.fetchNow(run, epoch, t, last)
		switch {
		case err != nil:
			return nil, err
		case res != nil && res.Done:
			awaitReport(ctx, news)
			return res, nil
		case res != nil:
			return res, nil
		}
		select {
		case <-news:
		case <-timer.C:
			last = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// unknownRun says that nobody knows a run, and which runs are known. The caller holds the mutex.
func (c *core) unknownRun(run string) error {
	const listed = 8
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(c.runs)), hidden)
	known := "no run has connected yet"
	if n := len(names); n > 0 {
		known = "known runs: " + strings.Join(names[:min(n, listed)], ", ")
		if n > listed {
			known += fmt.Sprintf(" and %d more", n-listed)
		}
	}
	return fmt.Errorf("%w: run %q is %w; %s", rewards.Malformed, run, ErrUnknown, known)
}

// reportWait bounds the wait for the report of a step that is over. It takes milliseconds
// for thousands of samples.
const reportWait = time.Second

// awaitReport waits until a report is made, for 1 s at most, or until ctx ends. made is nil
// where none will be.
func awaitReport(ctx context.Context, made <-chan struct{}) {
	if made == nil {
		return
	}
	timer := time.NewTimer(reportWait)
	defer timer.Stop()
	select {
	case <-made:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fetchNow is one look. Without an answer it returns what to wait for, and with the last chunk
// what is closed once the step's report is made.
func (m *Manager) fetchNow(run string, epoch uint64, t wire.Fetch, last bool) (*wire.Rewards, <-chan struct{}, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, ErrStopped
	}
	r := m.core.runs[run]
	switch {
	case r == nil:
		return nil, nil, m.core.unknownRun(run)
	case epoch != 0 && epoch != r.epoch:
		return nil, nil, errEpoch(run)
	}
	if r.alarm.place > 0 { // somebody fetches, though no client is connected
		m.core.alarms.put(&r.alarm, now.Add(m.cfg.ResumeGrace+time.Duration(t.WaitMS)*time.Millisecond))
	}
	res, err := m.core.book.Fetch(now, run, t)
	switch {
	case res != nil && t.Chunk == step.All && !res.Done && !last: // until all of it is there
		return nil, m.core.book.News(run), nil
	case res != nil && res.Done:
		return res, m.core.reports.Made(m.core.book.Step(step.KeyOf(run, t.Split, t.Step))), nil
	case res != nil || err != nil:
		return res, nil, err
	case last:
		return m.core.book.Unready(now, run, t), nil, nil
	}
	return nil, m.core.book.News(run), nil
}

// reported waits for the report of a step that is over, for 1 s at most.
func (m *Manager) reported(run string, split rewards.Split, n int64) {
	m.mu.Lock()
	made := m.core.reports.Made(m.core.book.Step(step.KeyOf(run, split, n)))
	m.mu.Unlock()
	awaitReport(context.Background(), made)
}

// Step returns the details of one step. For a finished step, Step waits up to 1 s for the report.
// The error wraps ErrUnknown if the run or the step is unknown.
func (m *Manager) Step(run string, split rewards.Split, n int64) (StepDetail, error) {
	m.reported(run, split, n)
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := m.known(run, split, n)
	if err != nil && st == nil {
		return StepDetail{}, err
	}
	return StepDetail{Detail: st.Detail(now), Report: m.core.reports.Of(st)}, nil
}

// Trace returns the recorded times of a step: for every sample the times of arrival, start of
// scoring, end of scoring and answer, with the worker and the attempt. Seconds count from the first
// message or sample of the step. For a finished step, Trace waits up to 1 s for the report. The
// error wraps ErrUnknown and rewards.Malformed if the run or the step is unknown, and
// rewards.Expired if the rows of the step were deleted.
func (m *Manager) Trace(run string, split rewards.Split, n int64) (trace.Trace, error) {
	m.reported(run, split, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := m.known(run, split, n)
	if err != nil {
		return trace.Trace{}, err
	}
	return trace.Of(st), nil
}

// known finds a step; one whose rows were dropped comes with an error. The caller holds
// the mutex.
func (m *Manager) known(run string, split rewards.Split, n int64) (*step.Step, error) {
	if m.core.runs[run] == nil {
		return nil, m.core.unknownRun(run)
	}
	key := step.KeyOf(run, split, n)
	st := m.core.book.Step(key)
	switch {
	case st == nil:
		return nil, fmt.Errorf("%w: step %d (%s) of run %q is %w", rewards.Malformed, n, key.Split, run, ErrUnknown)
	case st.Forgotten() != "":
		return st, fmt.Errorf("%w: the rows of step %d (%s) were dropped: %s", rewards.Expired, n, key.Split, st.Forgotten())
	}
	return st, nil
}

// report measures a step that is over, for the metrics and for whoever looks.
func (m *Manager) report(st *step.Step) {
	m.mu.Lock()
	t := trace.Of(st)
	m.mu.Unlock()
	rep := m.measure(t)
	m.mu.Lock()
	m.core.reports.Put(st, rep)
	run := m.core.runs[st.Key().Run]
	expected := st.Summary().Expected
	m.mu.Unlock()
	if m.recorder != nil && run != nil {
		m.recorder.Step(st.Key(), run.epoch, expected, rep)
	}
}

// measure makes the report of a trace; nil: not one sample was answered, and there is
// nothing to measure.
func (m *Manager) measure(t trace.Trace) *trace.Report {
	rep, err := trace.Measure(t)
	if err != nil {
		return nil
	}
	m.metrics.stepExposed.Observe(rep.Exposed)
	if rep.OverIdeal != nil {
		m.metrics.stepRatio.Observe(*rep.OverIdeal)
	}
	if rep.Efficiency != nil {
		m.metrics.stepOverlap.Observe(*rep.Efficiency)
	}
	return &rep
}

// latestStats is what the reward gauges show: of each run, the most recently used first,
// and each split the latest step that has ended, or the latest where none has.
func (m *Manager) latestStats() []stats.Latest {
	m.mu.Lock()
	defer m.mu.Unlock()
	runs := slices.DeleteFunc(m.core.byUse(), func(r *run) bool { return hidden(r.name) })
	var all []stats.Latest
	for _, r := range runs[:min(len(runs), stats.GaugeRuns)] {
		for _, split := range []rewards.Split{rewards.Train, rewards.Val} {
			if l, ok := m.core.stats.Latest(r.name, split); ok {
				all = append(all, l)
			}
		}
	}
	return all
}
