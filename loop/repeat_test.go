package loop_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/race"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// A gateway that is asked the same at the same times answers the same: tickets, results,
// credit, chunks and pages. One goroutine asks here, so that nothing but the gateway can
// differ. A change of the gateway's inside that is to change nothing outside is held by the
// sum that this test prints: it must stay the same for
//
//	REWARDLOOP_SEEDS=10000 go test ./loop -run TestTheSameHistoryTwiceIsTheSame -v
//
// REWARDLOOP_SEED=<n> REWARDLOOP_HISTORY=<file> writes what was seen of one history.
func TestTheSameHistoryTwiceIsTheSame(t *testing.T) {
	t.Parallel()
	from, n := 1, 100
	switch {
	case testing.Short():
		n = 4
	case race.Enabled:
		n = 30
	}
	if os.Getenv("REWARDLOOP_SEEDS") != "" || os.Getenv("REWARDLOOP_SEED") != "" {
		from, n = firstSeed(t)
	}
	const parallel = 4
	sums := make([]string, n)
	var wg sync.WaitGroup
	for offset := range parallel {
		wg.Go(func() {
			for i := offset; i < n; i += parallel {
				first := repeat(t, uint64(from+i))                  //nolint:gosec // a small number
				if n <= 100 && first != repeat(t, uint64(from+i)) { //nolint:gosec // likewise
					t.Errorf("history %d was another one the second time", from+i)
				}
				sums[i] = first
			}
		})
	}
	wg.Wait()
	all := sha256.New()
	for _, s := range sums {
		_, _ = io.WriteString(all, s) // never fails
	}
	t.Logf("histories %d to %d: %s", from, from+n-1, hex.EncodeToString(all.Sum(nil)[:8]))
}

// repeat plays one history and returns the sum of what was seen of it.
func repeat(t *testing.T, seed uint64) (sum string) {
	t.Helper()
	out := io.Discard
	if name := os.Getenv("REWARDLOOP_HISTORY"); name != "" {
		f, err := os.Create(name)
		require.NoError(t, err)
		defer f.Close()
		out = f
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, seed, out)
		h.play()
		sum = hex.EncodeToString(h.sum.Sum(nil))
	})
	return sum
}

// told is one history: what is asked of a gateway, drawn from a seed, and what it says.
type told struct {
	t       *testing.T
	rng     *rand.Rand
	sum     hash.Hash
	out     io.Writer
	m       *loop.Manager
	buffers *wire.Buffers

	managers map[string]*rewards.Manager
	workers  []wire.WorkerInfo
	offers   []wire.Ticket // published, and not claimed
	refusing bool
	revoked  []string // since the last look
	jobs     []*toldJob
	clients  []*toldClient
	futures  map[string]*loop.Future
	next     int // names samples and workers
	step     int64
	dark     bool // every third worker fails everything
	registry *prometheus.Registry
}

// toldJob is what a worker has claimed.
type toldJob struct {
	ticket wire.Ticket
	worker string
	frame  *wire.Frame
	group  *wire.Group
}

// toldClient is a client and its connection.
type toldClient struct {
	h       *told
	hello   wire.Hello
	session *stream.Session
	link    *toldLink
	welcome *wire.Welcome
	seq     uint64
	sent    []*rewards.Sample
}

// toldLink is one connection.
type toldLink struct{ c *toldClient }

func (l *toldLink) Send(b []byte) error {
	v, err := wire.DecodeControl(b)
	if err != nil {
		return err
	}
	c := l.c
	switch m := v.(type) {
	case *wire.Welcome:
		own := *m
		own.Session = "" // drawn anew each time
		c.welcome = m
		c.h.note("to "+c.hello.Client, &own)
		return nil
	case *wire.Result:
		c.seq = max(c.seq, m.Seq)
	}
	c.h.note("to "+c.hello.Client, v)
	return nil
}

func (l *toldLink) SendLater(later func() []byte) error {
	if b := later(); b != nil {
		return l.Send(b)
	}
	return nil
}

func (l *toldLink) Close(code int, reason string) error {
	return nil // on a goroutine of its own
}

// note adds to what was seen.
func (h *told) note(what string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b = fmt.Appendf(nil, "%v", v)
	}
	for _, w := range []io.Writer{h.sum, h.out} {
		_, _ = fmt.Fprintf(w, "%d %s %s\n", time.Now().UnixNano(), what, b)
	}
}

// noted adds an error to it.
func (h *told) noted(what string, err error) {
	if err != nil {
		h.note(what, err.Error())
	}
}

// Publish implements loop.Queue.
func (h *told) Publish(_ context.Context, t wire.Ticket) error {
	if h.refusing {
		return errors.New("the queue is away")
	}
	h.note("ticket", t)
	if !slices.ContainsFunc(h.offers, func(o wire.Ticket) bool { return o.Key() == t.Key() }) {
		h.offers = append(h.offers, t)
	}
	return nil
}

// Revoke implements loop.Queue.
func (h *told) Revoke(_ context.Context, key wire.AttemptKey) error {
	h.revoked = append(h.revoked, fmt.Sprint(key))
	h.offers = slices.DeleteFunc(h.offers, func(o wire.Ticket) bool { return o.Key() == key })
	return nil
}

// Workers implements loop.Presence.
func (h *told) Workers() []wire.WorkerInfo { return h.workers }

func newHistory(t *testing.T, seed uint64, out io.Writer) *told {
	t.Helper()
	h := &told{
		t: t, rng: rand.New(rand.NewPCG(seed, 21)), sum: sha256.New(), out: out, buffers: &wire.Buffers{Poison: true},
		futures: map[string]*loop.Future{},
	}
	w := &world{seed: seed, tries: map[string]int{}}
	h.managers, h.dark, h.registry = toldProfiles(t, w), h.rng.IntN(3) == 0, prometheus.NewRegistry()
	policy := dispatch.Config{Policy: []string{dispatch.Random, dispatch.SpeedWeighted}[h.rng.IntN(2)]}
	if h.rng.IntN(2) == 0 {
		policy.BackupAfter, policy.BackupShare = 1+2*h.rng.Float64(), 0.5
	}
	var kept loop.Spool
	if h.rng.IntN(3) == 0 {
		kept = toldSpool{h}
	}
	var err error
	h.m, err = loop.New(loop.Options{
		Spool: kept, Metrics: h.registry,
		Config: loop.Config{
			Gateway: "gw", SampleTimeout: 30 * time.Second, StepTimeout: 60 * time.Second, MaxBytes: []int64{24 << 10, 1 << 20}[h.rng.IntN(2)],
			CreditBytes: 64 << 10, MessageBytes: 16 << 10, CreditSamples: 16, RepublishAfter: 2 * time.Second, ClaimTimeout: 10 * time.Second,
			Breaker:  loop.Breaker{Failures: 1 + h.rng.IntN(4), Pause: 300 * time.Millisecond, MaxPause: 3 * time.Second},
			Dispatch: policy, Profiles: []string{"", "mixed", "whole"}, GroupProfiles: []string{"whole"}, GroupByPrompt: []string{"mixed"},
			Weights: map[string]float64{"b": 4}, KeepResults: 64, StepBytes: []int64{16 << 10, 1 << 20}[h.rng.IntN(2)], StepAge: time.Minute, NumExamine: 2,
			OnSampleFailure: map[string]rewards.SamplePolicy{"mixed": {Policy: rewards.PolicyGroupMean}},
			OnStepDeadline:  []string{wire.DeadlineMask, wire.DeadlineFail, wire.DeadlineShortfall}[h.rng.IntN(3)],
		},
		Queue: h, Presence: h, Buffers: h.buffers, StepArrived: func() { h.note("step arrived", nil) },
		Examine: func(x loop.Examined) { h.note("examined "+x.Sample.ID, x.Result) },
	})
	require.NoError(t, err)
	return h
}

// toldProfiles are a plain reward, one whose second component may fail, and one that
// scores whole groups.
func toldProfiles(t *testing.T, w *world) map[string]*rewards.Manager {
	t.Helper()
	made := func(components ...rewards.Component) *rewards.Manager {
		m, err := rewards.NewManager(rewards.ManagerConfig{Components: components, Timeout: componentTimeout, OnSampleFailure: rewards.SamplePolicy{Policy: rewards.PolicyGroupMean}})
		require.NoError(t, err)
		return m
	}
	planned := rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		w.mu.Lock()
		w.tries[s.ID]++
		try := w.tries[s.ID]
		w.mu.Unlock()
		switch p := w.plan(s.ID); {
		case p.kind == "bad":
			return rewards.Score{}, fmt.Errorf("%w: %w", rewards.BadInput, errScorer)
		case p.kind == "panic":
			return rewards.Score{}, rewards.Blamed(rewards.BlameReward, errScorer)
		case p.kind == "nan":
			return rewards.Score{}, rewards.Permanent(rewards.BlameWorker, errScorer)
		case p.fails >= try:
			return rewards.Score{}, rewards.Blamed(p.blame, fmt.Errorf("%w: %w", rewards.Unavailable, errScorer))
		}
		return rewards.Score{Value: rig.Hash(s)}, nil
	})
	whole := rewards.GroupScorerFunc(func(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
		out := make([]rewards.MemberScore, len(g.Members))
		for i := range out {
			out[i].Score.Value = float64(i)
		}
		return out, nil
	})
	sound := rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: rig.Hash(s)}, nil
	})
	return map[string]*rewards.Manager{
		"":      made(rewards.Component{Key: "hash", Weight: 1, Required: true, Scorer: planned}),
		"mixed": made(rewards.Component{Key: "sound", Weight: 1, Required: true, Scorer: sound}, rewards.Component{Key: "hash", Weight: 1, Scorer: planned}),
		"whole": made(rewards.Component{Key: "hash", Weight: 1, Required: true, Scorer: planned}, rewards.Component{Key: "rank", Weight: 1, Required: true, Group: whole}),
	}
}

// play asks some hundred things, and then lets everything end.
func (h *told) play() {
	for range 2 + h.rng.IntN(3) {
		h.join()
	}
	for i := range 2 + h.rng.IntN(2) {
		c := &toldClient{h: h, hello: wire.Hello{Run: string(rune('a' + i%2)), Client: fmt.Sprint("c", i), Reward: []string{"", "mixed", "whole"}[h.rng.IntN(3)]}}
		h.clients = append(h.clients, c)
		c.connect()
	}
	things := 150 + h.rng.IntN(250)
	if h.rng.IntN(8) == 0 {
		things *= 6
	}
	for range things {
		h.happen()
		h.look()
	}
	h.refusing = false
	if len(h.workers) == 0 {
		h.join()
	}
	for range 200 { // longer than any deadline
		h.round()
		for len(h.offers) > 0 && h.rng.IntN(8) > 0 {
			h.claim()
		}
		for len(h.jobs) > 0 && h.rng.IntN(8) > 0 {
			h.finish()
		}
		time.Sleep(time.Second)
		h.look()
	}
	for _, j := range h.jobs {
		j.release()
	}
	h.pages()
	if h.rng.IntN(2) == 0 {
		require.NoError(h.t, h.m.Drain(h.t.Context()))
		h.clients[0].reconnect()
	}
	h.m.Stop()
	h.look()
	require.Zero(h.t, h.buffers.Live(), "bytes of frames that nobody released")
}

// happen asks one thing.
func (h *told) happen() {
	c := h.clients[h.rng.IntN(len(h.clients))]
	switch n := h.rng.IntN(100); {
	case n < 22:
		c.send(h.sample(c.hello.Reward == "whole"))
	case n < 24 && len(c.sent) > 0:
		c.send(c.sent[h.rng.IntN(len(c.sent))])
	case n < 28:
		h.submit()
	case n < 44:
		h.round()
	case n < 58:
		h.claim()
	case n < 72:
		h.finish()
	case n < 80:
		time.Sleep(time.Duration(h.rng.IntN(1500)) * time.Millisecond)
	case n < 83:
		c.declare()
	case n < 84:
		h.noted("end of step", h.m.TryEndStep(c.session, wire.EndOfStep{Step: h.step}))
		h.step++
	case n < 86 && len(c.sent) > 0:
		h.m.Cancel(c.session, c.sent[h.rng.IntN(len(c.sent))].ID)
	case n < 89:
		h.m.Confirm(c.session, c.seq)
	case n < 92:
		c.reconnect()
	case n < 94:
		h.presence()
	case n < 95:
		h.refusing = !h.refusing
	case n < 96:
		h.m.Republish()
	case n < 97:
		h.m.Sweep()
	case n < 99:
		h.take(c)
	default:
		h.pages()
	}
}

// look notes what the last thing came to beside its answers.
func (h *told) look() {
	slices.Sort(h.revoked)
	if len(h.revoked) > 0 {
		h.note("revoked", h.revoked)
	}
	h.revoked = nil
	held, granted := h.m.Bytes()
	h.note("bytes", []int64{held, granted, int64(h.m.InFlight())})
	for _, id := range slices.Sorted(maps.Keys(h.futures)) {
		if res := h.futures[id].Peek(); res != nil {
			h.note("future "+id, res)
			delete(h.futures, id)
		}
	}
	if open := h.m.Breakers(); len(open) > 0 {
		h.note("breakers", open)
	}
	require.NoError(h.t, h.m.Audit(1<<20))
}

// round is what the dispatcher does, as long as something is due.
func (h *told) round() {
	for range 20 {
		if wait := h.m.Round(h.t.Context()); wait > 0 {
			h.note("wait", wait)
			return
		}
	}
}

// sample draws one.
func (h *told) sample(grouped bool) *rewards.Sample {
	h.next++
	s := rig.Sample(fmt.Sprint("s", h.next), 3*(20+h.rng.IntN(300)))
	s.Step = h.step
	if h.rng.IntN(4) == 0 {
		s.Split = rewards.Val
	}
	if h.rng.IntN(2) == 0 {
		s.Index = new(int64(h.next))
	}
	if h.rng.IntN(3) > 0 || grouped {
		s.UID, s.GroupSize = fmt.Sprintf("g%d-%d", h.step, h.next/4), 2+h.rng.IntN(3)
	}
	if h.rng.IntN(30) == 0 {
		h.step++
	}
	return s
}

func (h *told) submit() {
	s := h.sample(false)
	s.Reward = []string{"", "mixed"}[h.rng.IntN(2)]
	f, err := h.m.Submit(h.t.Context(), loop.Submission{Run: "_local", Sample: s, Timeout: time.Duration(1+h.rng.IntN(20)) * time.Second})
	h.noted("submit", err)
	if err == nil {
		h.futures[s.ID] = f
	}
}

// claim gives a ticket to one of the workers that may have it.
func (h *told) claim() {
	if len(h.offers) == 0 || len(h.workers) == 0 {
		return
	}
	at := h.rng.IntN(len(h.offers))
	t := h.offers[at]
	w := h.workers[h.rng.IntN(len(h.workers))].ID
	if slices.Contains(t.Avoid, w) && h.rng.IntN(4) > 0 {
		return
	}
	if h.rng.IntN(20) > 0 { // else its lease lapses, and another worker claims it as well
		h.offers = slices.Delete(h.offers, at, at+1)
	}
	j := &toldJob{ticket: t, worker: w}
	var err error
	if t.Group {
		j.group, err = h.m.ClaimGroup(h.t.Context(), t, w)
	} else {
		j.frame, _, err = h.m.Claim(h.t.Context(), t, w)
	}
	h.note("claim by "+w, t.ID)
	if err != nil {
		h.noted("claim", err)
		return
	}
	h.jobs = append(h.jobs, j)
}

func (j *toldJob) release() {
	if j.frame != nil {
		j.frame.Release()
		return
	}
	for _, m := range j.group.Members {
		m.Frame.Release()
	}
}

// finish answers for something that a worker has.
func (h *told) finish() {
	if len(h.jobs) == 0 {
		return
	}
	at := h.rng.IntN(len(h.jobs))
	j := h.jobs[at]
	h.jobs = slices.Delete(h.jobs, at, at+1)
	res := h.score(j)
	if h.dark && j.worker[len(j.worker)-1]%3 == 0 && j.group == nil {
		res = &wire.Result{
			ID: j.ticket.ID, Attempt: j.ticket.Key(), Worker: j.worker, Outcome: rewards.Failed,
			Errors: []rewards.ComponentError{{Class: rewards.Internal, Message: "as always", Blame: rewards.Blames()[h.rng.IntN(len(rewards.Blames()))]}},
		}
	}
	if h.rng.IntN(25) == 0 {
		res = &wire.Result{ID: j.ticket.ID, Attempt: j.ticket.Key(), Worker: j.worker, Outcome: rewards.OutcomeCancelled}
	}
	h.noted("finish", h.m.Finish(h.t.Context(), j.ticket, res))
	j.release()
}

// score is what a worker makes of what it has.
func (h *told) score(j *toldJob) *wire.Result {
	m := h.managers[j.ticket.Reward]
	form := func(id string, r *rewards.Result) *wire.Result {
		res := &wire.Result{
			ID: id, Outcome: r.Outcome, ExtraInfo: r.Extra, Details: r.Details, Errors: r.Errors, TimingMS: map[string]float64{}, Worker: j.worker,
			Attempt: j.ticket.Key(), Pending: r.Pending, Partial: r.Partial,
		}
		if r.Outcome == rewards.Scored {
			res.StepScores = r.Steps
			if r.Pending == nil {
				res.RewardScore = &r.Score
			}
		}
		for _, c := range r.Components {
			if c.Status == rewards.StatusOK {
				if res.Values == nil {
					res.Values = map[string]float64{}
				}
				res.Values[c.Key] = c.Value
			}
		}
		return res
	}
	sample := func(f *wire.Frame) *rewards.Sample {
		s := f.Sample()
		s.Run, s.Reward = j.ticket.Run, j.ticket.Reward
		return s
	}
	if j.group == nil {
		run := m.Run(h.t.Context(), sample(j.frame))
		<-run.Done()
		return form(j.ticket.ID, &run.Result)
	}
	members := make([]rewards.GroupMember, len(j.group.Members))
	for i, x := range j.group.Members {
		members[i] = rewards.GroupMember{Sample: sample(x.Frame), Components: x.Partial}
	}
	run := m.RunGroup(h.t.Context(), members, j.group.Size, j.group.LastMeanStd)
	<-run.Done()
	res := form(j.ticket.ID, &rewards.Result{Outcome: rewards.Scored})
	res.RewardScore = nil
	for i := range run.Results {
		res.Members = append(res.Members, form(members[i].Sample.ID, &run.Results[i]))
	}
	return res
}

// toldSpool notes what is to be kept, and keeps nothing.
type toldSpool struct{ h *told }

func (s toldSpool) Put(r spool.Record) error {
	s.h.note(fmt.Sprint("kept ", r.Kind, r.Run, r.Epoch, r.ID), string(r.Meta))
	return nil
}

func (s toldSpool) Later(r spool.Record) {
	if r.Fill != nil {
		r.Body = r.Fill()
	}
	s.h.note(fmt.Sprint("kept later ", r.Kind, r.Of, r.Run, r.Epoch, r.ID, string(r.Meta)), string(r.Body))
}

func (s toldSpool) Flush() error { return nil }

func (s toldSpool) Trouble() error { return nil }

func (s toldSpool) Each(func(k *spool.Kept) error) error { return nil }

// join adds a worker.
func (h *told) join() {
	h.next++
	w := wire.WorkerInfo{ID: fmt.Sprint("w", h.next), State: wire.WorkerReady, Started: time.Now(), Profiles: serving(1+h.rng.IntN(3), "", "mixed", "whole")}
	if h.rng.IntN(4) == 0 {
		w.Profiles = w.Profiles[:2]
	}
	h.workers = append(slices.Clone(h.workers), w)
}

// presence changes who is there.
func (h *told) presence() {
	if len(h.workers) == 0 {
		h.join()
		return
	}
	at := h.rng.IntN(len(h.workers))
	list := slices.Clone(h.workers)
	switch h.rng.IntN(4) {
	case 0:
		h.join()
		return
	case 1:
		h.workers = slices.Delete(list, at, at+1)
	case 2:
		gone := list[at].ID
		h.workers = slices.Delete(list, at, at+1)
		h.m.Lost([]string{gone})
	case 3:
		list[at].State = []string{wire.WorkerReady, wire.WorkerBroken, wire.WorkerSick, wire.WorkerDraining}[h.rng.IntN(4)]
		list[at].Started = time.Now()
		h.workers = list
	}
}

// connect opens the client's session, or resumes it.
func (c *toldClient) connect() {
	hello := c.hello
	if c.session != nil && c.h.rng.IntN(10) > 0 {
		hello.Resume = &wire.Resume{Session: c.welcome.Session, Confirmed: c.seq}
	}
	link := &toldLink{c}
	s, err := c.h.m.Attach(hello, link)
	c.h.noted("attach", err)
	if err != nil {
		return
	}
	if s != c.session {
		c.seq = 0
	}
	c.session, c.link = s, link
}

func (c *toldClient) reconnect() {
	c.h.m.Detach(c.session, c.link)
	c.connect()
}

func (c *toldClient) send(s *rewards.Sample) {
	msg, err := wire.Encode(s, wire.Options{})
	require.NoError(c.h.t, err)
	c.sent = append(c.sent, s)
	c.h.noted("receive", c.h.m.Receive(c.session, bytes.NewReader(msg.Bytes())))
}

func (c *toldClient) declare() {
	msg := wire.Step{Step: c.h.step, Expected: int64(1 + c.h.rng.IntN(20)), Total: c.h.rng.IntN(2) == 0}
	if d, err := c.h.m.Step(c.hello.Run, rewards.Train, c.h.step); err == nil && c.h.rng.IntN(2) == 0 {
		msg.Expected, msg.Total = max(int64(d.Arrived), 1), true // all of it is here
	}
	if c.h.rng.IntN(2) == 0 {
		msg.IDs = []string{fmt.Sprint("s", c.h.next+1), fmt.Sprint("s", c.h.next+2)}
	}
	if c.h.rng.IntN(2) == 0 {
		msg.DeadlineMS = int64(1000 + c.h.rng.IntN(20000))
	}
	c.h.noted("declare", c.h.m.TryDeclare(c.session, msg))
}

// take asks for a chunk of a step.
func (h *told) take(c *toldClient) {
	q := wire.Fetch{Req: 1, Step: max(h.step-int64(h.rng.IntN(2)), 0), Chunk: int64(h.rng.IntN(3)), Groups: int64(h.rng.IntN(3))}
	if h.rng.IntN(2) == 0 {
		q.Order = wire.ByIndex
	}
	if h.rng.IntN(2) == 0 {
		q.Chunk = step.All
	}
	res, err := h.m.Rewards(h.t.Context(), c.hello.Run, 0, q)
	h.note("rewards", res)
	h.noted("rewards", err)
}

// pages notes what people see.
func (h *told) pages() {
	list, n := h.m.Pending(1000)
	h.note(fmt.Sprint("pending ", n), list)
	h.note("runs", h.m.Runs(100))
	h.note("breakers", h.m.Breakers())
	_, err := h.registry.Gather() // collectors run side by side, and one of them looks who is there
	require.NoError(h.t, err)
	families, err := h.registry.Gather()
	require.NoError(h.t, err)
	kept := families[:0]
	for _, f := range families {
		if f.GetName() != "rewardloop_loop_table_faults_total" { // is 0, says Audit
			kept = append(kept, f)
		}
	}
	h.note("metrics", kept)
	for _, run := range []string{"a", "b", "_local"} {
		for step := range h.step + 1 {
			d, err := h.m.Step(run, rewards.Train, step)
			h.note("step", d)
			h.noted("step", err)
			tr, err := h.m.Trace(run, rewards.Train, step)
			h.note("trace", tr)
			h.noted("trace", err)
		}
	}
}
