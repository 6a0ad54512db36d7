package outbound_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

var errRefused = errors.New("connection refused")

func TestThePauseIsARandomPartOfABoundThatDoubles(t *testing.T) {
	t.Parallel()
	for n, bound := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 64: 30 * time.Second, 1000: 30 * time.Second,
	} {
		var sum time.Duration
		for range 2000 {
			d := outbound.Backoff(n, time.Second, 30*time.Second)
			require.GreaterOrEqual(t, d, time.Duration(0))
			require.Less(t, d, bound)
			sum += d
		}
		assert.InDelta(t, 0.5, float64(sum/2000)/float64(bound), 0.05, "all of it is random")
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers   []string
		low, high time.Duration
	}{
		"seconds":             {[]string{"Retry-After: 7"}, 7 * time.Second, 7500 * time.Millisecond},
		"a fraction":          {[]string{"Retry-After: 0.25"}, 250 * time.Millisecond, 750 * time.Millisecond},
		"none":                {nil, 0, 500 * time.Millisecond},
		"nonsense":            {[]string{"Retry-After: soon"}, 0, 500 * time.Millisecond},
		"a date":              {[]string{"Retry-After: Sat, 01 Jan 2000 00:00:09 GMT"}, 9 * time.Second, 9500 * time.Millisecond},
		"a date of its clock": {[]string{"Retry-After: Sat, 01 Jan 2022 00:00:09 GMT", "Date: Sat, 01 Jan 2022 00:00:05 GMT"}, 4 * time.Second, 4500 * time.Millisecond},
		"a date that passed":  {[]string{"Retry-After: Fri, 31 Dec 1999 00:00:00 GMT"}, 0, 500 * time.Millisecond},
		"more than the bound": {[]string{"Retry-After: 86400"}, 30 * time.Second, 30500 * time.Millisecond},
	} {
		for _, status := range []int{429, 503} {
			synctest.Test(t, func(t *testing.T) {
				var asked counter
				g := fake(t, outbound.UpstreamConfig{}, func(*http.Request) (*http.Response, error) {
					if asked.next() == 1 {
						return reply(status, "", c.headers...), nil
					}
					return reply(200, ""), nil
				})
				start := time.Now()
				_, err := ask(t, g)
				require.NoError(t, err, name)
				assert.GreaterOrEqual(t, time.Since(start), c.low, name)
				assert.Less(t, time.Since(start), c.high, name)
			})
		}
	}
}

func TestRetryAfterDoesNotHoldUpACallThatHasAnotherEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosts := map[string]int{}
		g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a", "http://b"}}, func(r *http.Request) (*http.Response, error) {
			hosts[r.URL.Host]++
			if r.URL.Host == "a" {
				return reply(429, "", "Retry-After: 20"), nil
			}
			return reply(200, ""), nil
		})
		start := time.Now()
		for range 100 {
			_, err := ask(t, g)
			require.NoError(t, err)
		}
		assert.Less(t, time.Since(start), time.Second)
		assert.LessOrEqual(t, hosts["a"], 1, "it asked to be left alone")
	})
}

func TestNobodySleepsBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{}, func(*http.Request) (*http.Response, error) {
			return reply(503, "loading", "Retry-After: 10"), nil
		})
		start := time.Now()
		_, err := g.Do(in(t, 9*time.Second), &outbound.Call{})
		assert.Zero(t, time.Since(start))
		require.ErrorIs(t, err, rewards.Unavailable)
		require.ErrorContains(t, err, "503 Service Unavailable: loading; no time for another attempt, which would be in 10")
	})
}

func TestAnAttemptThatHangsIsGivenUpAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{}, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		start := time.Now()
		_, err := ask(t, g)
		require.ErrorIs(t, err, rewards.Timeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "http://a did not answer within 2m0s (attempt 3 of 3)")
		assert.InDelta(t, 360, time.Since(start).Seconds(), 1.5)
		assert.EqualValues(t, 3, g.Stats().Endpoints[0].Failures[rewards.Timeout])
	})
}

func TestARetryGoesToAnotherEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			var hosts []string
			g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a", "http://b", "http://c"}}, func(r *http.Request) (*http.Response, error) {
				hosts = append(hosts, r.URL.Host)
				return nil, errRefused
			})
			_, err := ask(t, g)
			require.ErrorIs(t, err, errRefused)
			assert.ElementsMatch(t, []string{"a", "b", "c"}, hosts)
		}
	})
}

func TestAnOutageIsNotMultiplied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked counter
		g := fake(t, outbound.UpstreamConfig{BreakAfter: 1 << 30, Attempts: 10}, func(*http.Request) (*http.Response, error) {
			asked.next()
			return nil, errRefused
		})
		var wg sync.WaitGroup
		denied := counter{}
		for range 1000 {
			wg.Go(func() {
				_, err := ask(t, g)
				if rewards.ClassOf(err) == rewards.Unavailable && errors.Is(err, errRefused) && strings.Contains(err.Error(), "a fifth of the calls") {
					denied.next()
				}
			})
		}
		wg.Wait()
		// A fifth of 1,000, the floor of 10, and what came back of it in a few seconds.
		assert.GreaterOrEqual(t, asked.count(), 1200)
		assert.LessOrEqual(t, asked.count(), 1212)
		assert.Equal(t, 1000, denied.count())
		assert.EqualValues(t, 1000, g.Stats().RetriesDenied)
	})
}

func TestTheFloorOfTheBudgetComesBackWithinAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked counter
		g := fake(t, outbound.UpstreamConfig{BreakAfter: 1 << 30, Attempts: 2}, func(*http.Request) (*http.Response, error) {
			asked.next()
			return nil, errRefused
		})
		for range 100 {
			_, err := g.Do(in(t, 100*time.Second), &outbound.Call{})
			require.Error(t, err)
		}
		spent := asked.count()
		assert.Less(t, spent, 140)
		time.Sleep(time.Minute) // Of the bubble.
		for range 10 {
			_, err := ask(t, g)
			require.Error(t, err)
		}
		assert.Equal(t, spent+20, asked.count())
	})
}

func TestTheEndOfTheContextEndsEveryWait(t *testing.T) {
	t.Parallel()
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	fail := func(*http.Request) (*http.Response, error) { return reply(503, "", "Retry-After: 20"), nil }
	ok := func(*http.Request) (*http.Response, error) { return reply(200, ""), nil }
	for name, c := range map[string]struct {
		cfg  outbound.UpstreamConfig
		trip tripFunc
		// before brings the upstream to where the call waits.
		before int
		says   string
	}{
		"for an answer":   {outbound.UpstreamConfig{}, hang, 0, "while http://a worked on it for 5s"},
		"for a turn":      {outbound.UpstreamConfig{Concurrency: 1}, hang, 1, "while the call waited while 1 other calls were under way"},
		"for requests":    {outbound.UpstreamConfig{RPM: 2}, ok, 2, "while the call waited for the rate limit (2 requests a minute)"},
		"for tokens":      {outbound.UpstreamConfig{TPM: 100}, ok, 2, "while the call waited for the rate limit (100 tokens a minute)"},
		"for the retry":   {outbound.UpstreamConfig{}, fail, 0, "while the call waited for another attempt; before that http://a answered 503"},
		"for a probe":     {outbound.UpstreamConfig{BreakAfter: 1, BreakMin: 20 * time.Second, Attempts: 1}, fail, 1, "while all endpoints were out of service: http://a answered 503"},
		"for the prober":  {outbound.UpstreamConfig{BreakAfter: 1, BreakMin: time.Second, Attempts: 1}, afterwards(fail, hang), 2, "while all endpoints were out of service: http://a answered 503"},
		"before anything": {outbound.UpstreamConfig{}, ok, 0, "no request was sent yet"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := fake(t, c.cfg, c.trip)
			others, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range c.before {
				wg.Go(func() { _, _ = g.Do(others, &outbound.Call{Tokens: 50}) })
				time.Sleep(2 * time.Second) // Of the bubble.
			}
			for _, cancelled := range []bool{false, true} {
				ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Second)
				class, text := rewards.Cancelled, "cancelled "
				time.AfterFunc(5*time.Second, cancel)
				if !cancelled {
					if name == "for the retry" || name == "for a probe" {
						continue // A deadline is foreseen: other tests.
					}
					ctx, cancel = context.WithTimeout(ctx, 4999*time.Millisecond)
					class, text = rewards.Timeout, "the deadline passed "
				}
				if name == "before anything" {
					time.Sleep(6 * time.Second)
				}
				start := time.Now()
				_, err := g.Do(ctx, &outbound.Call{Tokens: 80})
				assert.Equal(t, class, rewards.ClassOf(err), "%s: %v", name, err)
				require.ErrorIs(t, err, ctx.Err())
				require.ErrorContains(t, err, text)
				require.ErrorContains(t, err, c.says)
				assert.LessOrEqual(t, time.Since(start), 5*time.Second)
				cancel()
				s := g.Stats()
				assert.Zero(t, s.Waiting, name)
			}
			stop()
			wg.Wait()
			assert.Zero(t, g.Stats().Endpoints[0].InFlight, name)
		})
	}
}

// afterwards is a for the first request, then b.
func afterwards(a, b tripFunc) tripFunc {
	var asked counter
	return func(r *http.Request) (*http.Response, error) {
		if asked.next() == 1 {
			return a(r)
		}
		return b(r)
	}
}

func TestACallWithoutADeadlineIsGivenOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{Concurrency: 1, Timeout: time.Hour, Attempts: 2}, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				start := time.Now()
				_, err := ask(t, g)
				assert.Equal(t, rewards.Timeout, rewards.ClassOf(err))
				assert.LessOrEqual(t, time.Since(start), 2*(time.Hour+time.Minute))
			})
		}
		wg.Wait()
	})
}

func FuzzRetryAfterIsNeverNegativeAndNeverBeyondItsBound(f *testing.F) {
	for _, s := range []string{
		"7", "0", "-1", "1e400", "NaN", "inf", "0x10", "1_0", " 5 ", "9223372036854775807", "1e-300",
		"Sat, 01 Jan 2000 00:00:09 GMT", "Saturday, 01-Jan-00 00:00:09 GMT", "Sat Jan  1 00:00:09 2000", "Fri, 31 Dec 9999 23:59:59 GMT", "soon",
	} {
		f.Add(s, "")
		f.Add(s, "Mon, 01 Jan 0001 00:00:00 GMT")
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text, date string) {
		h := http.Header{"Retry-After": {text}, "Date": {date}}
		d, asked := outbound.ParseRetryAfter(h, now, 30*time.Second)
		if d < 0 || d > 30*time.Second || !asked && d != 0 {
			t.Fatalf("%q at %q: %v %v", text, date, d, asked)
		}
	})
}
