package outbound_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
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

func TestTheEndpointWithTheLeastInFlightIsChosen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{}), "c": make(chan struct{})}
		g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a", "http://b", "http://c"}}, func(r *http.Request) (*http.Response, error) {
			<-release[r.URL.Host]
			return reply(200, ""), nil
		})
		var wg sync.WaitGroup
		inFlight := func() (n []int) {
			synctest.Wait()
			for _, e := range g.Stats().Endpoints {
				n = append(n, e.InFlight)
			}
			return n
		}
		inOrder(t, &wg, g, make([]outbound.Call, 30)...)
		assert.Equal(t, []int{10, 10, 10}, inFlight())
		for range 6 {
			release["b"] <- struct{}{}
		}
		assert.Equal(t, []int{10, 4, 10}, inFlight())
		inOrder(t, &wg, g, make([]outbound.Call, 6)...)
		assert.Equal(t, []int{10, 10, 10}, inFlight())
		for _, c := range release {
			close(c)
		}
		wg.Wait()
		assert.Equal(t, []int{0, 0, 0}, inFlight())
	})
}

func TestTiesAreBrokenByChanceUniformly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a", "http://b", "http://c", "http://d"}}, func(*http.Request) (*http.Response, error) {
			return reply(200, ""), nil
		})
		const n = 8000
		for range n {
			_, err := ask(t, g)
			require.NoError(t, err)
		}
		chi := 0.0
		for _, e := range g.Stats().Endpoints {
			d := float64(e.Requests) - n/4
			chi += d * d / (n / 4)
		}
		assert.Less(t, chi, 21.1, "chance of more with 3 degrees of freedom: 1 in 10,000")
	})
}

func TestAnUpstreamIsTheSameForTheSameURLsAndKey(t *testing.T) {
	t.Parallel()
	tr := outbound.NewTestTransport(nil)
	key := keyFile(t, "secret")
	first, err := tr.Upstream(outbound.UpstreamConfig{Name: "first", URLs: []string{"http://u:hunter2@a", "http://B:80/x/"}, Concurrency: 8})
	require.NoError(t, err)
	again, err := tr.Upstream(outbound.UpstreamConfig{Name: "again", URLs: []string{"http://b:80/x", "http://u:hunter2@a/"}, Concurrency: 8, HealthPath: "/v1/models"})
	require.NoError(t, err)
	assert.Same(t, first, again)
	assert.Equal(t, "first", again.Stats().Name)

	_, err = tr.Upstream(outbound.UpstreamConfig{Name: "second", URLs: []string{"http://b:80/x", "http://u:hunter2@a"}, RPM: 5, Timeout: time.Minute})
	require.ErrorContains(t, err, "upstream second has the endpoints and key file of upstream first and must share its limits: "+
		"make concurrency (8 there, 256 here), requests_per_minute (0 there, 5 here), timeout (2m0s there, 1m0s here) equal")
	assert.NotContains(t, err.Error(), "hunter2")

	for _, other := range []outbound.UpstreamConfig{
		{URLs: []string{"http://b:80/x", "http://u:other@a"}},
		{URLs: []string{"http://u:hunter2@a"}},
		{URLs: []string{"http://b:80/x"}, KeyFile: key},
		{URLs: []string{"http://b:80/x"}},
	} {
		g, err := tr.Upstream(other)
		require.NoError(t, err)
		assert.NotSame(t, first, g)
	}
	assert.Len(t, tr.Upstreams(), 5)
}

func TestAConfigurationNamesAllThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	cfg := outbound.UpstreamConfig{
		Name: "judge",
		URLs: []string{
			"", "ftp://a", "http://", "http://me:hunter2@a:b", "http://a#x", "http://a:99999", "http://ok", "http://OK/", "http://me:hunter2@ok2",
		},
		KeyFile:     "key",
		Concurrency: -1, MaxWaiting: -1, RPM: math.NaN(), TPM: math.Inf(1), Timeout: -1, Attempts: 21,
		BackoffMin: 2, BackoffMax: 1, RetryAfterMax: -1, BreakAfter: -1, BreakMin: 2, BreakMax: 1,
	}
	err := cfg.Validate()
	for _, want := range []string{
		"URL 1:", "URL 2:", "URL 3: the URL names no host", "URL 4:", "URL 5:", "URL 6:", "URL 8 is URL 7 again",
		"a key file and a user",
		"concurrency: want 1…65536, got -1", "max waiting", "requests_per_minute: want 0 or more, got NaN", "tokens_per_minute: want 0 or more, got +Inf", "timeout", "attempts: want 1…20, got 21", "backoff", "retry-after", "break after", "break from",
	} {
		require.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "hunter2")
	_, errUpstream := outbound.NewTestTransport(nil).Upstream(cfg)
	assert.Equal(t, err.Error(), errUpstream.Error())
	require.ErrorContains(t, outbound.UpstreamConfig{}.WithDefaults().Validate(), "no URL")
	require.NoError(t, outbound.UpstreamConfig{URLs: []string{"https://u:p@a:443/v1?x=y"}}.WithDefaults().Validate())
	require.NoError(t, outbound.UpstreamConfig{URLs: []string{"http://a"}, BackoffMin: time.Hour, BreakMin: time.Hour}.WithDefaults().Validate())
}

func TestPausesOfYearsAreRefusedBecauseTheirSumsOverflow(t *testing.T) {
	t.Parallel()
	const ever = time.Duration(math.MaxInt64)
	for want, cfg := range map[string]outbound.UpstreamConfig{
		"backoff from":    {BackoffMax: ever},
		"retry-after of":  {RetryAfterMax: ever},
		"break from":      {BreakMax: ever},
		"timeout: want":   {Timeout: ever},
		"idle timeout of": {IdleTimeout: ever},
	} {
		cfg.URLs = []string{"http://a"}
		require.ErrorContains(t, cfg.WithDefaults().Validate(), want)
	}
}

func TestTheRequestIsWhatTheCallSays(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
	}))
	t.Cleanup(srv.Close)
	g := open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{srv.URL + "/v1/?key=k"}})
	_, err := g.Do(t.Context(), &outbound.Call{
		Path: "/chat/completions?stream=false", Body: []byte("hello"),
		Header: http.Header{"content-type": {"application/json"}, "X-Org": {"call"}, "Authorization": {"of a stranger"}, "Connection": {"close"}, "Host": {"elsewhere"}},
	})
	require.NoError(t, err)
	assert.Equal(t, "POST /v1/chat/completions?key=k&stream=false", got.Method+" "+got.URL.String())
	assert.Equal(t, "hello", body)
	assert.EqualValues(t, 5, got.ContentLength)
	assert.Equal(t, strings.TrimPrefix(srv.URL, "http://"), got.Host)
	assert.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "X-Org": {"call"}, "User-Agent": {"rewardloop"},
		"Accept-Encoding": {"identity"}, "Content-Length": {"5"},
	}, got.Header)

	_, err = g.Do(t.Context(), &outbound.Call{Method: http.MethodGet, Header: http.Header{"User-Agent": {"mine"}}})
	require.NoError(t, err)
	assert.Equal(t, "GET /v1/?key=k mine", got.Method+" "+got.URL.String()+" "+got.UserAgent())

	for _, path := range []string{"v1", "/../admin", "/a/../../admin", "/%2e%2e/admin", "/./a", "//host/x", "/a%2F..%2Fb", "/%zz", "/a b\x7f"} {
		_, err := g.Do(t.Context(), &outbound.Call{Path: path})
		require.ErrorIs(t, err, rewards.Internal, path)
		require.ErrorContains(t, err, "the call's path", path)
	}
	_, err = g.Do(t.Context(), &outbound.Call{Path: "/files/a%20b%2Fc/"})
	require.NoError(t, err)
	assert.Equal(t, "/v1/files/a%20b%2Fc/?key=k", got.URL.String())
}

func TestACheckThatPanicsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{Concurrency: 1}, func(*http.Request) (*http.Response, error) { return reply(200, ""), nil })
		assert.Panics(t, func() {
			_, _ = g.Do(t.Context(), &outbound.Call{Check: func(*outbound.Answer) error { panic("boom") }})
		})
		_, err := ask(t, g)
		require.NoError(t, err)
		assert.Zero(t, g.Stats().Endpoints[0].InFlight)
	})
}

func TestTheBodyIsTheCallersAgainWhenDoReturns(t *testing.T) {
	t.Parallel()
	var kept io.ReadCloser
	g := fake(t, outbound.UpstreamConfig{}, func(r *http.Request) (*http.Response, error) {
		kept = r.Body // As net/http's writing goroutine does when an answer comes early.
		return reply(200, ""), nil
	})
	body := []byte("question" + strings.Repeat("?", 4<<10))
	done := make(chan error)
	first := make([]byte, 4)
	_, err := g.Do(t.Context(), &outbound.Call{Body: body, Check: func(*outbound.Answer) error {
		_, err := io.ReadFull(kept, first)
		return err
	}})
	require.NoError(t, err)
	assert.Equal(t, "ques", string(first))
	go func() {
		_, err := kept.Read(make([]byte, 4))
		done <- err
	}()
	clear(body) // The race detector watches.
	require.ErrorContains(t, <-done, "the attempt is over")
}

func TestASmallBodyIsCopied(t *testing.T) {
	t.Parallel()
	var kept io.ReadCloser
	g := fake(t, outbound.UpstreamConfig{}, func(r *http.Request) (*http.Response, error) {
		kept = r.Body
		return reply(200, ""), nil
	})
	body := []byte("question")
	_, err := g.Do(t.Context(), &outbound.Call{Body: body})
	require.NoError(t, err)
	clear(body)
	late, err := io.ReadAll(kept)
	require.NoError(t, err)
	assert.Equal(t, "question", string(late))
}

func TestAClosedTransportTakesNoCalls(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	t.Cleanup(srv.Close)
	tr, err := outbound.NewTransport(outbound.Policy{})
	require.NoError(t, err)
	g, err := tr.Upstream(outbound.UpstreamConfig{URLs: []string{srv.URL}})
	require.NoError(t, err)
	_, err = ask(t, g)
	require.NoError(t, err)
	tr.Close()
	tr.Close()
	_, err = ask(t, g)
	require.ErrorIs(t, err, rewards.Unavailable)
	require.ErrorContains(t, err, "closed")
	_, err = tr.Upstream(outbound.UpstreamConfig{URLs: []string{"http://a"}})
	require.ErrorContains(t, err, "closed")
}
