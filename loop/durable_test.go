package loop_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/race"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// life is one life of a durable gateway: all that is in memory is its own.
type life struct {
	*stage
	spool *spool.Spool
	late  *laggard // nil: it is the spool itself
	dir   string
}

// lives begins lives one after the other on the same folder. kill ends one as kill -9
// would: the next one finds the files as they are, and nothing that was said later.
type lives struct {
	t    *testing.T
	dir  string
	max  int64
	late bool // what is queued is written when the test says so
	all  []*life
}

// laggard is a spool that writes what is queued when it is told to, or must.
type laggard struct {
	*spool.Spool
	mu    sync.Mutex
	queue []spool.Record // guarded by mu
}

func (g *laggard) Later(r spool.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = append(g.queue, r)
}

func (g *laggard) forward() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.queue {
		g.Spool.Later(r)
	}
	g.queue = nil
}

func (g *laggard) Put(r spool.Record) error {
	g.forward()
	return g.Spool.Put(r)
}

func (g *laggard) Flush() error {
	g.forward()
	return g.Spool.Flush()
}

func (l *lives) begin(o rig.Options) *life {
	l.t.Helper()
	e := memqueue.New(uint64(len(l.all)+1), lease)
	o.Queue = e
	o.Source = func(worker string) workers.Source { return e.NewSource(worker) }
	if o.Worker.Heartbeat == 0 {
		o.Worker.Heartbeat = time.Second
	}
	sp, err := spool.Open(spool.Config{Dir: l.dir, MaxBytes: l.max})
	require.NoError(l.t, err)
	o.Spool = sp
	var late *laggard
	if l.late {
		late = &laggard{Spool: sp}
		o.Spool = late
	}
	v := &life{late: late, stage: &stage{Rig: rig.New(l.t, o), queue: e}, spool: sp, dir: l.dir}
	l.all = append(l.all, v)
	return v
}

// kill ends a life. What was written is there for the next.
func (l *lives) kill(v *life) {
	l.t.Helper()
	l.dir = l.t.TempDir()
	files, err := filepath.Glob(filepath.Join(v.dir, "*.spool"))
	require.NoError(l.t, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) { // given back meanwhile
			continue
		}
		require.NoError(l.t, err)
		require.NoError(l.t, os.WriteFile(filepath.Join(l.dir, filepath.Base(name)), b, 0o600))
	}
	v.end()
}

func (v *life) end() {
	v.Stop()
	v.queue.Close()
}

// durably runs a test of several lives in a bubble; after it nothing is left of any.
func durably(t *testing.T, test func(t *testing.T, l *lives)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lives{t: t, dir: t.TempDir()}
		test(t, l)
		for _, v := range l.all {
			v.end()
			require.NoError(t, v.spool.Close())
		}
		time.Sleep(time.Minute) // scorers that overran give their frames back
		for i, v := range l.all {
			require.Zero(t, v.Buffers.Live(), "life %d: bytes of frames that nobody released", i)
			held, _ := v.Manager.Bytes()
			require.Zero(t, held)
		}
	})
}

// slowly scores each sample in a second, one at a time, and counts.
func slowly(t *testing.T, runs *atomic.Int64) rig.Options {
	t.Helper()
	return rig.Options{Workers: 1, Worker: rig.Settings{Places: 1}, Profiles: profiles(t, component(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		score, err := hashing(time.Second)(ctx, s)
		if err == nil {
			runs.Add(1)
		}
		return score, err
	}))}
}

// again is the hello of a client whose gateway has died.
func again(p *peer, h wire.Hello, got uint64) wire.Hello {
	h.Resume = &wire.Resume{Session: p.welcome().Session, Confirmed: got}
	return h
}

func TestWhatWasAcknowledgedIsScoredInTheNextLifeAlthoughNobodyComes(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		var before, after atomic.Int64
		first := l.begin(slowly(t, &before))
		h := wire.Hello{Run: "run", Client: "a"}
		p := first.connect(t, h)
		for _, id := range ids("x", 6) {
			p.send(t, rig.Sample(id, 30))
		}
		acked := 0
		for _, a := range got[*wire.Ack](p) {
			acked += len(a.IDs)
		}
		require.Equal(t, 6, acked)
		p.m.Confirm(p.session, p.result(t, "x0").Seq)
		p.result(t, "x1")
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		l.kill(first)

		second := l.begin(slowly(t, &after))
		assert.Equal(t, 4, second.Manager.InFlight())
		held, _ := second.Manager.Bytes()
		assert.Positive(t, held)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 4, after.Load(), "those without a result, once")
		assert.Zero(t, second.Manager.InFlight())

		q := second.connect(t, again(p, h, 1))
		defer q.drop()
		assert.False(t, q.welcome().Resumed)
		assert.Equal(t, p.welcome().Epoch, q.welcome().Epoch)
		for i := 1; i < 6; i++ {
			id := fmt.Sprint("x", i)
			q.send(t, rig.Sample(id, 30))
			res := q.result(t, id)
			require.Equal(t, rewards.Scored, res.Outcome)
			require.InDelta(t, rig.Hash(rig.Sample(id, 30)), *res.RewardScore, 0)
			require.EqualValues(t, i, res.Seq)
		}
		assert.EqualValues(t, 4, after.Load(), "all of them were answered from memory")
		q.m.Confirm(q.session, 5)
		require.NoError(t, second.spool.Flush())
		assert.Equal(t, 1, second.spool.Stats().Records, "the run; what is confirmed is forgotten")
		assert.EqualValues(t, 2, before.Load())
	})
}

func TestAClientThatComesBackIsAttachedToWhatIsInFlight(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		var runs atomic.Int64
		v := l.begin(slowly(t, &runs))
		h := wire.Hello{Run: "run"}
		p := v.connect(t, h)
		for _, id := range ids("x", 5) {
			p.send(t, rig.Sample(id, 30))
		}
		for kills := range 3 { // life after life
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			l.kill(v)
			runs.Store(0)
			v = l.begin(slowly(t, &runs))
			require.Equal(t, 5, v.Manager.InFlight(), "life %d", kills+2)
			p = v.connect(t, again(p, h, 0))
			for _, id := range ids("x", 5) {
				p.send(t, rig.Sample(id, 30))
			}
			require.NoError(t, v.Manager.Audit(0))
		}
		other := rig.Sample("x4", 30)
		other.Media[0].Data[0] ^= 1
		p.send(t, other)
		refused := got[*wire.Result](p)
		require.Len(t, refused, 1)
		require.Equal(t, rewards.IDReused, refused[0].Errors[0].Class)
		for i, id := range ids("x", 4) {
			require.Equal(t, rewards.Scored, p.result(t, id).Outcome)
			require.EqualValues(t, i+1, p.result(t, id).Seq)
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 5, runs.Load())
		synctest.Wait()
		l.kill(v)
		v = l.begin(slowly(t, &runs))
		p = v.connect(t, again(p, h, 0))
		p.send(t, other)
		require.Equal(t, rewards.IDReused, p.result(t, "x4").Errors[0].Class, "answered for other bytes, a life ago")
		p.drop()
	})
}

func TestADeadlineGoesOnWhileTheGatewayIsDead(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		var runs atomic.Int64
		o := slowly(t, &runs)
		o.Loop.SampleTimeout = 20 * time.Second
		o.Workers = 0
		first := l.begin(o)
		p := first.connect(t, wire.Hello{Run: "run", OnSampleFailure: "value:0.25"})
		p.send(t, rig.Sample("late", 30))
		time.Sleep(10 * time.Second)
		p.send(t, rig.Sample("early", 30))
		synctest.Wait()
		l.kill(first)
		time.Sleep(12 * time.Second)
		o.Workers = 1
		second := l.begin(o)
		time.Sleep(5 * time.Second)
		q := second.connect(t, again(p, wire.Hello{Run: "run"}, 0))
		defer q.drop()
		q.send(t, rig.Sample("late", 30))
		q.send(t, rig.Sample("early", 30))
		expired := q.result(t, "late")
		assert.Equal(t, rewards.OutcomeExpired, expired.Outcome)
		assert.Contains(t, expired.Errors[0].Message, "no result within 20s")
		assert.InDelta(t, 0.25, *expired.Fallback.Value, 0, "the policy of the session that sent it")
		assert.Equal(t, rewards.Scored, q.result(t, "early").Outcome)
		assert.EqualValues(t, 1, runs.Load())
	})
}

func TestANewEpochDropsWhatWasKept(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		var runs atomic.Int64
		h := wire.Hello{Run: "run"}
		v := l.begin(slowly(t, &runs))
		p := v.connect(t, h)
		for _, id := range ids("x", 3) {
			p.send(t, rig.Sample(id, 30))
		}
		p.result(t, "x0")
		synctest.Wait()
		l.kill(v)
		v = l.begin(slowly(t, &runs))
		require.Equal(t, 2, v.Manager.InFlight())
		q := v.connect(t, h) // the trainer was started anew, too
		require.Greater(t, q.welcome().Epoch, p.welcome().Epoch)
		require.Zero(t, v.Manager.InFlight())
		q.send(t, rig.Sample("x0", 60)) // its ids are free
		synctest.Wait()
		l.kill(v)
		v = l.begin(slowly(t, &runs))
		require.Equal(t, 1, v.Manager.InFlight())
		r := v.connect(t, again(q, h, 0))
		defer r.drop()
		require.Equal(t, q.welcome().Epoch, r.welcome().Epoch)
		r.send(t, rig.Sample("x0", 60))
		require.InDelta(t, rig.Hash(rig.Sample("x0", 60)), *r.result(t, "x0").RewardScore, 0)
	})
}

func TestAClockThatWasPutBackMakesNoEpochTwice(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		later := uint64(time.Now().Add(time.Hour).UnixMicro()) //nolint:gosec // past 1970
		earlier, err := spool.Open(spool.Config{Dir: l.dir})
		require.NoError(t, err)
		require.NoError(t, earlier.Put(spool.Record{Kind: spool.Run, Run: "run", Epoch: later}))
		require.NoError(t, earlier.Close())
		var runs atomic.Int64
		p := l.begin(slowly(t, &runs)).connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		require.Equal(t, later+1, p.welcome().Epoch)
	})
}

// A reward whose value is missing gets its group's mean. Those that were answered before
// the gateway died count, and the group closes with its last member, not at its deadline.
func TestAGroupFormsAgainWithTheMembersThatWereAnswered(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		o := rig.Options{Workers: 1, Worker: rig.Settings{Places: 4}, Profiles: twoComponents(t, "m3")}
		first := l.begin(o)
		h := wire.Hello{Run: "run"}
		p := first.connect(t, h)
		for i := range 7 {
			p.send(t, member(i))
		}
		for _, i := range []int{0, 1, 2, 4, 5, 6} {
			p.m.Confirm(p.session, p.result(t, fmt.Sprint("m", i)).Seq)
		}
		time.Sleep(time.Second)
		require.Len(t, got[*wire.Result](p), 6, "m3 waits for m7")
		synctest.Wait()
		l.kill(first)

		second := l.begin(o)
		q := second.connect(t, again(p, h, 6))
		defer q.drop()
		q.send(t, member(3))
		time.Sleep(time.Second)
		require.Empty(t, got[*wire.Result](q))
		q.send(t, member(7))
		start := time.Now()
		res := q.result(t, "m3")
		require.Less(t, time.Since(start), time.Second)
		require.Equal(t, rewards.Scored, res.Outcome)
		require.InDelta(t, 100+0.5*25.0/7, *res.RewardScore, 1e-9) // the mean of 0, 1, 2, 4, 5, 6, 7
		require.Equal(t, 8, res.Group.Scored)
		require.Equal(t, rewards.Scored, q.result(t, "m7").Outcome)
		q.m.Confirm(q.session, 2)
		require.NoError(t, second.spool.Flush())
		require.Equal(t, 1, second.spool.Stats().Records, "the run; the group has closed")
	})
}

// The same where the group is scored as a whole: one member failed by itself before.
func TestAGroupThatIsScoredAsAWholeIsScoredInTheNextLife(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		c := &comparison{takes: time.Second}
		o := rig.Options{Workers: 1, Worker: rig.Settings{Places: 8}, Profiles: compared(t, c)}
		sample := func(i int) *rewards.Sample {
			s := rig.Sample(fmt.Sprint("m", i), 3)
			s.UID, s.GroupSize = "prompt", 4
			if i == 0 {
				s.Response = "bad"
			}
			return s
		}
		first := l.begin(o)
		h := wire.Hello{Run: "run"}
		p := first.connect(t, h)
		for i := range 4 {
			p.send(t, sample(i))
		}
		require.Equal(t, rewards.Failed, p.result(t, "m0").Outcome)
		p.m.Confirm(p.session, 1)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, c.calls())
		l.kill(first)

		start := time.Now()
		second := l.begin(o)
		q := second.connect(t, again(p, h, 1))
		defer q.drop()
		for i := 1; i < 4; i++ {
			q.send(t, sample(i))
		}
		for i := 1; i < 4; i++ {
			res := q.result(t, fmt.Sprint("m", i))
			require.Equal(t, rewards.Scored, res.Outcome, "%v", res.Errors)
			require.InDelta(t, float64(i+10*(i-1)), *res.RewardScore, 0)
			require.Equal(t, 4, res.Group.Size)
			require.Equal(t, 1, res.Group.Failed)
		}
		require.Less(t, time.Since(start), 6*time.Second, "nobody waits for the member that has its result")
		require.Len(t, c.calls(), 1)
	})
}

// An open group without any member in flight ends at its deadline, as it would have.
func TestAnOpenGroupOfAnsweredMembersEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		o := rig.Options{Workers: 1, Profiles: twoComponents(t), Loop: loop.Config{SampleTimeout: time.Minute}}
		first := l.begin(o)
		p := first.connect(t, wire.Hello{Run: "run"})
		p.send(t, member(1))
		p.m.Confirm(p.session, p.result(t, "m1").Seq)
		synctest.Wait()
		l.kill(first)
		second := l.begin(o)
		require.Equal(t, 2, second.spool.Stats().Records, "run and member")
		time.Sleep(2 * time.Minute)
		require.NoError(t, second.spool.Flush())
		require.Equal(t, 1, second.spool.Stats().Records)
		time.Sleep(time.Hour) // nobody uses the run
		require.NoError(t, second.spool.Flush())
		require.Zero(t, second.spool.Stats().Records)
	})
}

// progresses awaits a state of the default reward, for at most ten seconds.
func (v *life) progresses(t *testing.T, state loop.ProgressState) loop.Progress {
	t.Helper()
	var p loop.Progress
	for end := time.Now().Add(10 * time.Second); !time.Now().After(end); time.Sleep(100 * time.Millisecond) {
		if p = v.progress(t, "default"); p.State == state {
			return p
		}
	}
	require.Equal(t, state, p.State, p.Why)
	return p
}

// A spool without room for a sample slows its client, which learns the reason, and so does
// everybody who asks how the reward fares. What is in flight goes on. Once clients have what
// is over, a sample that was refused is taken, and so is one of a fresh client.
func TestAFullSpoolSlowsClientsUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		l.max = 100_000
		var runs atomic.Int64
		o := slowly(t, &runs)
		log := &paper{}
		o.Log = slog.New(slog.NewTextHandler(log, nil))
		v := l.begin(o)
		time.Sleep(4 * time.Second) // a gateway that begins has three
		p := v.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		for _, id := range ids("x", 6) {
			p.send(t, rig.Sample(id, 30_000))
		}
		synctest.Wait()
		refused := got[*wire.Result](p)
		require.Len(t, refused, 3)
		for _, r := range refused {
			require.Equal(t, rewards.Rejected, r.Outcome)
			require.Equal(t, rewards.OverCredit, r.Errors[0].Class, "a client sends it again")
			require.Contains(t, r.Errors[0].Message, "spool full")
		}
		told := got[*wire.Error](p)
		require.Len(t, told, 1, "once, not for each")
		require.Equal(t, rewards.Unavailable, told[0].Code)
		require.Contains(t, told[0].Message, "spool full")
		require.Equal(t, 3, v.Manager.InFlight())
		require.Contains(t, v.progresses(t, loop.Slow).Why, "spool full", "what is in flight goes on")
		time.Sleep(2 * time.Second)
		require.NotEmpty(t, log.lines("spool full"))
		for i, id := range ids("x", 3) {
			require.Equal(t, rewards.Scored, p.result(t, id).Outcome, "what is in flight goes on")
			p.m.Confirm(p.session, uint64(i+1)) //nolint:gosec // small
		}
		time.Sleep(time.Second) // as clients wait
		p.send(t, rig.Sample("y", 30_000))
		require.Equal(t, rewards.Scored, p.result(t, "y").Outcome)
		require.Empty(t, v.progresses(t, loop.Progressing).Why)
		require.NotEmpty(t, log.lines("scoring of a reward has resumed"))
		fresh := v.connect(t, wire.Hello{Run: "fresh"})
		defer fresh.drop()
		fresh.send(t, rig.Sample("z", 30_000))
		require.Equal(t, rewards.Scored, fresh.result(t, "z").Outcome)
		require.NoError(t, v.Manager.Audit(0))
	})
}

// A client counts a refused sample as not sent; so does the gateway, however often that
// happens, and grants no memory twice.
func TestSamplesThatTheDiskRefusesCostNoCredit(t *testing.T) {
	t.Parallel()
	onSlowDisk(t, func(t *testing.T, s *stage, d *slowDisk, sp *spool.Spool) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run", Client: "a"})
		defer p.drop()
		for range 50 {
			var sent sync.WaitGroup
			sent.Go(func() { p.send(t, rig.Sample("x", 30)) })
			synctest.Wait()
			d.written <- errors.New("input/output error")
			sent.Wait()
		}
		held, granted := s.Manager.Bytes()
		require.Zero(t, held)
		told := got[*wire.Credit](p)
		require.NotEmpty(t, told)
		require.Equal(t, told[len(told)-1].Bytes, granted, "nothing was sent, as the client counts")
	})
}

func TestWhatAStopCutsOffGoesOnInTheNextLife(t *testing.T) {
	t.Parallel()
	durably(t, func(t *testing.T, l *lives) {
		t.Helper()
		var runs atomic.Int64
		first := l.begin(slowly(t, &runs))
		p := first.connect(t, wire.Hello{Run: "run"})
		inside := first.submit(t, "_edge", rig.Sample("inside", 30))
		for _, id := range ids("x", 3) {
			p.send(t, rig.Sample(id, 30))
		}
		p.result(t, "x0")
		first.Stop()
		require.NotEqual(t, rewards.OutcomeExpired, result(t, inside).Outcome)
		require.NoError(t, first.spool.Close())
		second := l.begin(slowly(t, &runs))
		require.Equal(t, 2, second.Manager.InFlight(), "those of the stream, not those whose caller is gone")
		time.Sleep(10 * time.Second)
		require.Zero(t, second.Manager.InFlight())
	})
}

// slowDisk is a spool whose samples are written when the test says so.
type slowDisk struct {
	loop.Spool
	puts    atomic.Int64
	written chan error
}

func (d *slowDisk) Put(r spool.Record) error {
	d.puts.Add(1)
	if err := <-d.written; err != nil {
		return err
	}
	return d.Spool.Put(r)
}

// onSlowDisk runs a test over such a spool.
func onSlowDisk(t *testing.T, test func(t *testing.T, s *stage, d *slowDisk, sp *spool.Spool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sp, err := spool.Open(spool.Config{Dir: t.TempDir()})
		require.NoError(t, err)
		d := &slowDisk{Spool: sp, written: make(chan error)}
		e := memqueue.New(1, lease)
		defer e.Close()
		s := &stage{queue: e, Rig: rig.New(t, rig.Options{
			Workers: 1, Worker: rig.Settings{Places: 4, Heartbeat: time.Second}, Profiles: profiles(t, component(hashing(time.Second))),
			Queue: e, Source: func(worker string) workers.Source { return e.NewSource(worker) }, Spool: d,
		})}
		test(t, s, d, sp)
		s.Stop()
		require.NoError(t, sp.Close())
		require.Zero(t, s.Buffers.Live())
		require.NoError(t, s.Manager.Audit(0))
	})
}

func TestTheSameSampleOverTwoConnectionsIsWrittenOnce(t *testing.T) {
	t.Parallel()
	onSlowDisk(t, func(t *testing.T, s *stage, d *slowDisk, sp *spool.Spool) {
		t.Helper()
		a := s.connect(t, wire.Hello{Run: "run", Client: "a"})
		b := s.connect(t, wire.Hello{Run: "run", Client: "b"})
		defer a.drop()
		defer b.drop()
		var both sync.WaitGroup
		for _, p := range []*peer{a, b} {
			both.Go(func() { p.send(t, rig.Sample("x", 30)) })
		}
		synctest.Wait()
		require.EqualValues(t, 1, d.puts.Load())
		require.Zero(t, s.Manager.InFlight())
		require.Empty(t, got[*wire.Ack](a), "not before it is written")
		d.written <- nil
		both.Wait()
		require.Len(t, got[*wire.Ack](a), 1)
		require.Len(t, got[*wire.Ack](b), 1)
		time.Sleep(10 * time.Second)
		require.Len(t, got[*wire.Result](a), 1)
		require.Len(t, got[*wire.Result](b), 1)
		require.NoError(t, sp.Flush())
		require.Equal(t, 2, sp.Stats().Records, "run and result")
		require.EqualValues(t, 1, d.puts.Load())
	})
}

func TestASampleThatCannotBeWrittenIsRefusedAndMayComeAgain(t *testing.T) {
	t.Parallel()
	onSlowDisk(t, func(t *testing.T, s *stage, d *slowDisk, sp *spool.Spool) {
		t.Helper()
		h := wire.Hello{Run: "run", Client: "a"}
		p := s.connect(t, h)
		defer p.drop()
		say := func(err error, meanwhile func()) {
			var sent sync.WaitGroup
			sent.Go(func() { p.send(t, rig.Sample("x", 30)) })
			synctest.Wait()
			meanwhile()
			d.written <- err
			sent.Wait()
		}
		say(errors.New("no space left"), func() {})
		refused := p.result(t, "x")
		require.Equal(t, rewards.OverCredit, refused.Errors[0].Class)
		require.Contains(t, refused.Errors[0].Message, "no space left")
		say(nil, func() {
			go func() { _ = s.Manager.Drain(t.Context()) }() // ends with the test: nothing is in flight
			synctest.Wait()
		})
		results := got[*wire.Result](p)
		require.Len(t, results, 2)
		require.Equal(t, rewards.Draining, results[1].Errors[0].Class)
		require.NoError(t, sp.Flush())
		require.Equal(t, 1, sp.Stats().Records, "the run: what was refused after all is not kept")
	})
}

// Seeded histories of several lives: whatever moment the gateway is killed at, every
// sample has one result at its client, its own, and one whose result was written is not
// scored again.
func TestHistoriesOfKilledGatewaysYieldOneResultEach(t *testing.T) {
	t.Parallel()
	n := uint64(200)
	switch {
	case testing.Short():
		n = 4
	case race.Enabled:
		n = 40
	}
	for seed := range n {
		synctest.Test(t, func(t *testing.T) { killedHistory(t, seed) })
		if t.Failed() {
			t.Fatalf("history %d failed", seed)
		}
	}
}

func killedHistory(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	l := &lives{t: t, dir: t.TempDir(), late: true}
	scored := map[string]int{} // guarded by mu
	var mu sync.Mutex
	o := rig.Options{Workers: 2, Worker: rig.Settings{Places: 1 + rng.IntN(3)}, Profiles: profiles(t, component(
		func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
			score, err := hashing(time.Duration(100+idNumber(s.ID)%900)*time.Millisecond)(ctx, s)
			if err == nil {
				mu.Lock()
				scored[s.ID]++
				mu.Unlock()
			}
			return score, err
		}))}
	total := 10 + rng.IntN(20)
	sample := func(i int) *rewards.Sample {
		s := rig.Sample(fmt.Sprint("s", i), 3*(1+i))
		if i%2 == 0 {
			s.UID, s.GroupSize = fmt.Sprint("g", i/8), 4
		}
		return s
	}
	h := wire.Hello{Run: "run", OnSampleFailure: "group_mean"}
	v := l.begin(o)
	p := v.connect(t, h)
	results := map[string]*wire.Result{}
	here := map[string]bool{} // of those, the results of this life: an earlier one's may not be on disk
	seq := uint64(0)
	take := func() {
		synctest.Wait()
		for _, r := range got[*wire.Result](p) {
			if old := results[r.ID]; old != nil {
				require.InDelta(t, *old.RewardScore, *r.RewardScore, 0, r.ID)
			}
			results[r.ID], here[r.ID] = r, true
			seq = max(seq, r.Seq)
		}
		p.mu.Lock()
		p.inbox = p.inbox[:1] // the welcome
		p.mu.Unlock()
	}
	sent, wasScored := 0, map[string]int{}
	for kills := 0; len(results) < total; {
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
		take()
		if rng.IntN(3) == 0 {
			v.late.forward()
		}
		switch {
		case kills < 4 && rng.IntN(10) == 0:
			kills++
			if rng.IntN(2) == 0 { // else what is queued is lost
				v.late.forward()
				take()
				mu.Lock()
				for id := range here {
					wasScored[id] = scored[id]
				}
				mu.Unlock()
			}
			clear(here)
			l.kill(v)
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			v = l.begin(o)
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			p = v.connect(t, again(p, h, seq))
			seq = 0
			for i := range sent {
				if results[fmt.Sprint("s", i)] == nil {
					p.send(t, sample(i))
				}
			}
		case rng.IntN(4) == 0:
			p.m.Confirm(p.session, seq)
		case sent < total:
			p.send(t, sample(sent))
			sent++
		}
	}
	p.drop()
	for i := range total {
		r := results[fmt.Sprint("s", i)]
		require.Equal(t, rewards.Scored, r.Outcome)
		require.InDelta(t, rig.Hash(sample(i)), *r.RewardScore, 0, r.ID)
	}
	mu.Lock()
	for id, n := range wasScored {
		require.Equal(t, n, scored[id], "%s had its result, on disk", id)
	}
	mu.Unlock()
	require.NoError(t, v.Manager.Audit(0))
	for _, v := range l.all {
		v.end()
		require.NoError(t, v.spool.Close())
		require.Zero(t, v.Buffers.Live())
	}
}
