package loop

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"sync"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Stages are the states that others see a sample in before it is final.
func Stages() (out []string) {
	for s := range moves {
		if s != fresh && s != decided && s != final {
			out = append(out, string(s))
		}
	}
	return out
}

// Attach opens or resumes a session on a connection of the test's own.
func (m *Manager) Attach(h wire.Hello, c stream.Conn) (*stream.Session, error) {
	return gateway{Manager: m}.Hello(h, c)
}

// Detach ends a session's connection.
func (m *Manager) Detach(s *stream.Session, c stream.Conn) { gateway{Manager: m}.Left(s, c) }

// said is a gateway on which the client of a session has said hello.
type said struct {
	gateway

	session *stream.Session
	fault   error          // what there is to say of its sample
	asked   sync.WaitGroup // those who wait for rewards
}

func (g *said) Hello(wire.Hello, stream.Conn) (*stream.Session, error) { return g.session, nil }

func (g *said) Left(*stream.Session, stream.Conn) {}

func (g *said) Receive(*stream.Session, io.Reader) error { return g.fault }

func (g *said) Rewards(ctx context.Context, s *stream.Session, t *wire.Fetch) (*wire.Rewards, error) {
	g.asked.Add(1)
	defer g.asked.Done()
	return g.gateway.Rewards(ctx, s, t)
}

// socket is a connection that says hello, and then what its script does.
type socket struct {
	stream.Conn

	script func(h wsconn.Handler) error
}

func (s socket) Run(_ context.Context, h wsconn.Handler) error {
	if err := h.Text([]byte(`{"type":"hello","run":"run"}`)); err != nil {
		return err
	}
	return s.script(h)
}

// Receive takes one frame as it comes over the session's socket.
func (m *Manager) Receive(s *stream.Session, r io.Reader) error {
	err := gateway{Manager: m}.Receive(s, r)
	if err == nil {
		return nil
	}
	g := &said{gateway: gateway{Manager: m}, session: s, fault: err}
	return stream.Serve(context.Background(), g, socket{script: func(h wsconn.Handler) error { return h.Binary(r) }})
}

// Declare declares how many samples a step will have; with 0 it has all.
func (m *Manager) Declare(s *stream.Session, msg wire.Step) {
	if msg.Expected == 0 {
		_ = m.endStep(s, &wire.EndOfStep{Split: msg.Split, Step: msg.Step})
		return
	}
	_ = m.TryDeclare(s, msg)
}

// TryDeclare declares a step as a client's message does.
func (m *Manager) TryDeclare(s *stream.Session, msg wire.Step) error { return m.declare(s, &msg) }

// TryEndStep ends a step as a client's message does.
func (m *Manager) TryEndStep(s *stream.Session, msg wire.EndOfStep) error { return m.endStep(s, &msg) }

// StepQueues is how many steps of a run have a queue of their own.
func (m *Manager) StepQueues(run string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, p := range m.core.board.Profiles() {
		n += p.Run(run, 1).StepQueues()
	}
	return n
}

// Want says for a client what it has ready beyond its credit.
func (m *Manager) Want(s *stream.Session, bytes int64) {
	_ = gateway{Manager: m}.Message(s, &wire.Want{Bytes: bytes})
}

// Yield hands credit back for a client, all in all.
func (m *Manager) Yield(s *stream.Session, bytes int64) {
	_ = gateway{Manager: m}.Message(s, &wire.Yield{Bytes: bytes})
}

// Cancel takes samples back for their client.
func (m *Manager) Cancel(s *stream.Session, ids ...string) { m.takeBack(s, ids) }

// Confirm confirms results.
func (m *Manager) Confirm(s *stream.Session, seq uint64) { m.confirm(s, seq) }

// Hear does what a client's control message says.
func (m *Manager) Hear(s *stream.Session, msg any) error { return gateway{Manager: m}.Message(s, msg) }

// CreditState shows a session's credit.
func (m *Manager) CreditState(s *stream.Session) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	held, granted := m.flow.Bytes()
	return fmt.Sprintf("live %v unused %+v open %d; of all: held %d granted %d", s.Live(), s.Unused(), s.Open(), held, granted)
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

// Audit recounts what the manager keeps count of. The one message that a connection
// may send beyond its credit is not bounded by max_bytes: over is what those come to.
func (m *Manager) Audit(over int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var unused, frames int64
	for _, s := range m.flow.Sessions() {
		unused += s.Unused().Bytes
	}
	taken, granted := m.flow.Bytes()
	unclaimed, busy := map[*dispatch.Profile]int{}, map[*dispatch.Profile]map[string]int{}
	inflight, open, waiting := map[*run]int{}, map[owner]int64{}, map[*run]int{}
	for _, e := range m.core.entries {
		if e.unit == nil {
			inflight[e.run]++
			open[e.owner]++
			for _, o := range e.also {
				open[o]++
			}
		}
		if e.frame != nil {
			frames += e.bytes
		}
		if e.offer != nil {
			unclaimed[e.item.Profile()]++
		}
		if e.item.Queued() {
			waiting[e.run]++
		}
		if fault := e.fault(); fault != "" {
			return fmt.Errorf("sample %s is %s, and %s", e.key.id, e.state, fault)
		}
		if e.state == published && e.offer == nil || e.state == awaitsGroup && e.waiting == nil {
			return fmt.Errorf("sample %s is %s, without a ticket, or its bytes are not waiting", e.key.id, e.state)
		}
		for _, h := range e.attempts {
			if h.state == claimed {
				p := e.item.Profile()
				if busy[p] == nil {
					busy[p] = map[string]int{}
				}
				busy[p][h.worker]++
			}
		}
		if e.state == running && len(e.attempts) == 0 || e.alarm.place == 0 || (e.frame == nil) != (e.state == awaitsMean || e.unit != nil) {
			return fmt.Errorf("sample %s is %s with %d attempts, alarm %d, frame %v", e.key.id, e.state, len(e.attempts), e.alarm.place, e.frame != nil)
		}
	}
	switch {
	case len(m.core.faults) > 0:
		return fmt.Errorf("faults: %q", m.core.faults)
	case unused != granted:
		return fmt.Errorf("unused credit is booked as %d and comes to %d", granted, unused)
	case frames > taken:
		return fmt.Errorf("frames of entries come to %d bytes, held are %d", frames, taken)
	case taken+granted > m.cfg.MaxBytes+over:
		return fmt.Errorf("%d bytes held and %d granted exceed max_bytes = %d", taken, granted, m.cfg.MaxBytes)
	}
	for _, p := range m.core.board.Profiles() {
		if unclaimed[p] != p.Out() || !maps.Equal(busy[p], p.Busy()) {
			return fmt.Errorf("%d tickets of %q are unclaimed, booked are %d; workers have %v, booked are %v", unclaimed[p], p.Name(), p.Out(), busy[p], p.Busy())
		}
	}
	for _, r := range m.core.runs {
		if queued, _ := m.core.board.Of(r.name); waiting[r] != queued {
			return fmt.Errorf("run %s has %d samples queued, booked are %d", r.name, waiting[r], queued)
		}
		if r.inflight != inflight[r] {
			return fmt.Errorf("run %s has %d in flight, booked are %d", r.name, inflight[r], r.inflight)
		}
		for _, s := range r.sessions {
			if s.Open() != open[client{s}] {
				return fmt.Errorf("client %s waits for %d samples, booked are %d", s.ID().Client, open[client{s}], s.Open())
			}
		}
	}
	return nil
}

// Asks lets a test ask as a client does over its socket; wait returns when nothing of it
// runs any more.
func (m *Manager) Asks(ctx context.Context, s *stream.Session, c stream.Conn) (ask func(wire.Fetch), wait func()) {
	g := &said{gateway: gateway{Manager: m}, session: s}
	handler, over, served := make(chan wsconn.Handler), make(chan struct{}), make(chan struct{})
	go func() { // ends with wait
		defer close(served)
		_ = stream.Serve(ctx, g, socket{c, func(h wsconn.Handler) error {
			handler <- h
			<-over
			return nil
		}})
	}()
	h := <-handler
	ask = func(t wire.Fetch) {
		if b, err := wire.EncodeControl(&t); err == nil {
			_ = h.Text(b)
		}
	}
	return ask, func() {
		synctest.Wait() // each has begun
		g.asked.Wait()
		synctest.Wait() // each has sent its answer
		close(over)
		<-served
	}
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

// RewardGauges registers those that a manager registers.
func RewardGauges(reg prometheus.Registerer, m *Manager) { stats.Gauges(reg, m.latestStats) }

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

// Remembered is how many results a run remembers, and how many it holds.
func (m *Manager) Remembered(run string) (known, held int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := m.core.runs[run].done
	return len(done.byKey), done.order.Len()
}

// For the tests of the package alone.
var ErrRefused = errRefused

// Untraced does with a sample that is not traced what is done with one that is.
func Untraced() {
	var (
		c core
		a admission
		t *traced
	)
	now := time.Time{}
	if c.traced(&a, now) != nil || t.traceparent() != "" {
		panic("it is traced")
	}
	t.waited(now)
	t.tried(&attempt{}, now, "", nil)
	t.finished(nil, now, nil)
	t.scored(nil, now)
}
