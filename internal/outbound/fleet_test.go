package outbound_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// part is an upstream's part of a limit now.
func part(g *outbound.Upstream, limit string) float64 {
	for _, s := range g.Stats().Shares {
		if s.Limit == limit {
			return s.Part
		}
	}
	return -1
}

const (
	rpm    = "requests_per_minute"
	places = "concurrency"
)

// sum is that of several upstreams.
func sum(limit string, all ...*outbound.Upstream) float64 {
	s := 0.0
	for _, g := range all {
		s += part(g, limit)
	}
	return s
}

// load keeps n calls of an upstream under way until the context ends.
func load(ctx context.Context, wg *sync.WaitGroup, g *outbound.Upstream, n int) {
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = g.Do(ctx, &outbound.Call{Tokens: 300})
			}
		})
	}
}

// slow answers after d of the bubble.
func slow(d time.Duration, each func()) tripFunc {
	return func(*http.Request) (*http.Response, error) {
		if each != nil {
			each()
		}
		time.Sleep(d) // Of the bubble.
		return reply(200, ""), nil
	}
}

func TestThreeProcessesTogetherKeepToTheRequestsAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		var mu sync.Mutex
		var at []time.Time
		note := slow(100*time.Millisecond, func() { mu.Lock(); at = append(at, time.Now()); mu.Unlock() })
		cfg := outbound.UpstreamConfig{RPM: 600}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 3 { // They start at the same time, with very different loads.
			_, g := b.start(t, fmt.Sprint("p", i), cfg, note)
			load(ctx, &wg, g, 1+20*i)
		}
		wg.Wait()
		count := func(from, to time.Duration) (n int) {
			for _, x := range at {
				if x := x.Sub(start); x >= from && x < to {
					n++
				}
			}
			return n
		}
		// A tenth of a part for each that came: of an eighth for who knew nobody, of a half
		// and of a third for who had heard of the others. Who has is chance.
		const came = 600/80 + 600/20 + 600/30
		for m := range 5 {
			n := count(time.Duration(m)*time.Minute, time.Duration(m+1)*time.Minute)
			assert.LessOrEqual(t, n, 600+came, "minute %d", m)
			assert.Greater(t, n, 500, "minute %d", m)
		}
		assert.LessOrEqual(t, len(at), 5*600+came)
	})
}

func TestSharesFollowWhatProcessesWantAndSumToTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		cfg := outbound.UpstreamConfig{RPM: 600, Concurrency: 30}
		_, busy := b.start(t, "busy", cfg, slow(time.Second, nil))
		_, idle := b.start(t, "idle", cfg, slow(time.Second, nil))
		_, calm := b.start(t, "calm", cfg, slow(time.Second, nil))
		time.Sleep(10 * time.Second) // Of the bubble.
		for _, g := range []*outbound.Upstream{busy, idle, calm} {
			assert.InDelta(t, 200, part(g, rpm), 1e-6, "nobody wants anything")
			assert.InDelta(t, 10, part(g, places), 0)
			assert.Equal(t, 3, g.Stats().Processes)
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		load(ctx, &wg, busy, 90)
		load(ctx, &wg, calm, 10)
		time.Sleep(time.Minute) // Of the bubble.
		assert.InDelta(t, 600*(0.1/3+0.9*0.9), part(busy, rpm), 40)
		assert.InDelta(t, 600*(0.1/3+0.9*0.1), part(calm, rpm), 40)
		assert.Less(t, part(idle, rpm), 30.0)
		assert.GreaterOrEqual(t, part(idle, rpm), 20.0)
		assert.GreaterOrEqual(t, part(idle, places), 1.0)
		assert.Greater(t, part(busy, places), 20.0)
		assert.InDelta(t, 600, sum(rpm, busy, idle, calm), 30)
		assert.LessOrEqual(t, sum(rpm, busy, idle, calm), 600.001)
		assert.LessOrEqual(t, sum(places, busy, idle, calm), 30.0)
		cancel()
		wg.Wait()
		time.Sleep(2 * time.Minute) // Of the bubble.
		assert.InDelta(t, 200, part(busy, rpm), 10, "it is quiet again")
	})
}

// Workers take as many samples as they have places, so that no call of theirs ever waits.
func TestProcessesThatUseAllTheyMayHaveTheWholeLimitButForOnePlaceOfEachThatIsIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		cfg := outbound.UpstreamConfig{Name: "judge", Concurrency: 33, Attempts: 1}
		var all []*outbound.Upstream
		var cut atomic.Bool // the first is cut off from the endpoint
		for i, name := range []string{"p0", "p1", "p2", "guest"} {
			answers := slow(time.Second, nil)
			_, g := b.start(t, name, cfg, func(r *http.Request) (*http.Response, error) {
				if i == 0 && cut.Load() {
					return nil, errRefused
				}
				return answers(r)
			})
			all = append(all, g)
		}
		time.Sleep(10 * time.Second)
		assert.InDelta(t, 1, part(all[3], places), 0)
		for _, g := range all[:3] {
			assert.InDelta(t, 32./3, part(g, places), 1, "nobody wants anything")
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		use := func(ctx context.Context, g *outbound.Upstream) {
			wg.Go(func() {
				var under atomic.Int64
				for ctx.Err() == nil {
					most := int64(g.Concurrency())
					if g.Dependency().Down {
						most = 1
					}
					for under.Load() < most {
						under.Add(1)
						wg.Go(func() {
							_, _ = g.Do(rewards.Returning(ctx), &outbound.Call{})
							under.Add(-1)
						})
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		use(ctx, all[0])
		time.Sleep(12 * time.Second)
		assert.InDelta(t, 30, part(all[0], places), 0, "all but one place of each other")
		use(ctx, all[1])
		two, leaves := context.WithCancel(ctx)
		use(two, all[2])
		time.Sleep(30 * time.Second)
		assert.InDelta(t, 1, part(all[3], places), 0)
		for _, g := range all[:3] {
			assert.InDelta(t, 32./3, part(g, places), 1)
		}
		assert.InDelta(t, 33, sum(places, all...), 1)
		cut.Store(true)
		time.Sleep(30 * time.Second)
		assert.InDelta(t, 31, part(all[1], places)+part(all[2], places), 1, "one that cannot use its places leaves them to the others")
		cut.Store(false)
		leaves()
		time.Sleep(30 * time.Second)
		assert.InDelta(t, 31, part(all[0], places)+part(all[1], places), 1)
		assert.InDelta(t, part(all[0], places), part(all[1], places), 1)

		wg.Go(func() { load(ctx, &wg, all[3], 50) })
		time.Sleep(20 * time.Second)
		assert.Greater(t, part(all[3], places), 8., "a guest that asks has its part like any other")
	})
}

// Words need up to 1.5 s, a different time to each process, while all of them change
// their minds all the time.
func TestTheSumStaysWithinTheLimitWhateverTheDelays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 1)) // no secret
			var mu sync.Mutex
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return dice.IntN(n) }
			var b bus
			var all []*outbound.Upstream
			inFlight, most := 0, 0
			cfg := outbound.UpstreamConfig{RPM: 1200, TPM: 100_000, Concurrency: 40}
			for i := range 5 {
				_, g := b.startLate(t, fmt.Sprint("p", i), cfg, func(*http.Request) (*http.Response, error) {
					d := time.Duration(roll(4000)) * time.Millisecond
					mu.Lock()
					inFlight++
					most = max(most, inFlight)
					mu.Unlock()
					time.Sleep(d) // Of the bubble.
					mu.Lock()
					inFlight--
					mu.Unlock()
					return reply(200, ""), nil
				}, func() time.Duration { return time.Duration(roll(1500)) * time.Millisecond })
				all = append(all, g)
			}
			time.Sleep(10 * time.Second) // Of the bubble. The membership is stable from here.
			var wg sync.WaitGroup
			defer wg.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			used := map[string]float64{}
			for range 20 {
				inner, stop := context.WithTimeout(ctx, time.Duration(1+roll(20))*time.Second)
				load(inner, &wg, all[roll(len(all))], 1+roll(40))
				for range 50 {
					time.Sleep(100 * time.Millisecond) // Of the bubble.
					for limit, whole := range map[string]float64{rpm: 1200, "tokens_per_minute": 100_000, places: 40} {
						require.LessOrEqual(t, sum(limit, all...), whole*1.000001, "%s", limit)
						used[limit] += sum(limit, all...) / whole
					}
				}
				_ = stop // It has a time-out, and ends with ctx.
			}
			cancel()
			wg.Wait()
			assert.LessOrEqual(t, most, 40, "requests in flight")
			for limit, n := range used {
				t.Logf("%s: %.0f %% of the limit were somebody's share", limit, n/10)
				assert.Greater(t, n/10, 50.0, "%s", limit)
			}
		})
	}
}

func TestANewcomerStartsAtOnceAndGetsItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		cfg := outbound.UpstreamConfig{RPM: 600, TPM: 60_000, Concurrency: 8}
		_, old := b.start(t, "old", cfg, slow(time.Second, nil))
		time.Sleep(5 * time.Second) // Of the bubble.
		assert.InDelta(t, 600, part(old, rpm), 1e-6, "alone in its fleet")
		_, young := b.start(t, "young", cfg, slow(0, nil))
		start := time.Now()
		for range 3 {
			_, err := young.Do(t.Context(), &outbound.Call{Tokens: 100})
			require.NoError(t, err)
		}
		assert.Zero(t, time.Since(start))
		assert.InDelta(t, 30, part(young, rpm), 1e-6, "a tenth of its half")
		synctest.Wait()
		assert.Less(t, part(old, rpm), 600.0, "the others make room when they hear of it")
		time.Sleep(4 * time.Second) // Of the bubble.
		assert.Greater(t, part(young, rpm), 200.0)
		assert.InDelta(t, 4, part(young, places), 0, "its half, for nobody wants more than that")
	})
}

// A full bucket of 600 is there for its owner when another process comes; it is not
// there twice when both have half of the limit.
func TestWhatIsSavedUpIsNeitherLostNorDoubled(t *testing.T) {
	t.Parallel()
	for after, c := range map[time.Duration]struct{ old, both int }{
		time.Second:     {old: 500, both: 640},
		2 * time.Minute: {old: 290, both: 610},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b bus
			var a, z counter
			cfg := outbound.UpstreamConfig{RPM: 600, Concurrency: 4000}
			_, old := b.start(t, "old", cfg, slow(0, func() { a.next() }))
			time.Sleep(2 * time.Minute) // Of the bubble.
			_, young := b.start(t, "young", cfg, slow(0, func() { z.next() }))
			time.Sleep(after) // Of the bubble.
			var wg sync.WaitGroup
			defer wg.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			load(ctx, &wg, old, 1)
			load(ctx, &wg, young, 1)
			synctest.Wait()
			assert.GreaterOrEqual(t, a.count(), c.old, after)
			assert.LessOrEqual(t, a.count()+z.count(), c.both, after)
			time.Sleep(time.Minute) // Of the bubble.
			assert.LessOrEqual(t, a.count()+z.count(), 1200+10, after)
		})
	}
}

func TestAShareThatIsLeftGoesToTheOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave  func(p *process)
		within time.Duration
	}{
		"with a word":    {func(p *process) { p.tr.Close() }, 5 * time.Second},
		"without a word": {func(p *process) { p.kill() }, 10 * time.Second},
		"stopped":        {func(p *process) { p.set(false, true) }, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b bus
			cfg := outbound.UpstreamConfig{RPM: 600}
			_, a := b.start(t, "a", cfg, slow(0, nil))
			_, c1 := b.start(t, "b", cfg, slow(0, nil))
			gone, g := b.start(t, "c", cfg, slow(0, nil))
			time.Sleep(10 * time.Second) // Of the bubble.
			require.InDelta(t, 200, part(a, rpm), 1e-6)
			c.leave(gone)
			time.Sleep(c.within) // Of the bubble.
			assert.InDelta(t, 300, part(a, rpm), 1e-6, name)
			assert.InDelta(t, 300, part(c1, rpm), 1e-6, name)
			if name == "stopped" { // When it goes on it knows at once that it knows nothing.
				assert.True(t, g.Stats().Partitioned)
				assert.InDelta(t, 200, part(g, rpm), 1e-6)
				gone.set(false, false)
				time.Sleep(10 * time.Second) // Of the bubble.
				assert.InDelta(t, 600, sum(rpm, a, c1, g), 1e-6)
				assert.InDelta(t, 200, part(g, rpm), 1e-6)
				assert.False(t, g.Stats().Partitioned)
			}
		})
	}
}

func TestWithoutTheBusEachHasItsPartOfThoseLastKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		cfg := outbound.UpstreamConfig{RPM: 600, Concurrency: 10}
		var all []*outbound.Upstream
		var procs []*process
		for i := range 3 {
			p, g := b.start(t, fmt.Sprint("p", i), cfg, slow(time.Second, nil))
			all, procs = append(all, g), append(procs, p)
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		load(ctx, &wg, all[0], 50)
		time.Sleep(20 * time.Second) // Of the bubble.
		require.Greater(t, part(all[0], rpm), 450.0)
		for _, p := range procs {
			p.set(true, false)
		}
		for range 200 {
			time.Sleep(100 * time.Millisecond) // Of the bubble.
			require.LessOrEqual(t, sum(rpm, all...), 600.001, "not while they find out either")
		}
		for _, g := range all {
			assert.True(t, g.Stats().Partitioned)
			assert.InDelta(t, 200, part(g, rpm), 1e-6)
			assert.InDelta(t, 3, part(g, places), 0)
		}
		cancel()
		wg.Wait()
	})
}

func TestOneThatNeverHeardTheOthersHasAnEighth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		p, g := b.start(t, "p", outbound.UpstreamConfig{RPM: 800}, slow(0, nil))
		p.set(true, false)
		time.Sleep(time.Minute) // Of the bubble.
		assert.True(t, g.Stats().Partitioned)
		assert.InDelta(t, 100, part(g, rpm), 1e-6)
	})
}

func TestUpstreamsWithOtherLimitsDoNotMix(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		_, x := b.start(t, "x", outbound.UpstreamConfig{Name: "judge", RPM: 600}, slow(0, nil))
		_, y := b.start(t, "y", outbound.UpstreamConfig{Name: "judge", RPM: 500}, slow(0, nil))
		_, z := b.start(t, "z", outbound.UpstreamConfig{Name: "judge", RPM: 600, URLs: []string{"http://other"}}, slow(0, nil))
		time.Sleep(10 * time.Second) // Of the bubble.
		assert.InDelta(t, 600, part(x, rpm), 1e-6)
		assert.InDelta(t, 500, part(y, rpm), 1e-6)
		assert.InDelta(t, 600, part(z, rpm), 1e-6)
	})
}

// recorder is a fleet that only notes what would be said.
type recorder struct {
	mu        sync.Mutex
	upstreams map[string]outbound.Member
}

func (r *recorder) Self() string { return "me" }
func (r *recorder) Urge()        {}

func (r *recorder) Join(upstream string, m outbound.Member) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upstreams[upstream] = m
	return func() {}
}

func TestNoPartOfAURLThatIsSecretIsSaid(t *testing.T) {
	t.Parallel()
	key := func(urls ...string) (key, endpoint string) {
		r := &recorder{upstreams: map[string]outbound.Member{}}
		tr := outbound.NewTestTransport(tripFunc(func(*http.Request) (*http.Response, error) { return nil, errRefused }))
		g, err := tr.Upstream(outbound.UpstreamConfig{URLs: urls, Attempts: 1, BreakAfter: 1})
		require.NoError(t, err)
		tr.Join(r, false)
		_, err = g.Do(t.Context(), &outbound.Call{})
		require.Error(t, err)
		for k, m := range r.upstreams {
			return k, m.Report().Open[0].Endpoint
		}
		return "", ""
	}
	plain, endpoint := key("http://host/v1")
	secret, same := key("http://user:password@host:80/v1/?key=secret")
	assert.Equal(t, endpoint, same, "a digest of scheme, host, port and path")
	assert.NotContains(t, secret, "password")
	assert.NotContains(t, secret, "secret")
	assert.NotEqual(t, plain[len("host@"):], endpoint)
	_, other := key("https://host/v1")
	assert.NotEqual(t, endpoint, other)

	r := &recorder{upstreams: map[string]outbound.Member{}}
	tr := outbound.NewTestTransport(slow(0, nil))
	tr.Join(r, false)
	for _, user := range []string{"a", "b"} {
		_, err := tr.Upstream(outbound.UpstreamConfig{URLs: []string{"http://" + user + ":x@host"}})
		require.NoError(t, err)
	}
	assert.Len(t, r.upstreams, 2, "the same endpoint with two users is two upstreams")
}
