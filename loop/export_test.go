package loop

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Conn is what a session needs of a connection.
type Conn = conn

// Attach opens or resumes a session on a connection of the test's own.
func (m *Manager) Attach(h wire.Hello, c Conn) (*Session, error) { return m.attach(h, c) }

// Detach ends a session's connection.
func (m *Manager) Detach(s *Session, c Conn) { m.detach(s, c) }

// Receive takes one frame as it comes over the session's socket.
func (m *Manager) Receive(s *Session, r io.Reader) error {
	st := &stream{m: m, session: s}
	return st.Binary(r)
}

// Declare declares how many samples a step will have; with 0 it has all.
func (m *Manager) Declare(s *Session, msg wire.Step) {
	if msg.Expected == 0 {
		_ = m.endStep(s, &wire.EndOfStep{Split: msg.Split, Step: msg.Step})
		return
	}
	_ = m.TryDeclare(s, msg)
}

// TryDeclare declares a step as a client's message does.
func (m *Manager) TryDeclare(s *Session, msg wire.Step) error { return m.declare(s, &msg) }

// TryEndStep ends a step as a client's message does.
func (m *Manager) TryEndStep(s *Session, msg wire.EndOfStep) error { return m.endStep(s, &msg) }

// Lanes is how many steps of a run have a queue of their own.
func (m *Manager) Lanes(run string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.core.runs[run].lanes)
}

// Cancel takes samples back for their client.
func (m *Manager) Cancel(s *Session, ids ...string) { m.cancel(s, ids) }

// Confirm confirms results.
func (s *Session) Confirm(seq uint64) { s.confirm(seq) }

// CreditState shows a session's window.
func (s *Session) CreditState() string {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return fmt.Sprintf("live %v window %+v budget %+v", s.live, s.credit, s.m.budget)
}

// Peek returns the result if it is there.
func (f *Future) Peek() *wire.Result {
	select {
	case <-f.ready:
		return f.res
	default:
		return nil
	}
}

// Unconfirmed returns how many results a session keeps.
func (s *Session) Unconfirmed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.results)
}

// Audit recounts what the manager keeps count of. The one message that a connection
// may send beyond its credit is not bounded by max_bytes: over is what those come to.
func (m *Manager) Audit(over int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var unused, frames int64
	for _, s := range m.sessions {
		unused += s.credit.unused().Bytes
	}
	unclaimed := 0
	busy := map[string]int{}
	inflight, open := map[*run]int{}, map[owner]int64{}
	for _, e := range m.core.entries {
		if e.unit == nil {
			inflight[e.run]++
			open[e.owner]++
		}
		if e.frame != nil {
			frames += e.bytes
		}
		if e.state == published || e.spare.out {
			unclaimed++
		}
		for _, h := range e.holders {
			if !h.lapsed {
				busy[h.worker]++
			}
		}
		if e.state == running && len(e.holders) == 0 || e.alarm.place == 0 || (e.frame == nil) != (e.state == held || e.unit != nil) {
			return fmt.Errorf("sample %s is %s with %d holders, alarm %d, frame %v", e.key.id, e.state, len(e.holders), e.alarm.place, e.frame != nil)
		}
	}
	switch {
	case unused != m.budget.unused:
		return fmt.Errorf("unused credit is booked as %d and comes to %d", m.budget.unused, unused)
	case frames > m.budget.held:
		return fmt.Errorf("frames of entries come to %d bytes, held are %d", frames, m.budget.held)
	case m.budget.held+m.budget.unused > m.budget.max+over:
		return fmt.Errorf("%d bytes held and %d granted exceed max_bytes = %d", m.budget.held, m.budget.unused, m.budget.max)
	case unclaimed != m.core.unclaimed:
		return fmt.Errorf("%d tickets are unclaimed, booked are %d", unclaimed, m.core.unclaimed)
	}
	if !maps.Equal(busy, m.core.bench.busy) {
		return fmt.Errorf("workers have %v, booked are %v", busy, m.core.bench.busy)
	}
	for _, r := range m.core.runs {
		queued := 0
		for _, l := range r.lanes {
			queued += l.queued
		}
		if queued != r.queued {
			return fmt.Errorf("run %s has %d samples queued by step, %d in all", r.name, queued, r.queued)
		}
		if r.inflight != inflight[r] {
			return fmt.Errorf("run %s has %d in flight, booked are %d", r.name, inflight[r], r.inflight)
		}
		for _, s := range r.sessions {
			if s.credit.open != open[s] {
				return fmt.Errorf("client %s waits for %d samples, booked are %d", s.id.client, open[s], s.credit.open)
			}
		}
	}
	return nil
}

// Asks lets a test ask as a client does over its socket; wait returns when nothing of it
// runs any more.
func (m *Manager) Asks(ctx context.Context, s *Session, c Conn) (ask func(wire.Take), wait func()) {
	st := &stream{m: m, session: s, ctx: ctx, conn: c}
	return func(t wire.Take) { _ = st.take(&t) }, st.takes.Wait
}

// StepBytes is what is kept of steps.
func (m *Manager) StepBytes() int64 { return m.stepBytes() }

// Backups returns how many second requests were sent and how many of them won, and the
// seconds of attempts that did not count.
func (m *Manager) Backups() (sent, won, wasted float64) {
	return counted(m.metrics.backupsSent), counted(m.metrics.backupsWon), counted(m.metrics.backupSeconds)
}

// Outcomes returns how many samples have ended so, as it is told to Prometheus.
func (m *Manager) Outcomes(o rewards.Outcome) float64 {
	return counted(m.metrics.outcomes.WithLabelValues(string(o)))
}

func counted(c prometheus.Counter) float64 {
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	all, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	return all[0].GetMetric()[0].GetCounter().GetValue()
}

// Usual feeds n service times of mean 1 to the two means that a run keeps, and returns
// for how much of the time each was within 30 % of what it settles at.
func Usual(n int, draw func() float64) (usual, mean float64) {
	r := &run{pace: newPaces()}
	var us, ms []float64
	for i := range n {
		d := time.Duration(draw() * float64(time.Second))
		r.observe(d, uint64(i))
		r.pace.observe("w", d)
		us, ms = append(us, r.pace.usual.value), append(ms, r.mean.Seconds())
	}
	within := func(xs []float64) float64 {
		middle := slices.Sorted(slices.Values(xs))[len(xs)/2]
		k := 0
		for _, x := range xs {
			if math.Abs(x/middle-1) <= 0.3 {
				k++
			}
		}
		return float64(k) / float64(len(xs))
	}
	return within(us), within(ms)
}

// RewardGauges are those that a manager registers.
func RewardGauges(m *Manager) prometheus.Collector { return stats.NewGauges(m.latestStats) }

// OpenGroup is the mean of a group's rewards while it is open, and their spread when it
// is about to close.
func OpenGroup(rewards ...float64) (mean, std float64) {
	g := newGroup(groupKey{}, len(rewards)+1, time.Now())
	for i, r := range rewards {
		id := fmt.Sprint(i)
		g.join(id)
		g.settle(id, member{scored: true, reward: r, values: map[string]float64{"x": r}})
	}
	known := stats.New(func(string) iter.Seq[stats.Progress] { return func(func(stats.Progress) bool) {} })
	known.Note(stats.Key{}, &wire.Result{ExtraInfo: map[string]any{"reward/x": 1.0, "reward/x/imputed": false}})
	known.NoteGroup(stats.Key{}, &wire.GroupStats{}, g.spread())
	columns, _ := known.Columns(stats.Key{})
	return *g.meanNow(), *columns[1].MeanGroupStd
}

// PacesOf observes n workers one after the other, and returns how many are remembered, and
// whether the first and the last are.
func PacesOf(n int) (kept int, first, last bool) {
	p := newPaces()
	for i := range n {
		p.observe(fmt.Sprint(i), time.Second)
	}
	return len(p.by), p.by["0"] != nil, p.by[fmt.Sprint(n-1)] != nil
}
