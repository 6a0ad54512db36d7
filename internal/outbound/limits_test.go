package outbound_test

import (
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

// sent notes when each call was sent, by its path.
type sent struct {
	mu    sync.Mutex
	start time.Time
	paths []string
	at    []time.Duration
}

func (s *sent) trip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = append(s.paths, r.URL.Path)
	s.at = append(s.at, time.Since(s.start))
	return reply(200, ""), nil
}

// inOrder starts calls one after the other, each when the one before waits or is done.
func inOrder(t *testing.T, wg *sync.WaitGroup, g *outbound.Upstream, calls ...outbound.Call) {
	t.Helper()
	for _, c := range calls {
		wg.Go(func() {
			_, err := g.Do(t.Context(), &c)
			assert.NoError(t, err)
		})
		synctest.Wait()
	}
}

func TestRequestsAMinuteAreExactAndInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sent{start: time.Now()}
		g := fake(t, outbound.UpstreamConfig{RPM: 60}, s.trip)
		var wg sync.WaitGroup
		calls := make([]outbound.Call, 150)
		for i := range calls {
			calls[i].Path = "/" + string(rune('Ā'+i))
		}
		inOrder(t, &wg, g, calls...)
		assert.Equal(t, 90, g.Stats().Waiting)
		wg.Wait()
		require.Len(t, s.at, 150)
		for i, at := range s.at {
			assert.Equal(t, calls[i].Path, s.paths[i])
			assert.InDelta(t, max(0, i-59), at.Seconds(), 1e-6, "call %d", i)
		}
	})
}

func TestARateBelowOneAMinuteIsOneNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sent{start: time.Now()}
		g := fake(t, outbound.UpstreamConfig{RPM: 0.5}, s.trip)
		var wg sync.WaitGroup
		inOrder(t, &wg, g, make([]outbound.Call, 3)...)
		wg.Wait()
		assert.InDelta(t, 120, s.at[1].Seconds(), 1e-3)
		assert.InDelta(t, 240, s.at[2].Seconds(), 1e-3)
	})
}

func TestTokensAMinuteAreExactAndALargeCallTakesTheFullBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sent{start: time.Now()}
		g := fake(t, outbound.UpstreamConfig{TPM: 6000}, s.trip)
		var wg sync.WaitGroup
		inOrder(t, &wg, g,
			outbound.Call{Tokens: 3000}, outbound.Call{Tokens: 3000}, // 0 s: the bucket is empty.
			outbound.Call{Tokens: 100},    // 1 s.
			outbound.Call{Tokens: 50_000}, // 61 s: full again.
			outbound.Call{Tokens: 1},      // 61.01 s: not before, though there was room for it.
			outbound.Call{},               // Without tokens; but it is its turn.
			outbound.Call{Tokens: 599},    // 67 s.
		)
		wg.Wait()
		for i, want := range []float64{0, 0, 1, 61, 61.01, 61.01, 67} {
			assert.InDelta(t, want, s.at[i].Seconds(), 1e-6, "call %d", i)
		}
		assert.EqualValues(t, 3000+3000+100+50_000+1+599, g.Stats().Tokens)
	})
}

func TestSpentCorrectsTheTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		used, booked int
		next         float64 // When 1,000 tokens can be taken after 6,000 of 6,000 were.
		total        int64
	}{
		"less":                        {5000, 6000, 0, 6000},
		"some":                        {5500, 6000, 5, 6500},
		"as booked":                   {6000, 6000, 10, 7000},
		"more":                        {6600, 6000, 10, 7600}, // A call counts for one bucket at most.
		"more by another booking":     {900, 300, 16, 7600},
		"a bucket at most":            {1 << 40, 0, 70, 7000 + 1<<40},
		"nonsense counts for nothing": {-5, -7, 10, 7000},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &sent{start: time.Now()}
			g := fake(t, outbound.UpstreamConfig{TPM: 6000}, s.trip)
			var wg sync.WaitGroup
			inOrder(t, &wg, g, outbound.Call{Tokens: 6000}, outbound.Call{Tokens: 1000})
			g.Spent(c.used, c.booked)
			wg.Wait()
			assert.InDelta(t, c.next, s.at[1].Seconds(), 1e-6, name)
			assert.Equal(t, c.total, g.Stats().Tokens, name)
		})
	}
}

func TestADebtIsWorkedOffWithinAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sent{start: time.Now()}
		g := fake(t, outbound.UpstreamConfig{TPM: 6000}, s.trip)
		for range 100 {
			g.Spent(6000, 0)
		}
		_, err := g.Do(t.Context(), &outbound.Call{Tokens: 100})
		require.NoError(t, err)
		assert.InDelta(t, 61, s.at[0].Seconds(), 1e-6)
	})
}

func TestAnAttemptThatWasNotServedGivesItsTokensBack(t *testing.T) {
	t.Parallel()
	for status, total := range map[int]int64{429: 100, 503: 100, 500: 200, 504: 200} {
		synctest.Test(t, func(t *testing.T) {
			ok := func(*http.Request) (*http.Response, error) { return reply(200, ""), nil }
			g := fake(t, outbound.UpstreamConfig{TPM: 1000}, afterwards(func(*http.Request) (*http.Response, error) { return reply(status, ""), nil }, ok))
			_, err := g.Do(t.Context(), &outbound.Call{Tokens: 100})
			require.NoError(t, err)
			assert.Equal(t, total, g.Stats().Tokens, status)
		})
	}
}

func TestAWaiterThatLeavesMakesRoomForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sent{start: time.Now()}
		g := fake(t, outbound.UpstreamConfig{TPM: 600}, s.trip)
		var wg sync.WaitGroup
		inOrder(t, &wg, g, outbound.Call{Tokens: 600})
		wg.Go(func() {
			_, err := g.Do(in(t, 30*time.Second), &outbound.Call{Tokens: 600, Path: "/left"})
			assert.ErrorIs(t, err, rewards.Timeout)
		})
		synctest.Wait()
		inOrder(t, &wg, g, outbound.Call{Tokens: 10})
		wg.Wait()
		assert.Equal(t, 30*time.Second, s.at[1], "the small one waits its turn, and no longer")
		assert.EqualValues(t, 610, g.Stats().Tokens)
	})
}

func TestConcurrencyIsExactInOrderAndItsQueueBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sent{start: time.Now()}
		var mu sync.Mutex
		now, most := 0, 0
		g := fake(t, outbound.UpstreamConfig{Concurrency: 4, MaxWaiting: 16}, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			a, err := s.trip(r)
			time.Sleep(time.Second) // Of the bubble.
			mu.Lock()
			now--
			mu.Unlock()
			return a, err
		})
		var wg sync.WaitGroup
		calls := make([]outbound.Call, 20)
		for i := range calls {
			calls[i].Path = "/" + string(rune('a'+i))
		}
		inOrder(t, &wg, g, calls...)
		assert.Equal(t, 16, g.Stats().Waiting)
		_, err := ask(t, g)
		require.ErrorIs(t, err, rewards.Unavailable)
		require.ErrorContains(t, err, "16 calls wait already while 4 are under way")
		wg.Wait()
		assert.Equal(t, 4, most)
		for i, at := range s.at {
			assert.Equal(t, time.Duration(i/4)*time.Second, at)
			assert.Equal(t, i/4, int(s.paths[i][1]-'a')/4, "four go at a time")
		}
	})
}

func TestLimitsHoldForAllWhoShareAnUpstream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sent{start: time.Now()}
		tr := outbound.NewTestTransport(tripFunc(s.trip))
		var wg sync.WaitGroup
		for i := range 4 {
			g, err := tr.Upstream(outbound.UpstreamConfig{Name: string(rune('a' + i)), URLs: []string{"http://a/", "http://b"}, RPM: 60})
			require.NoError(t, err)
			inOrder(t, &wg, g, make([]outbound.Call, 20)...)
		}
		wg.Wait()
		assert.InDelta(t, 20, s.at[79].Seconds(), 1e-6)
	})
}
