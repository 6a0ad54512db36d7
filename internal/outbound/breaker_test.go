package outbound_test

import (
	"context"
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

// outage is a network that fails until it is over, and notes when it was asked.
type outage struct {
	over  time.Duration
	start time.Time

	mu    sync.Mutex
	asked []time.Duration
}

func (o *outage) trip(*http.Request) (*http.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := time.Since(o.start)
	o.asked = append(o.asked, at)
	if at < o.over {
		return nil, errRefused
	}
	return reply(200, ""), nil
}

func TestABreakerOpensProbesWithOneAndCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{over: 14 * time.Second, start: time.Now()}
		g := fake(t, outbound.UpstreamConfig{Attempts: 1, BreakMax: 4 * time.Second}, o.trip)
		for range 5 {
			_, err := ask(t, g)
			require.ErrorIs(t, err, rewards.Unavailable)
		}
		s := g.Stats().Endpoints[0]
		assert.Equal(t, outbound.Open, s.Breaker)
		assert.Equal(t, 5, s.FailuresInRow)
		assert.Equal(t, time.Now().Add(time.Second), s.NextProbe)

		var wg sync.WaitGroup
		var failed counter
		for range 50 {
			wg.Go(func() {
				if _, err := ask(t, g); err != nil {
					failed.next()
				}
			})
		}
		synctest.Wait()
		assert.Equal(t, 50, g.Stats().Waiting)
		wg.Wait()
		// Probes after 1, 2, 4, 4 and 4 s; that at 15 s found the endpoint well.
		probes := []float64{1, 3, 7, 11}
		require.Len(t, o.asked, 5+len(probes)+1+50-len(probes)-1)
		for i, at := range probes {
			assert.InDelta(t, at, o.asked[5+i].Seconds(), 0)
		}
		for _, at := range o.asked[9:] {
			assert.Equal(t, 15*time.Second, at)
		}
		assert.Equal(t, len(probes), failed.count(), "only those who probed")
		s = g.Stats().Endpoints[0]
		assert.Equal(t, outbound.Closed, s.Breaker)
		assert.Zero(t, s.FailuresInRow)
		assert.Zero(t, g.Stats().Waiting)
	})
}

func TestTheProbeIsOneWhileItIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var asked counter
		g := fake(t, outbound.UpstreamConfig{Attempts: 1, BreakAfter: 1}, func(*http.Request) (*http.Response, error) {
			if asked.next() == 1 {
				return nil, errRefused
			}
			<-release
			return reply(200, ""), nil
		})
		_, err := ask(t, g)
		require.Error(t, err)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := ask(t, g)
				assert.NoError(t, err)
			})
		}
		time.Sleep(30 * time.Second) // Of the bubble.
		assert.Equal(t, 2, asked.count())
		assert.Equal(t, outbound.HalfOpen, g.Stats().Endpoints[0].Breaker)
		assert.Equal(t, 1, g.Stats().Endpoints[0].InFlight)
		close(release)
		wg.Wait()
		assert.Equal(t, 21, asked.count())
	})
}

func TestAProbeWhoseCallerLeavesIsHandedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		trip := afterwards(
			func(*http.Request) (*http.Response, error) { return nil, errRefused },
			afterwards(
				func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
				func(*http.Request) (*http.Response, error) { return reply(200, ""), nil }))
		g := fake(t, outbound.UpstreamConfig{Attempts: 1, BreakAfter: 1}, trip)
		_, err := ask(t, g)
		require.Error(t, err)
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := g.Do(ctx, &outbound.Call{})
			assert.ErrorIs(t, err, rewards.Cancelled)
		})
		time.Sleep(2 * time.Second) // Of the bubble.
		wg.Go(func() {
			_, err := ask(t, g)
			assert.NoError(t, err)
		})
		synctest.Wait()
		leave()
		wg.Wait()
		assert.Equal(t, outbound.Closed, g.Stats().Endpoints[0].Breaker)
	})
}

func TestWhenTheProbeComesTooLateTheCallFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a", "http://b"}, Attempts: 1, BreakAfter: 1, BreakMin: 20 * time.Second},
			func(*http.Request) (*http.Response, error) { return nil, errRefused })
		for range 2 {
			_, err := ask(t, g)
			require.Error(t, err)
		}
		start := time.Now()
		_, err := g.Do(in(t, 10*time.Second), &outbound.Call{})
		assert.Zero(t, time.Since(start))
		require.ErrorIs(t, err, rewards.Unavailable)
		require.ErrorContains(t, err, "all 2 endpoints are out of service and the next probe, in 20s, comes after the call's deadline: http://")
		require.ErrorContains(t, err, "connection refused")
	})
}

func TestAProbeGoesToACallThatCanStillGoElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a", "http://b"}, BreakAfter: 1, BreakMax: time.Second}, func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Host)
			if r.URL.Host == "a" {
				return nil, errRefused
			}
			return reply(200, ""), nil
		})
		start := time.Now()
		for range 200 {
			_, err := ask(t, g)
			require.NoError(t, err, "there is always b")
			time.Sleep(100 * time.Millisecond) // Of the bubble.
		}
		a := 0
		for _, host := range asked {
			if host == "a" {
				a++
			}
		}
		assert.Greater(t, a, 10)
		assert.LessOrEqual(t, a, 1+int(time.Since(start)/time.Second), "a probe a second at most")
	})
}

func TestARetryIsNoProbeWhileAnotherEndpointIsInService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := false
		g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a", "http://b"}, BreakAfter: 2, BreakMin: 10 * time.Second, Attempts: 2}, func(r *http.Request) (*http.Response, error) {
			switch {
			case r.URL.Host == "a":
				return nil, errRefused
			case busy:
				busy = false
				return reply(503, "", "Retry-After: 1"), nil
			}
			return reply(200, ""), nil
		})
		for g.Stats().Endpoints[0].Breaker != outbound.Open {
			_, err := ask(t, g)
			require.NoError(t, err)
		}
		time.Sleep(time.Until(g.Stats().Endpoints[0].NextProbe) - 500*time.Millisecond) // Of the bubble.
		busy = true
		before := g.Stats().Endpoints
		answer, err := ask(t, g)
		require.NoError(t, err)
		assert.Equal(t, "http://b", answer.Endpoint)
		after := g.Stats().Endpoints
		assert.Equal(t, before[0].Requests, after[0].Requests)
		assert.False(t, time.Now().Before(after[0].NextProbe), "although it was due")
	})
}

func TestAnAnswerOfAnyKindKeepsTheBreakerClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{200, 400, 401, 404, 422, 429} {
			g := fake(t, outbound.UpstreamConfig{BreakAfter: 2, Attempts: 1}, func(*http.Request) (*http.Response, error) { return reply(status, ""), nil })
			for range 10 {
				_, _ = ask(t, g)
			}
			assert.Equal(t, outbound.Closed, g.Stats().Endpoints[0].Breaker, status)
		}
		for _, status := range []int{500, 501, 503, 302} {
			g := fake(t, outbound.UpstreamConfig{BreakAfter: 2, Attempts: 1}, func(*http.Request) (*http.Response, error) { return reply(status, ""), nil })
			for range 2 {
				_, _ = g.Do(t.Context(), &outbound.Call{Statuses: func(s int) bool { return s == 500 }})
			}
			assert.Equal(t, outbound.Open, g.Stats().Endpoints[0].Breaker, status)
		}
	})
}

func TestOneRequestThatAnEndpointChokesOnDoesNotTakeItFromTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		status := 500
		g := fake(t, outbound.UpstreamConfig{BreakAfter: 3, Attempts: 1}, func(*http.Request) (*http.Response, error) { return reply(status, ""), nil })
		send := func(body string) {
			_, err := g.Do(t.Context(), &outbound.Call{Body: []byte(body)})
			require.ErrorIs(t, err, rewards.Unavailable)
		}
		for range 20 { // as when the loop tries its sample anew
			send("bad")
			send("bad too")
		}
		assert.Equal(t, outbound.Closed, g.Stats().Endpoints[0].Breaker)
		assert.Equal(t, 2, g.Stats().Endpoints[0].FailuresInRow)
		send("another")
		assert.Equal(t, outbound.Open, g.Stats().Endpoints[0].Breaker, "three requests failed")

		status = 503
		g = fake(t, outbound.UpstreamConfig{BreakAfter: 3, Attempts: 1}, func(*http.Request) (*http.Response, error) { return reply(status, ""), nil })
		for range 3 {
			send("bad")
		}
		assert.Equal(t, outbound.Open, g.Stats().Endpoints[0].Breaker, "a 503 is about the server")
	})
}

func TestAnEndpointThatHangsOpensItsBreakerForImpatientCallersToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{BreakAfter: 3}, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		for range 10 { // Too short to blame the endpoint.
			_, err := g.Do(in(t, 9*time.Second), &outbound.Call{})
			require.ErrorIs(t, err, rewards.Timeout)
		}
		assert.Equal(t, outbound.Closed, g.Stats().Endpoints[0].Breaker)
		for range 3 {
			_, err := g.Do(in(t, 11*time.Second), &outbound.Call{})
			require.ErrorIs(t, err, rewards.Timeout)
		}
		assert.Equal(t, outbound.Open, g.Stats().Endpoints[0].Breaker)
	})
}

func TestWhatWasSentBeforeTheBreakerOpenedDoesNotMoveIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := make(chan int)
		var asked counter
		g := fake(t, outbound.UpstreamConfig{BreakAfter: 2, Attempts: 1}, func(*http.Request) (*http.Response, error) {
			if asked.next() <= 2 {
				return reply(<-late, ""), nil
			}
			return nil, errRefused
		})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = ask(t, g) })
			synctest.Wait()
		}
		for range 2 {
			_, _ = ask(t, g)
		}
		before := g.Stats().Endpoints[0]
		require.Equal(t, outbound.Open, before.Breaker)
		late <- 200
		late <- 503
		wg.Wait()
		after := g.Stats().Endpoints[0]
		assert.Equal(t, outbound.Open, after.Breaker)
		assert.Equal(t, before.NextProbe, after.NextProbe)
	})
}
