package loop_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// stage is a gateway with workers in a bubble of fake time.
type stage struct {
	*rig.Rig
	queue *memqueue.Queue
}

const lease = 3 * time.Second

// onStage runs a test in a bubble on a rig over the queue in memory.
func onStage(t *testing.T, o rig.Options, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := memqueue.New(1, lease)
		o.Queue = e
		o.Source = func(worker string) workers.Source { return e.NewSource(worker) }
		if o.Worker.Heartbeat == 0 {
			o.Worker.Heartbeat = time.Second
		}
		s := &stage{Rig: rig.New(t, o), queue: e}
		defer func() {
			s.Stop()
			e.Close()
			time.Sleep(time.Minute) // scorers that overran give their frames back
			if t.Failed() {
				return
			}
			require.Zero(t, s.Buffers.Live(), "bytes of frames that nobody released")
			held, granted := s.Manager.Bytes()
			require.Zero(t, held)
			require.Zero(t, granted)
		}()
		test(t, s)
	})
}

// submit takes a sample in from inside the process.
func (s *stage) submit(t *testing.T, run string, sample *rewards.Sample) *loop.Future {
	t.Helper()
	return s.submitFor(t, run, sample, 0)
}

func (s *stage) submitFor(t *testing.T, run string, sample *rewards.Sample, timeout time.Duration) *loop.Future {
	t.Helper()
	f, err := s.Manager.Submit(t.Context(), loop.Submission{Run: run, Sample: sample, Timeout: timeout})
	require.NoError(t, err)
	return f
}

func result(t *testing.T, f *loop.Future) *wire.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	res, err := f.Wait(ctx)
	require.NoError(t, err)
	return res
}

// profiles makes the default profile of components.
func profiles(t *testing.T, components ...rewards.Component) map[string]*rewards.Manager {
	t.Helper()
	return map[string]*rewards.Manager{"": profile(t, components...)}
}

func profile(t *testing.T, components ...rewards.Component) *rewards.Manager {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: components, Timeout: 2 * time.Second})
	require.NoError(t, err)
	return m
}

// component is a required component of weight 1.
func component(f rewards.ScorerFunc) rewards.Component {
	return rewards.Component{Key: "hash", Weight: 1, Required: true, Scorer: f}
}

// hashing scores a sample by its own bytes, after so long.
func hashing(d time.Duration) rewards.ScorerFunc {
	return func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		if err := pause(ctx, d); err != nil {
			return rewards.Score{}, err
		}
		return rewards.Score{Value: rig.Hash(s)}, nil
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hanging heeds its context and nothing else.
func hanging(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
	<-ctx.Done()
	return rewards.Score{}, ctx.Err()
}

// peer is a client's connection in memory: everything sent arrives at once.
type peer struct {
	m       *loop.Manager
	session *stream.Session

	mu     sync.Mutex
	inbox  []any
	closed int // code
}

// Send implements stream.Conn.
func (p *peer) Send(b []byte) error {
	v, err := wire.DecodeControl(b)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inbox = append(p.inbox, v)
	return nil
}

// SendLater implements stream.Conn.
func (p *peer) SendLater(later func() []byte) error {
	if b := later(); b != nil {
		return p.Send(b)
	}
	return nil
}

// Close implements stream.Conn.
func (p *peer) Close(code int, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = code
	return nil
}

// connect says hello.
func (s *stage) connect(t *testing.T, h wire.Hello) *peer {
	t.Helper()
	p := &peer{m: s.Manager}
	var err error
	p.session, err = s.Manager.Attach(h, p)
	require.NoError(t, err)
	return p
}

// resume comes back to a session, having got results up to got.
func (s *stage) resume(t *testing.T, old *peer, h wire.Hello, got uint64) *peer {
	t.Helper()
	h.Resume = &wire.Resume{Session: old.welcome().Session, Confirmed: got}
	return s.connect(t, h)
}

func (p *peer) drop() { p.m.Detach(p.session, p) }

// send sends one sample, whatever the credit.
func (p *peer) send(t *testing.T, sample *rewards.Sample) {
	t.Helper()
	msg, err := wire.Encode(sample, wire.Options{})
	require.NoError(t, err)
	require.NoError(t, p.m.Receive(p.session, bytes.NewReader(msg.Bytes())))
}

// got returns the messages of one type, in order.
func got[T any](p *peer) []T {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []T
	for _, v := range p.inbox {
		if m, ok := v.(T); ok {
			list = append(list, m)
		}
	}
	return list
}

func (p *peer) welcome() *wire.Welcome { return got[*wire.Welcome](p)[0] }

func (p *peer) code() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// result waits for the result of a sample; there must be one only.
func (p *peer) result(t *testing.T, id string) *wire.Result {
	t.Helper()
	for range 36_000 {
		synctest.Wait()
		var found []*wire.Result
		for _, r := range got[*wire.Result](p) {
			if r.ID == id {
				found = append(found, r)
			}
		}
		if len(found) > 0 {
			require.Len(t, found, 1, id)
			return found[0]
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Fail(t, "no result within an hour", id)
	return nil
}

func ids(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return list
}

// stub is a worker that does what the test says.
type stub struct {
	s      *stage
	id     string
	source workers.Source
	serves []string // profiles; it takes from their queues in turn
	leases []workers.Lease
	frames []*wire.Frame
}

func (s *stage) stub(t *testing.T, id string) *stub {
	t.Helper()
	w := &stub{s: s, id: id, source: s.queue.NewSource(id), serves: []string{""}}
	w.source.Announce(wire.WorkerInfo{ID: id, State: wire.WorkerReady, Profiles: serving(8, "", "one", "other")})
	return w
}

// serving says that a worker has so many places for each of these profiles.
func serving(n int, profiles ...string) (all []wire.ProfileInfo) {
	for _, name := range profiles {
		all = append(all, wire.ProfileInfo{Name: name, Queue: wire.QueueName(name, ""), Capacity: n, Narrow: n})
	}
	return all
}

// claim takes the next ticket and its payload.
func (w *stub) claim(t *testing.T) wire.Ticket {
	t.Helper()
	for i := range 1000 {
		got, err := w.source.Take(t.Context(), wire.QueueName(w.serves[i%len(w.serves)], ""), 1)
		require.NoError(t, err)
		if len(got) == 0 {
			continue
		}
		ticket := got[0].Ticket()
		f, _, err := w.s.Manager.Claim(t.Context(), ticket, w.id)
		require.NoError(t, err)
		w.leases, w.frames = append(w.leases, got[0]), append(w.frames, f)
		return ticket
	}
	require.Fail(t, "no ticket came")
	return wire.Ticket{}
}

func (w *stub) answer(t *testing.T, ticket wire.Ticket, score float64) {
	t.Helper()
	require.NoError(t, w.s.Manager.Finish(t.Context(), wire.Ticket{}, &wire.Result{
		ID: ticket.ID, Attempt: ticket.Key(), Worker: w.id, Outcome: rewards.Scored, RewardScore: &score, ExtraInfo: map[string]any{},
	}))
}

// fail answers with a failure that the worker blames on itself, but for a bad input.
func (w *stub) fail(t *testing.T, ticket wire.Ticket, class rewards.Class) {
	t.Helper()
	blame := rewards.BlameWorker
	if class == rewards.BadInput {
		blame = rewards.BlameSample
	}
	require.NoError(t, w.s.Manager.Finish(t.Context(), wire.Ticket{}, &wire.Result{
		ID: ticket.ID, Attempt: ticket.Key(), Worker: w.id, Outcome: rewards.Failed, ExtraInfo: map[string]any{},
		Errors: []rewards.ComponentError{{Class: class, Message: "as planned by " + w.id, Blame: blame}},
	}))
}

// gather says that the sample's own components are scored and that it waits for its group.
func (w *stub) gather(t *testing.T, ticket wire.Ticket) {
	t.Helper()
	require.NoError(t, w.s.Manager.Finish(t.Context(), wire.Ticket{}, &wire.Result{
		ID: ticket.ID, Attempt: ticket.Key(), Worker: w.id, ExtraInfo: map[string]any{},
		Partial: []rewards.ComponentResult{{Key: "own", Status: rewards.StatusOK, Value: 1}},
	}))
}

// release ends everything the stub holds.
func (w *stub) release() {
	for _, l := range w.leases {
		l.Done()
	}
	for _, f := range w.frames {
		f.Release()
	}
	w.leases, w.frames = nil, nil
}

// lease is that of a ticket.
func (w *stub) lease(ticket wire.Ticket) workers.Lease {
	at := slices.IndexFunc(w.leases, func(l workers.Lease) bool { return l.Ticket().Key() == ticket.Key() })
	return w.leases[at]
}
