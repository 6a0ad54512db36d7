package outbound_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// owner is a process, its upstream, and its way to the endpoint.
type owner struct {
	*process
	g *outbound.Upstream

	mu     sync.Mutex
	start  time.Time
	broken bool // Its own network.
	asked  []time.Duration
}

// crowd starts processes that share an endpoint, which answers from alive on.
func crowd(t *testing.T, n int, cfg outbound.UpstreamConfig, alive time.Duration) []*owner {
	t.Helper()
	var b bus
	all := make([]*owner, n)
	cfg.Attempts = 1
	for i := range all {
		m := &owner{start: time.Now()}
		m.process, m.g = b.start(t, fmt.Sprint("p", i), cfg, func(*http.Request) (*http.Response, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			at := time.Since(m.start)
			m.asked = append(m.asked, at)
			if m.broken || at < alive {
				return nil, errRefused
			}
			return reply(200, ""), nil
		})
		all[i] = m
	}
	synctest.Wait() // All have heard of all.
	return all
}

func (m *owner) times() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]time.Duration(nil), m.asked...)
}

// fail sends calls until the breaker opens.
func (m *owner) fail(t *testing.T) {
	t.Helper()
	for m.state().Breaker == outbound.Closed {
		_, err := ask(t, m.g)
		require.Error(t, err)
	}
	synctest.Wait()
}

func (m *owner) state() outbound.EndpointStats { return m.g.Stats().Endpoints[0] }

// steady sends a call after the other, a tenth of a second apart, until ctx ends.
func (m *owner) steady(ctx context.Context, wg *sync.WaitGroup, apart time.Duration) {
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = m.g.Do(ctx, &outbound.Call{})
			time.Sleep(apart) // Of the bubble.
		}
	})
}

func TestABreakerThatOneOpenedIsOpenForAllUntilItsProbeSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := crowd(t, 4, outbound.UpstreamConfig{BreakMax: 30 * time.Second}, 6*time.Second)
		all[0].fail(t)
		for _, m := range all[1:] {
			s := m.state()
			assert.Equal(t, outbound.Open, s.Breaker)
			assert.True(t, s.Told)
			assert.Greater(t, time.Until(s.NextProbe), time.Second, "after the first one's probe")
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, m := range all {
			m.steady(ctx, &wg, 100*time.Millisecond)
		}
		time.Sleep(10 * time.Second) // Of the bubble.
		first := all[0].times()
		require.Greater(t, len(first), 8)
		for i, want := range []float64{0, 0, 0, 0, 0, 1, 3, 7} { // Probes after 1, 2 and 4 s.
			assert.InDelta(t, want, first[i].Seconds(), 0.2)
		}
		for _, m := range all[1:] {
			require.NotEmpty(t, m.times())
			assert.InDelta(t, first[7].Seconds(), m.times()[0].Seconds(), 0.1, "they go on when the probe has succeeded")
			assert.Equal(t, outbound.Closed, m.state().Breaker)
		}
	})
}

func TestADeadEndpointIsProbedByOneOrTwoNotByAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg         outbound.UpstreamConfig
		least, most int // probes in 15 minutes
	}{
		"with pauses up to 30 s": {outbound.UpstreamConfig{BreakMax: 30 * time.Second}, 15 * 60 / 60, 2 * 15 * 60 / 30}, // alone each would have sent 30, all together 240
		"by default":             {outbound.UpstreamConfig{}, 15 * 60 / 2, 2 * 15 * 60},                                 // all together 7,200
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			probedByFew(t, c.cfg, c.least, c.most)
		})
	}
}

func probedByFew(t *testing.T, cfg outbound.UpstreamConfig, least, most int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := crowd(t, 8, cfg, time.Hour)
		all[0].fail(t)
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, m := range all {
			m.steady(ctx, &wg, time.Second)
		}
		time.Sleep(20 * time.Minute) // Of the bubble.
		probes, who := 0, 0
		for _, m := range all {
			n := 0
			for _, at := range m.times() {
				if at > 5*time.Minute {
					n++
				}
			}
			probes += n
			if n > 0 {
				who++
			}
			assert.NotEqual(t, outbound.Closed, m.state().Breaker)
		}
		t.Logf("%d probes of %d processes in 15 minutes", probes, who)
		assert.GreaterOrEqual(t, probes, least)
		assert.LessOrEqual(t, probes, most)
	})
}

func TestOneBrokenProcessDoesNotTakeAnEndpointFromThoseItAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := crowd(t, 3, outbound.UpstreamConfig{BreakMax: 4 * time.Second}, 0)
		all[0].broken = true
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all[1].steady(ctx, &wg, 100*time.Millisecond)
		time.Sleep(time.Second) // Of the bubble.
		all[0].steady(ctx, &wg, 100*time.Millisecond)
		for range 300 {
			time.Sleep(100 * time.Millisecond) // Of the bubble.
			require.Equal(t, outbound.Closed, all[1].state().Breaker)
		}
		assert.NotEqual(t, outbound.Closed, all[0].state().Breaker)
		assert.Equal(t, outbound.Closed, all[2].state().Breaker, "it is idle, and has heard of both")
		assert.Greater(t, len(all[1].times()), 290)
		before := time.Now()
		_, err := ask(t, all[2].g)
		require.NoError(t, err)
		assert.Zero(t, time.Since(before))
	})
}

func TestOneBrokenProcessTakesAnEndpointFromIdleOnesForAWhileOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := crowd(t, 3, outbound.UpstreamConfig{BreakMax: 4 * time.Second}, 0)
		all[0].broken = true
		all[0].fail(t)
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all[0].steady(ctx, &wg, 100*time.Millisecond)
		before := time.Now()
		_, err := ask(t, all[1].g)
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(before), 4*time.Second*5/2, "two and a half times the longest pause")
		synctest.Wait()
		assert.Equal(t, outbound.Closed, all[2].state().Breaker, "the second opinion counts for all who have none")
		for range 600 { // However long the first one goes on.
			time.Sleep(100 * time.Millisecond) // Of the bubble.
			require.Equal(t, outbound.Closed, all[1].state().Breaker)
			require.Equal(t, outbound.Closed, all[2].state().Breaker)
		}
		// It counts again for the next trouble.
		all[0].mu.Lock()
		all[0].broken = false
		all[0].mu.Unlock()
		time.Sleep(20 * time.Second) // Of the bubble.
		require.Equal(t, outbound.Closed, all[0].state().Breaker)
		all[0].mu.Lock()
		all[0].broken = true
		all[0].mu.Unlock()
		time.Sleep(2 * time.Second) // Of the bubble.
		assert.True(t, all[1].state().Told)
	})
}

func TestWhenTheOneWhoProbesIsGoneAnotherDoes(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(m *owner){
		"with a word":    func(m *owner) { m.tr.Close() },
		"without a word": func(m *owner) { m.kill() },
		"nobody calls":   func(*owner) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := crowd(t, 2, outbound.UpstreamConfig{BreakMin: 4 * time.Second}, time.Second)
			all[0].fail(t)
			leave(all[0])
			before := time.Now()
			_, err := ask(t, all[1].g)
			require.NoError(t, err)
			assert.InDelta(t, 8.5, time.Since(before).Seconds(), 0.6, name)
			time.Sleep(2 * time.Second) // Of the bubble.
			if name == "nobody calls" {
				assert.Equal(t, outbound.Open, all[0].state().Breaker, "its own finding it checks itself")
				_, err = ask(t, all[0].g)
				require.NoError(t, err)
			}
		})
	}
}

func TestAFailureBesidesTheWordOfAnotherIsEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := crowd(t, 2, outbound.UpstreamConfig{}, 0)
		_, err := ask(t, all[1].g) // It has just been answered.
		require.NoError(t, err)
		for _, m := range all {
			m.broken = true
		}
		all[0].fail(t)
		require.Equal(t, outbound.Closed, all[1].state().Breaker)
		_, err = ask(t, all[1].g)
		require.Error(t, err)
		assert.Equal(t, outbound.Open, all[1].state().Breaker)
		assert.False(t, all[1].state().Told)
	})
}

func TestTheClosingOfOneHasThoseProbeAtOnceWhoFoundOutThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := crowd(t, 2, outbound.UpstreamConfig{BreakMin: 20 * time.Second}, 0)
		_, err := ask(t, all[1].g)
		require.NoError(t, err)
		all[0].broken, all[1].broken = true, true
		all[0].fail(t)
		time.Sleep(2 * time.Second) // Of the bubble.
		all[1].fail(t)
		all[0].broken, all[1].broken = false, false
		assert.False(t, all[0].state().Told)
		assert.False(t, all[1].state().Told)
		assert.Greater(t, time.Until(all[0].state().NextProbe), 30*time.Second, "it leaves the probe to the one that failed last")
		before := time.Now()
		var wg sync.WaitGroup
		for _, m := range all {
			wg.Go(func() {
				_, err := ask(t, m.g)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.InDelta(t, 20, time.Since(before).Seconds(), 0.1)
	})
}

func TestACallThatCannotWaitSaysWhenTheOtherProcessProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := crowd(t, 2, outbound.UpstreamConfig{BreakMin: 20 * time.Second}, 10*time.Second)
		all[0].fail(t)
		time.Sleep(5 * time.Second) // Of the bubble.
		before := time.Now()
		_, err := all[1].g.Do(in(t, time.Second), &outbound.Call{})
		assert.Zero(t, time.Since(before))
		require.ErrorContains(t, err, "the next probe, in 15s")
		require.ErrorContains(t, err, "http://a: another process found it out of service")
		_, err = all[1].g.Do(in(t, 30*time.Second), &outbound.Call{})
		require.ErrorIs(t, err, rewards.Timeout, "nobody probed")
	})
}

func TestNonsenseFromAnotherProcessDoesNoHarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := crowd(t, 2, outbound.UpstreamConfig{RPM: 600}, 0)
		time.Sleep(10 * time.Second) // Of the bubble.
		all[0].failOnce(t)
		digest := all[0].member.Report().Open[0].Endpoint
		m := all[1].member
		for i, o := range []outbound.Opening{
			{Endpoint: digest, Failed: 1 << 62, Due: 1 << 62, Pause: 1 << 62},
			{Endpoint: digest, Failed: -1, Due: -1 << 62, Pause: -1 << 62},
			{Endpoint: digest, Probing: true, Pause: 1 << 40},
		} {
			m.Heard(fmt.Sprint("stranger", i), &outbound.Report{Seq: 1 << 63, Requests: -1e300, Tokens: 1e300, Used: -5, Open: []outbound.Opening{o}})
		}
		assert.Greater(t, part(all[1].g, rpm), 60.0)
		before := time.Now()
		_, err := ask(t, all[1].g)
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(before), 2*30*time.Second*5/4)
	})
}

// failOnce is fail by a network that is broken for that long.
func (m *owner) failOnce(t *testing.T) {
	t.Helper()
	m.broken = true
	m.fail(t)
	m.broken = false
}
