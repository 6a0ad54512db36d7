package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/race"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// seeds returns how many histories to run: REWARDLOOP_SEEDS, else 10,000, or fewer
// where each costs more; with -short 40, which take a second.
func seeds(t *testing.T) int {
	t.Helper()
	if v := os.Getenv("REWARDLOOP_SEEDS"); v != "" {
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		return n
	}
	switch {
	case testing.Short():
		return 40
	case race.Enabled:
		return 300
	}
	return 10_000
}

// firstSeed lets a failing history be run alone: REWARDLOOP_SEED=<n>.
func firstSeed(t *testing.T) (from, n int) {
	t.Helper()
	if v := os.Getenv("REWARDLOOP_SEED"); v != "" {
		s, err := strconv.Atoi(v)
		require.NoError(t, err)
		return s, 1
	}
	return 1, seeds(t)
}

func TestSimulationEverySampleGetsExactlyOneResultInEveryHistory(t *testing.T) {
	t.Parallel()
	from, n := firstSeed(t)
	const lanes = 4
	var wg sync.WaitGroup
	failed := make(chan int, n)
	for lane := range lanes {
		wg.Go(func() {
			for s := from + lane; s < from+n; s += lanes {
				if !t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { history(t, uint64(s)) })
				}) {
					failed <- s
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	for s := range failed {
		t.Errorf("history failed; run it alone with REWARDLOOP_SEED=%d", s)
	}
}

// plan is how the scorer treats one sample, drawn from its id and the seed.
type plan struct {
	kind  string
	takes time.Duration
	fails int           // attempts that fail before one succeeds
	blame rewards.Blame // of these failures
}

// world is one history's fates.
type world struct {
	seed  uint64
	mu    sync.Mutex
	tries map[string]int
}

func (w *world) plan(id string) plan {
	h := rand.New(rand.NewPCG(w.seed, idNumber(id)))
	p := plan{kind: "ok", takes: time.Duration(1+h.IntN(400)) * time.Millisecond}
	p.blame = rewards.BlameWorker
	if h.IntN(2) == 0 {
		p.blame = rewards.Blames()[h.IntN(len(rewards.Blames()))]
	}
	switch h.IntN(20) {
	case 0:
		p.kind = "panic"
	case 1:
		p.kind, p.fails = "unavailable", 1+h.IntN(4)
	case 2:
		p.kind = "hang"
	case 3:
		p.kind = "overrun"
	case 4:
		p.kind = "bad"
	case 5:
		p.kind = "nan"
	case 6:
		p.kind, p.fails = "crash", 1
	case 7:
		p.kind = "late"
	}
	return p
}

func idNumber(id string) uint64 {
	var n uint64
	for _, c := range []byte(id) {
		n = n*131 + uint64(c)
	}
	return n
}

var errScorer = errors.New("as planned")

// Score follows the plan. Its score is what the sample's own bytes say, read at the end.
func (w *world) Score(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
	p := w.plan(s.ID)
	w.mu.Lock()
	w.tries[s.ID]++
	try := w.tries[s.ID]
	w.mu.Unlock()
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch p.kind {
	case "hang":
		<-ctx.Done()
		return rewards.Score{}, ctx.Err()
	case "overrun": // ignores its context and reads its pixels all the same
		time.Sleep(componentTimeout + 700*time.Millisecond)
		return rewards.Score{Value: rig.Hash(s)}, nil
	case "late":
		time.Sleep(componentTimeout + 50*time.Millisecond)
		return rewards.Score{Value: rig.Hash(s)}, nil
	}
	if err := wait(p.takes); err != nil {
		return rewards.Score{}, err
	}
	switch {
	case p.kind == "panic":
		panic("as planned")
	case p.kind == "bad":
		return rewards.Score{}, fmt.Errorf("%w: %w", rewards.BadInput, errScorer)
	case p.kind == "nan":
		return rewards.Score{Value: math.NaN()}, nil
	case p.kind == "unavailable" && try <= p.fails:
		return rewards.Score{}, rewards.Blamed(p.blame, fmt.Errorf("%w: %w", rewards.Unavailable, errScorer))
	case p.kind == "crash" && try <= p.fails:
		return rewards.Score{}, rewards.Blamed(p.blame, fmt.Errorf("%w: %w", rewards.Crashed, errScorer))
	}
	return rewards.Score{Value: rig.Hash(s)}, nil
}

const (
	componentTimeout = 2 * time.Second
	sampleTimeout    = 40 * time.Second
)

// history runs one seeded history and checks its invariants.
func history(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &world{seed: seed, tries: map[string]int{}}
	component := rewards.Component{Key: "hash", Weight: 1, Scorer: w, Required: rng.IntN(2) == 0}
	manager, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component}, Timeout: componentTimeout})
	require.NoError(t, err)
	queue := memqueue.New(seed, 3*time.Second)
	spans, tracer := new(recorder), (*tracing.Tracer)(nil)
	if seed%2 == 0 {
		tracer = spans.tracer()
	}
	r := rig.New(t, rig.Options{
		Tracer: tracer,
		Loop: loop.Config{
			SampleTimeout: sampleTimeout, MaxBytes: []int64{20 << 10, 1 << 20}[rng.IntN(2)], CreditBytes: 64 << 10, MessageBytes: 16 << 10, CreditSamples: 16,
			Gateway: fmt.Sprint("gw", seed), RepublishAfter: 2 * time.Second, ClaimTimeout: 10 * time.Second, Dispatch: drawDispatch(rng),
		},
		Worker:  rig.Settings{Places: 1 + rng.IntN(3), Heartbeat: time.Second, MaxAbandoned: 2},
		Workers: 2 + rng.IntN(4), Queue: queue,
		Source:     func(id string) workers.Source { return queue.NewSource(id) },
		Profiles:   map[string]*rewards.Manager{"": manager},
		ProfilesOf: func(worker string) map[string]*rewards.Manager { return w.profiles(t, component, manager, worker) },
	})
	var wg sync.WaitGroup
	wg.Go(func() { faults(rand.New(rand.NewPCG(seed, 11)), r, queue) })
	clients := 1 + rng.IntN(2)
	got := make([]map[string]*wire.Result, clients)
	for i := range clients {
		c := &simClient{
			t: t, m: r.Manager, rng: rand.New(rand.NewPCG(seed, 100+uint64(i))), hello: wire.Hello{Run: "run", Client: fmt.Sprint(i)},
			manners: []int{nothing, wants, everyone, everyone}[rng.IntN(4)],
			results: map[string]*wire.Result{}, changed: make(chan struct{}, 1), began: time.Now(),
		}
		got[i] = c.results
		c.connect()
		wg.Go(func() { c.play(10 + c.rng.IntN(25)) })
	}
	wg.Wait()
	afterTheLastFault(t, w, r)
	r.Stop()
	queue.Close()
	time.Sleep(10 * time.Second) // scorers that overran give their frames back
	spans.check(t)
	for i := range got {
		for id, res := range got[i] {
			verify(t, w, id, res)
		}
	}
	require.Zero(t, r.Buffers.Live(), "bytes of frames that nobody released")
	held, granted := r.Manager.Bytes()
	require.Zero(t, held)
	require.Zero(t, granted)
	require.Zero(t, r.Manager.InFlight())
}

// afterTheLastFault fails the test unless the samples of a fresh client end in time.
func afterTheLastFault(t *testing.T, w *world, r *rig.Rig) {
	t.Helper()
	require.NoError(t, freshServed(t, w, r, false))
}

// freshServed has a fresh client send samples that nothing is wrong with, and submits some from
// inside the process: whatever happened before, they are scored within
// B = 2 × alone + 5 s + R. R is a breaker's longest pause, 30 s, which is longer than what
// follows from a dead process, a silent cut or an abandoned client. Alone is what the samples
// take at one place of the slowest worker.
func freshServed(t *testing.T, w *world, r *rig.Rig, barred bool) error {
	t.Helper()
	const pause = 30 * time.Second
	c := &simClient{
		t: t, m: r.Manager, rng: rand.New(rand.NewPCG(w.seed, 200)), hello: wire.Hello{Run: "fresh client"}, manners: everyone,
		results: map[string]*wire.Result{}, changed: make(chan struct{}, 1), began: time.Now(), barred: barred,
	}
	sent, alone := w.well("client", 24)
	inside, more := w.well("fresh", 8)
	bound := 2*(alone+more) + 5*time.Second + pause
	over := time.Now().Add(bound)
	late := func(what string) error {
		p, _ := r.Manager.Pending(3)
		return fmt.Errorf("a fresh client %s within %v: %d of %d samples have no result; pending %+v", what, bound, c.missing(sent), len(sent), p)
	}
	c.connect()
	defer func() { c.m.Detach(c.session, c.link) }() // once more does nothing
	byID := map[string]*rewards.Sample{}
	for _, sample := range sent {
		byID[sample.ID] = sample
		for !c.submit(sample, false) {
			if time.Now().After(over) {
				return late("may not send all its samples")
			}
			c.wait(50 * time.Millisecond)
		}
	}
	for c.missing(sent) > 0 {
		if time.Now().After(over) {
			return late("has no results")
		}
		c.sendAgain(byID)
		c.wait(500 * time.Millisecond)
	}
	for id, res := range c.results {
		if res.Outcome != rewards.Scored {
			return fmt.Errorf("sample %s of a fresh client is %s: %v", id, res.Outcome, res.Errors)
		}
	}
	c.m.Detach(c.session, c.link)
	ctx, cancel := context.WithDeadline(t.Context(), over)
	defer cancel()
	var futures []*loop.Future
	for _, sample := range inside {
		f, err := r.Manager.Submit(ctx, loop.Submission{Run: "fresh", Sample: sample, Timeout: 10 * time.Minute})
		if err != nil {
			return fmt.Errorf("a sample from inside the process: %w", err)
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		if res, err := f.Wait(ctx); err != nil || res.Outcome != rewards.Scored {
			return fmt.Errorf("a sample from inside the process, bound %v: %+v, %w", bound, res, err)
		}
	}
	return nil
}

// well are n samples that are scored at the first try, and how long they take one after the
// other on a slow worker.
func (w *world) well(name string, n int) (samples []*rewards.Sample, alone time.Duration) {
	for i := 0; len(samples) < n; i++ {
		id := fmt.Sprint(name, i)
		p := w.plan(id)
		if p.kind != "ok" {
			continue
		}
		samples = append(samples, rig.Sample(id, 3*(64+int(idNumber(id)%300))))
		alone += 3 * p.takes
	}
	return samples, alone
}

// profiles makes the workers of odd number three times as slow, in half of the histories.
func (w *world) profiles(t *testing.T, component rewards.Component, manager *rewards.Manager, worker string) map[string]*rewards.Manager {
	t.Helper()
	if w.seed%2 == 0 || (worker[len(worker)-1]-'0')%2 == 0 {
		return map[string]*rewards.Manager{"": manager}
	}
	component.Scorer = &slower{w}
	slow, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component}, Timeout: componentTimeout})
	require.NoError(t, err)
	return map[string]*rewards.Manager{"": slow}
}

// slower is the world on a slow worker.
type slower struct{ *world }

// Score implements rewards.Scorer.
func (s *slower) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	if err := pause(ctx, 2*s.plan(sample.ID).takes); err != nil {
		return rewards.Score{}, err
	}
	return s.world.Score(ctx, sample)
}

// drawDispatch draws how samples are given to workers.
func drawDispatch(rng *rand.Rand) dispatch.Config {
	d := dispatch.Config{Policy: []string{dispatch.Random, dispatch.SpeedWeighted, dispatch.Random, dispatch.SpeedWeighted, dispatch.Random}[rng.IntN(5)]}
	if rng.IntN(2) == 0 {
		d.BackupAfter, d.BackupShare = 1+2*rng.Float64(), 0.5
	}
	return d
}

// verify checks one final result against the sample's plan.
func verify(t *testing.T, w *world, id string, res *wire.Result) {
	t.Helper()
	p := w.plan(id)
	if res.Outcome == rewards.Scored {
		require.NotNil(t, res.RewardScore, id)
		imputed, _ := res.ExtraInfo["reward/hash/imputed"].(bool)
		if imputed {
			return
		}
		require.InDelta(t, rig.Hash(rig.Sample(id, 3*(64+int(idNumber(id)%300)))), *res.RewardScore, 0, "%s has another sample's score", id)
		require.Contains(t, []string{"ok", "unavailable", "crash", "late"}, p.kind, id)
		return
	}
	require.Nil(t, res.RewardScore, id)
	require.NotEmpty(t, res.Errors, id)
	require.NotEmpty(t, res.Errors[0].Message, id)
}

// faults kills and adds workers, loses the broker's memory and makes it refuse.
func faults(rng *rand.Rand, r *rig.Rig, e *memqueue.Queue) {
	next := len(r.Workers)
	for range rng.IntN(4) {
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		switch rng.IntN(4) {
		case 0:
			w := r.Workers[rng.IntN(len(r.Workers))]
			w.Kill()
			e.Kill(w.ID)
			next++
			r.Replace(fmt.Sprintf("w%d", next))
		case 1:
			e.Lose()
		case 2:
			e.RefusePublish(errors.New("the queue is away"))
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			e.RefusePublish(nil)
		case 3:
			time.Sleep(time.Second)
		}
	}
}

// simClient is a trainer: it sends within its credit, loses its connection, comes
// back, sends again what it has no result for, and never confirms what it lacks.
type simClient struct {
	t       *testing.T
	m       *loop.Manager
	rng     *rand.Rand
	hello   wire.Hello
	changed chan struct{}

	began time.Time

	mu      sync.Mutex
	session *stream.Session
	link    *simConn
	welcome wire.Welcome
	credit  wire.Credit
	sent    wire.Credit
	seq     uint64
	results map[string]*wire.Result
	manners int
	open    map[string]int64 // sent over the link and not answered, with their sizes
	again   []string         // refused for want of credit
	over    bool             // lately
	tried   time.Time        // when that was forgotten
	wanted  bool             // since the latest credit
	asked   bool             // for its credit
	yielded int64            // bytes
	barred  bool             // as if the server granted nothing, not even one sample at a time
}

// What simulated clients say of their credit.
const (
	nothing  = iota // neither what they want, nor an answer when their credit is asked for
	wants           // what they want, but no answer
	everyone        // both
)

// simConn is a connection in memory: what is sent arrives at once, or never.
type simConn struct {
	c   *simClient
	cut bool // guarded by c.mu
}

func (s *simConn) Close(int, string) error { return nil }

func (s *simConn) SendLater(later func() []byte) error {
	if b := later(); b != nil {
		return s.Send(b)
	}
	return nil
}

func (s *simConn) Send(b []byte) error {
	v, err := wire.DecodeControl(b)
	if err != nil {
		return err
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.cut || c.link != s {
		return errors.New("cut")
	}
	switch m := v.(type) {
	case *wire.Welcome:
		c.welcome, c.credit, c.sent = *m, wire.Credit(m.Credit), wire.Credit{}
		c.open, c.again, c.over, c.wanted, c.asked, c.yielded = map[string]int64{}, nil, false, false, false, 0
	case *wire.Credit:
		c.credit, c.over, c.wanted = *m, false, false
	case *wire.Reclaim:
		c.asked = true
	case *wire.Result:
		size, sent := c.open[m.ID]
		if m.Outcome == rewards.Rejected && m.Errors[0].Class == rewards.OverCredit {
			c.over = true
			c.sent.Samples--
			c.sent.Bytes -= size
			if sent {
				c.again = append(c.again, m.ID)
			}
		} else {
			c.over = false
		}
		if m.Outcome != rewards.Rejected || c.over {
			delete(c.open, m.ID)
		}
		if old := c.results[m.ID]; old != nil && m.Seq > c.seq {
			c.t.Errorf("sample %s was answered twice: %v then %v", m.ID, old.Outcome, m.Outcome)
		}
		if m.Outcome != rewards.Rejected {
			c.results[m.ID] = m
			c.seq = max(c.seq, m.Seq)
		}
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return nil
}

// connect opens or resumes the session.
func (c *simClient) connect() {
	link := &simConn{c: c}
	c.mu.Lock()
	c.link = link
	h := c.hello
	if c.session != nil {
		h.Resume = &wire.Resume{Session: c.welcome.Session, Confirmed: c.seq}
	}
	c.mu.Unlock()
	s, err := c.m.Attach(h, link)
	require.NoError(c.t, err)
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
}

// play sends n samples and returns when each has its result.
func (c *simClient) play(n int) {
	todo := make([]*rewards.Sample, n)
	for i := range todo {
		id := fmt.Sprintf("%s-%d", c.hello.Client, i)
		todo[i] = rig.Sample(id, 3*(64+int(idNumber(id)%300)))
		if c.rng.IntN(2) == 0 {
			todo[i].UID, todo[i].GroupSize = fmt.Sprintf("g%s-%d", c.hello.Client, i/4), 4
		}
	}
	if c.rng.IntN(2) == 0 { // the end of the step is known, or comes with its last sample
		c.m.Declare(c.session, wire.Step{Expected: int64(n)})
	}
	byID := map[string]*rewards.Sample{}
	for _, s := range todo {
		byID[s.ID] = s
	}
	for i := 0; i < n; {
		c.sendAgain(byID)
		if c.rng.IntN(12) == 0 {
			c.reconnect(todo[:i])
		}
		if !c.submit(todo[i], c.rng.IntN(40) == 0) {
			c.wait(50 * time.Millisecond)
			continue
		}
		i++
		time.Sleep(time.Duration(c.rng.IntN(60)) * time.Millisecond)
	}
	c.m.Declare(c.session, wire.Step{})
	deadline := time.Now().Add(sampleTimeout + time.Second)
	for c.missing(todo) > 0 {
		if time.Now().After(deadline) {
			c.t.Errorf("%d of %d samples had no result a second after their deadline", c.missing(todo), n)
			return
		}
		if c.rng.IntN(30) == 0 {
			c.reconnect(todo)
		}
		c.sendAgain(byID)
		c.wait(500 * time.Millisecond)
	}
	c.mu.Lock()
	s, link, seq := c.session, c.link, c.seq
	c.mu.Unlock()
	c.m.Confirm(s, seq)
	c.m.Detach(s, link)
}

// reserve is what one sample in the reserve may come to beyond the memory.
const reserve = 2 * 1024

// sendAgain sends what was refused for want of credit.
func (c *simClient) sendAgain(byID map[string]*rewards.Sample) {
	for {
		c.mu.Lock()
		if len(c.again) == 0 {
			c.mu.Unlock()
			return
		}
		id := c.again[0]
		c.mu.Unlock()
		if c.lacks(id) && !c.submit(byID[id], false) {
			return
		}
		c.mu.Lock()
		c.again = slices.DeleteFunc(c.again, func(other string) bool { return other == id })
		c.mu.Unlock()
	}
}

// manner answers when the server asks for credit: all that is left, although samples may wait.
func (c *simClient) manner() {
	c.mu.Lock()
	asked := c.asked && c.manners == everyone
	c.asked = false
	if asked {
		more := max(c.credit.Bytes-c.sent.Bytes, 0)
		c.sent.Bytes += more
		c.yielded += more
		c.wanted = false
	}
	s, total := c.session, c.yielded
	c.mu.Unlock()
	if asked {
		c.m.Yield(s, total)
	}
}

// reconnect cuts the connection, perhaps in the middle of a frame, and resumes.
func (c *simClient) reconnect(sent []*rewards.Sample) {
	c.mu.Lock()
	c.link.cut = true
	s, link := c.session, c.link
	c.mu.Unlock()
	if c.rng.IntN(2) == 0 && len(sent) > 0 { // mid-frame
		msg, err := wire.Encode(rig.Sample("half", 300), wire.Options{})
		require.NoError(c.t, err)
		b := msg.Bytes()
		_ = c.m.Receive(s, bytes.NewReader(b[:len(b)-c.rng.IntN(200)-1])) // the socket's error
		require.NoError(c.t, c.m.Audit(reserve))
	}
	c.m.Detach(s, link)
	time.Sleep(time.Duration(c.rng.IntN(300)) * time.Millisecond)
	c.connect()
	for _, sample := range sent {
		for c.lacks(sample.ID) && !c.submit(sample, false) {
			c.wait(50 * time.Millisecond)
		}
	}
	if c.rng.IntN(3) == 0 {
		c.mu.Lock()
		seq := c.seq
		c.mu.Unlock()
		c.m.Confirm(s, seq)
	}
}

// submit sends a sample if the credit allows it.
func (c *simClient) submit(s *rewards.Sample, other bool) bool {
	msg, err := wire.Encode(s, wire.Options{})
	require.NoError(c.t, err)
	c.manner()
	c.mu.Lock()
	within := c.sent.Samples < c.credit.Samples && c.sent.Bytes+msg.Size() <= c.credit.Bytes
	session := c.session
	if c.barred || c.over || !within && len(c.open) > 0 {
		tell := c.manners > nothing && !c.wanted
		c.wanted = c.wanted || tell
		c.mu.Unlock()
		if tell {
			c.m.Want(session, 4*msg.Size())
		}
		return false
	}
	c.sent.Samples++
	c.sent.Bytes += msg.Size()
	c.open[s.ID] = msg.Size()
	c.mu.Unlock()
	require.NoError(c.t, c.m.Receive(session, bytes.NewReader(msg.Bytes())))
	require.NoError(c.t, c.m.Audit(reserve))
	if other { // the same id with other bytes is refused, the first stays
		wrong := rig.Sample(s.ID, len(s.Media[0].Data))
		wrong.Prompt = "another"
		c.submit(wrong, false)
	}
	return true
}

// giveUp bounds one history in its own time: nothing may take so long.
const giveUp = 10 * time.Minute

func (c *simClient) wait(d time.Duration) {
	if time.Since(c.began) > giveUp {
		p, _ := c.m.Pending(5)
		panic(fmt.Sprintf("client %s waits for ever: sent %+v of credit %+v, pending %+v; server: %s", c.hello.Client, c.sent, c.credit, p, c.m.CreditState(c.session)))
	}
	c.manner()
	select {
	case <-c.changed:
	case <-time.After(d):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.tried) > time.Second { // what would end the waiting may have come before the refusal
		c.over, c.tried = false, time.Now()
	}
}

func (c *simClient) lacks(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.results[id] == nil
}

func (c *simClient) missing(all []*rewards.Sample) int {
	n := 0
	for _, s := range all {
		if c.lacks(s.ID) {
			n++
		}
	}
	return n
}
