package loop_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/outage"
	"github.com/rewardloop/rewardloop/testkit/rig"
)

// tally is a scorer that notes how often it is called for each sample.
type tally struct {
	f rewards.ScorerFunc

	mu sync.Mutex
	n  map[string]int // guarded by mu
}

func (c *tally) Score(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
	c.mu.Lock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[s.ID]++
	c.mu.Unlock()
	return c.f(ctx, s)
}

func (c *tally) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

// judged are profiles on n workers, each with a link of its own to the engine: the default
// one reads (200 ms) and asks, "sound" only reads.
func judged(t *testing.T, e *outage.Engine, n int, read *tally) (links []*outage.Link, o rig.Options) {
	t.Helper()
	if read.f == nil {
		read.f = hashing(200 * time.Millisecond)
	}
	for range n {
		links = append(links, outage.NewLink(e))
	}
	of := func(worker string) map[string]*rewards.Manager {
		i := 0
		_, _ = fmt.Sscanf(worker, "w%d", &i)
		return map[string]*rewards.Manager{
			"": minutes(t,
				rewards.Component{Key: "read", Weight: 1, Required: true, Scorer: read},
				rewards.Component{Key: "judge", Weight: 1, Required: true, Scorer: links[i%n]}),
			"sound": minutes(t, component(hashing(10*time.Millisecond))),
		}
	}
	return links, rig.Options{Workers: n, Worker: rig.Settings{Places: 4}, Profiles: of("w0"), ProfilesOf: of}
}

func TestSamplesWaitWhileTheirEngineIsDownAndNothingOfItCounts(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{Takes: time.Second}
	read := &tally{}
	_, o := judged(t, e, 2, read)
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		var all []*loop.Future
		for i := range 40 {
			all = append(all, s.submitTo(t, "", fmt.Sprint("s", i), 10*time.Minute))
		}
		time.Sleep(400 * time.Millisecond) // eight are with the workers, and are read
		e.Down(true)
		time.Sleep(2500 * time.Millisecond)
		pending, n := s.Manager.Pending(100)
		require.Equal(t, 40, n)
		for _, p := range pending {
			require.Contains(t, []string{"queued", "published", "running"}, p.Stage)
			if p.Stage != "queued" {
				continue
			}
			require.Equal(t, "waiting for e", p.Waits, p.ID)
			require.Contains(t, p.LastError, "connection refused")
			require.Empty(t, p.Workers)
		}
		for _, w := range s.Manager.Breakers() {
			require.Fail(t, "a worker is blamed", "%+v", w)
		}
		for i := range 10 { // the other profile has all its places
			start := time.Now()
			require.Equal(t, rewards.Scored, result(t, s.submitTo(t, "sound", fmt.Sprint("x", i), time.Minute)).Outcome)
			require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
		}
		time.Sleep(3 * time.Minute)
		asked := len(e.Asked())
		require.Less(t, asked, 8+2*(3+180/4), "only probes, of two processes")
		e.Down(false)
		back := time.Now()
		for i, f := range all {
			res := result(t, f)
			require.Equal(t, rewards.Scored, res.Outcome, "%+v", res.Errors)
			require.Equal(t, 1, res.Attempts)
			require.Empty(t, res.Errors)
			require.Equal(t, 1, read.of(fmt.Sprint("s", i)), "what is finished is kept")
		}
		require.LessOrEqual(t, time.Since(back), 10*time.Second)
	})
}

func TestEachProbeIsAnotherSample(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{}
	_, o := judged(t, e, 1, &tally{})
	o.Worker.Places = 1
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		e.Down(true)
		var all []*loop.Future
		for i := range 6 {
			all = append(all, s.submitTo(t, "", fmt.Sprint("s", i), 10*time.Minute))
		}
		time.Sleep(40 * time.Second)
		asked := e.Asked()
		require.GreaterOrEqual(t, len(asked), 8)
		first := slices.Clone(asked[:6])
		slices.Sort(first)
		require.Len(t, slices.Compact(first), 6, "none came twice before all had: %v", asked)
		e.Down(false)
		for _, f := range all {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
	})
}

func TestAnEngineThatOneWorkerDoesNotReachStopsThatWorkerOnly(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{Takes: 100 * time.Millisecond}
	read := &tally{}
	links, o := judged(t, e, 3, read)
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		links[1].Cut(true)
		start := time.Now()
		var all []*loop.Future
		for i := range 100 {
			all = append(all, s.submitTo(t, "", fmt.Sprint("s", i), time.Minute))
		}
		for i, f := range all {
			res := result(t, f)
			require.Equal(t, rewards.Scored, res.Outcome, "%+v", res.Errors)
			require.Equal(t, 1, res.Attempts)
			require.Equal(t, 1, read.of(fmt.Sprint("s", i)))
		}
		require.Less(t, time.Since(start), 100/8*300*time.Millisecond*3/2, "two workers of four places")
		info := s.Workers[1].Info().Profiles[0]
		require.Equal(t, "waiting for e", info.Waits)
		require.LessOrEqual(t, info.Capacity, 1)
		links[1].Cut(false)
		time.Sleep(10 * time.Second)
		for i := range 3 { // one of them finds out
			result(t, s.submitTo(t, "", fmt.Sprint("y", i), time.Minute))
		}
		require.Eventually(t, func() bool {
			synctest.Wait()
			time.Sleep(time.Second)
			for i := range 4 {
				result(t, s.submitTo(t, "", fmt.Sprint("z", i, time.Now().UnixNano()), time.Minute))
			}
			return s.Workers[1].Info().Profiles[0].Capacity == 4
		}, time.Hour, time.Second)
	})
}

func TestWhereOnlySomeSamplesNeedTheEngineTheOthersGoOn(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{}
	link := outage.NewLink(e)
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{
		{Key: "judge", Weight: 1, Required: true, Scorer: link, When: []string{"hard"}},
		{Key: "read", Weight: 1, Required: true, Scorer: hashing(50 * time.Millisecond), When: []string{"easy"}},
	}, Timeout: time.Minute})
	require.NoError(t, err)
	onStage(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 4}, Profiles: map[string]*rewards.Manager{"": m}}, func(t *testing.T, s *stage) {
		t.Helper()
		e.Down(true)
		submit := func(id, source string) *loop.Future {
			sample := rig.Sample(id, 3)
			sample.DataSource = source
			return s.submitFor(t, "_run", sample, 10*time.Minute)
		}
		var hard []*loop.Future
		for i := range 30 {
			hard = append(hard, submit(fmt.Sprint("h", i), "hard"))
		}
		for i := range 50 {
			require.Equal(t, rewards.Scored, result(t, submit(fmt.Sprint("e", i), "easy")).Outcome)
		}
		pending, _ := s.Manager.Pending(1)
		require.Equal(t, "queued", pending[0].Stage)
		require.Equal(t, "waiting for e", pending[0].Waits)
		require.Equal(t, 8, s.Workers[0].Info().Profiles[0].Capacity+s.Workers[1].Info().Profiles[0].Capacity, "it takes no place")
		before := len(e.Asked())
		time.Sleep(2 * time.Minute)
		require.Less(t, len(e.Asked())-before, 20, "one tries from time to time")
		require.Equal(t, 30, s.Manager.InFlight())
		e.Down(false)
		for _, f := range hard {
			res := result(t, f)
			require.Equal(t, rewards.Scored, res.Outcome)
			require.Equal(t, 1, res.Attempts)
		}
	})
}

func TestAnOptionalComponentIsImputedAtOnceWhileItsEngineIsDown(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{}
	e.Down(true)
	zero, err := rewards.ParseComponentPolicy("zero")
	require.NoError(t, err)
	m := minutes(t, component(hashing(10*time.Millisecond)), rewards.Component{Key: "judge", Weight: 1, Scorer: outage.NewLink(e), OnFailure: zero})
	onStage(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 4}, Profiles: map[string]*rewards.Manager{"": m}}, func(t *testing.T, s *stage) {
		t.Helper()
		for i := range 20 {
			start := time.Now()
			res := result(t, s.submitTo(t, "", fmt.Sprint(i), time.Minute))
			require.Equal(t, rewards.Scored, res.Outcome)
			require.Equal(t, rewards.BlameDependency, res.Errors[0].Blame)
			require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
		}
	})
}

func TestASampleFailsWithTheReasonAfterAllItsWaitsTogether(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{Takes: 30 * time.Second}
	_, o := judged(t, e, 1, &tally{})
	o.Loop.UnavailableAfter = 20 * time.Second
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		until := func(stage string) time.Time {
			for range 10_000 {
				if p, n := s.Manager.Pending(1); n == 1 && p[0].Stage == stage {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			return time.Now()
		}
		e.Down(true)
		start := time.Now()
		f := s.submitTo(t, "", "x", 10*time.Minute)
		time.Sleep(12 * time.Second)
		e.Down(false)
		first := until("running").Sub(start)
		require.Less(t, first, 17*time.Second, "a probe")
		time.Sleep(100 * time.Millisecond) // until the engine has the call
		e.Down(true)
		again := until("queued")
		require.Greater(t, again.Sub(start), 40*time.Second)
		res := result(t, f)
		require.Equal(t, rewards.Failed, res.Outcome)
		require.InDelta(t, 20, (first + time.Since(again)).Seconds(), 3)
		require.Equal(t, rewards.Unavailable, res.Errors[0].Class)
		require.Equal(t, rewards.BlameDependency, res.Errors[0].Blame)
		require.Equal(t, "judge", res.Errors[0].Component)
		require.Contains(t, res.Errors[0].Message, "waiting for e")
		require.Contains(t, res.Errors[0].Message, "connection refused")
	})
}

func TestASampleThatExpiresWhileItsEngineIsDownSaysSo(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{}
	first := component(func(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
		if sample.ID == "hung" {
			return hanging(ctx, sample)
		}
		return rewards.Score{Value: 1}, nil
	})
	m := minutes(t, first, rewards.Component{Key: "judge", Weight: 1, Required: true, Scorer: outage.NewLink(e)})
	onStage(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 4}, Profiles: map[string]*rewards.Manager{"": m}}, func(t *testing.T, s *stage) {
		t.Helper()
		hung := s.submitTo(t, "", "hung", 30*time.Second)
		time.Sleep(time.Second)
		e.Down(true)
		s.submitTo(t, "", "y", time.Minute) // shows the worker that the engine is down
		res := result(t, hung)
		require.Equal(t, rewards.OutcomeExpired, res.Outcome, "%v", res.Errors)
		require.Equal(t, rewards.BlameDependency, res.Errors[0].Blame)
		require.Contains(t, res.Errors[0].Message, `the sample was running on worker "w0"; the reward was waiting for e`)
	})
}

func TestByDefaultASampleFailsALittleBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{}
	e.Down(true)
	_, o := judged(t, e, 1, &tally{})
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		start := time.Now()
		res := result(t, s.submitTo(t, "", "x", 2*time.Minute))
		require.Equal(t, rewards.Failed, res.Outcome)
		require.Equal(t, rewards.BlameDependency, res.Errors[0].Blame)
		require.InDelta(t, 115, time.Since(start).Seconds(), 1)
		require.Zero(t, res.Attempts)
	})
}

func TestAProfileThatNobodyServesFailsItsSamplesWithTheReason(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 0, Profiles: profiles(t, component(hashing(0))), Loop: loop.Config{UnavailableAfter: 5 * time.Second}}, func(t *testing.T, s *stage) {
		t.Helper()
		start := time.Now()
		res := result(t, s.submit(t, "_run", rig.Sample("x", 3)))
		require.Equal(t, rewards.Failed, res.Outcome)
		require.Equal(t, rewards.Unavailable, res.Errors[0].Class)
		require.Contains(t, res.Errors[0].Message, `no worker serves the profile "default"`)
		require.InDelta(t, 5, time.Since(start).Seconds(), 1.2)
	})
}

func TestADrainFailsWhatWaitsForADependency(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{}
	e.Down(true)
	_, o := judged(t, e, 1, &tally{})
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		var all []*loop.Future
		for i := range 10 {
			all = append(all, s.submitTo(t, "", fmt.Sprint(i), 10*time.Minute))
		}
		time.Sleep(2 * time.Second)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, s.Manager.Drain(ctx))
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
		for _, f := range all {
			res := result(t, f)
			require.Equal(t, rewards.Failed, res.Outcome)
			require.Equal(t, rewards.BlameDependency, res.Errors[0].Blame)
		}
	})
}

// ranked asks the engine about whole groups.
type ranked struct{ *outage.Link }

func (r ranked) ScoreGroup(ctx context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
	_, err := r.Score(ctx, g.Members[0].Sample)
	return make([]rewards.MemberScore, len(g.Members)), err
}

func TestAGroupThatIsScoredAsAWholeWaitsAsOne(t *testing.T) {
	t.Parallel()
	e := &outage.Engine{}
	read := &tally{f: hashing(100 * time.Millisecond)}
	m := minutes(t, rewards.Component{Key: "read", Weight: 1, Required: true, Scorer: read},
		rewards.Component{Key: "rank", Weight: 1, Required: true, Group: ranked{outage.NewLink(e)}})
	onStage(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 4}, Profiles: map[string]*rewards.Manager{"": m}}, func(t *testing.T, s *stage) {
		t.Helper()
		e.Down(true)
		var all []*loop.Future
		for i := range 4 {
			sample := rig.Sample(fmt.Sprint(i), 3)
			sample.UID, sample.GroupSize = "u", 4
			all = append(all, s.submitFor(t, "_run", sample, 10*time.Minute))
		}
		time.Sleep(time.Minute)
		pending, n := s.Manager.Pending(10)
		for range 10 { // in this very moment it may be what asks the engine whether it is back
			if pending[0].Waits == "waiting for e" {
				break
			}
			time.Sleep(100 * time.Millisecond)
			pending, n = s.Manager.Pending(10)
		}
		require.Equal(t, 4, n)
		for _, p := range pending {
			assert.Equal(t, "waiting_for_group", p.Stage)
			assert.Equal(t, "waiting for e", p.Waits)
		}
		e.Down(false)
		for i, f := range all {
			res := result(t, f)
			require.Equal(t, rewards.Scored, res.Outcome, "%+v", res.Errors)
			require.Equal(t, 1, read.of(fmt.Sprint(i)))
			require.Equal(t, 1, res.Attempts)
		}
	})
}
