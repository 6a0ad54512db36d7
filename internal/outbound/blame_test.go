package outbound_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// asks is a scorer that makes one call.
type asks struct {
	upstream *outbound.Upstream
	call     outbound.Call
}

func (a asks) Score(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
	call := a.call
	_, err := a.upstream.Do(ctx, &call)
	return rewards.Score{}, err
}

func (asks) Queues() {}

// failure runs a component of one call and returns what its sample fails with; class ""
// stands for no failure.
func failure(ctx context.Context, t *testing.T, g *outbound.Upstream, timeout time.Duration, check func(*outbound.Answer) error) rewards.ComponentError {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{
		Key: "k", Weight: 1, Timeout: timeout, Required: true, Scorer: asks{g, outbound.Call{Body: []byte("q"), Check: check}},
	}}})
	require.NoError(t, err)
	r := m.Run(ctx, &rewards.Sample{ID: "s"})
	<-r.Done()
	if len(r.Result.Errors) == 0 {
		return rewards.ComponentError{}
	}
	return r.Result.Errors[0]
}

// hang answers when its client has gone.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// isScore is a Check of an answer that is {"score": n}.
func isScore(a *outbound.Answer) error {
	var answer map[string]float64
	if err := json.Unmarshal(a.Body, &answer); err != nil {
		return fmt.Errorf("%w: no JSON", rewards.Unavailable)
	}
	if _, ok := answer["score"]; !ok {
		return fmt.Errorf("%w: no score", rewards.InvalidScore)
	}
	return nil
}

func TestTheBlameForACallToAServiceIsByTheTable(t *testing.T) {
	t.Parallel()
	const (
		dependency = rewards.BlameDependency
		sample     = rewards.BlameSample
		reward     = rewards.BlameReward
		permanent  = true
	)
	for _, tt := range []struct {
		event     string
		serve     http.HandlerFunc
		timeout   time.Duration // of the component
		class     rewards.Class
		blame     rewards.Blame
		permanent bool
	}{
		{event: "400 of a service", serve: status(400, "no such picture"), class: rewards.BadInput, blame: sample},
		{event: "413 of a service", serve: status(413, ""), class: rewards.BadInput, blame: sample},
		{event: "422 of a service", serve: status(422, ""), class: rewards.BadInput, blame: sample},
		{event: "401", serve: status(401, ""), class: rewards.Internal, blame: dependency, permanent: permanent},
		{event: "403", serve: status(403, ""), class: rewards.Internal, blame: dependency, permanent: permanent},
		{event: "404", serve: status(404, ""), class: rewards.Internal, blame: dependency, permanent: permanent},
		{event: "405", serve: status(405, ""), class: rewards.Internal, blame: dependency, permanent: permanent},
		{
			event: "unknown model", serve: status(404, `{"error": {"message": "the model m does not exist"}}`),
			class: rewards.Internal, blame: dependency, permanent: permanent,
		},
		{event: "501", serve: status(501, ""), class: rewards.Internal, blame: dependency, permanent: permanent},
		{event: "a redirect", serve: status(307, ""), class: rewards.Internal, blame: dependency, permanent: permanent},
		{event: "408", serve: status(408, ""), class: rewards.Unavailable, blame: dependency},
		{event: "425", serve: status(425, ""), class: rewards.Unavailable, blame: dependency},
		{event: "429", serve: status(429, ""), class: rewards.Unavailable, blame: dependency},
		{event: "500", serve: status(500, ""), class: rewards.Unavailable, blame: dependency},
		{event: "502", serve: status(502, ""), class: rewards.Unavailable, blame: dependency},
		{event: "503", serve: status(503, ""), class: rewards.Unavailable, blame: dependency},
		{event: "504", serve: status(504, ""), class: rewards.Unavailable, blame: dependency},
		{event: "the engine closes the connection", serve: raw("", false), class: rewards.Unavailable, blame: dependency},
		{event: "the engine resets the connection", serve: raw("", true), class: rewards.Unavailable, blame: dependency},
		{
			event: "the body breaks off", serve: raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", true),
			class: rewards.Unavailable, blame: dependency,
		},
		{event: "an answer that is no HTTP", serve: raw("220 smtp.example.com ESMTP\r\n", false), class: rewards.Unavailable, blame: dependency},
		{event: "an answer that is no JSON", serve: status(200, "<html>"), class: rewards.Unavailable, blame: dependency},
		{event: "an answer beyond its bound", serve: status(200, strings.Repeat("x", 8<<20+1)), class: rewards.Internal, blame: dependency},
		{event: "no score in an answer", serve: status(200, `{}`), class: rewards.InvalidScore, blame: reward},
		{event: "the engine hangs past the component's timeout", serve: hang, timeout: 100 * time.Millisecond, class: rewards.Timeout, blame: dependency},
		{event: "a body that drips past the component's timeout", serve: drip, timeout: 100 * time.Millisecond, class: rewards.Timeout, blame: dependency},
	} {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			g := served(t, outbound.UpstreamConfig{BreakAfter: 100}, tt.serve)
			f := failure(t.Context(), t, g, tt.timeout, isScore)
			assert.Equal(t, tt.class, f.Class, f.Message)
			assert.Equal(t, tt.blame, f.Blame, f.Message)
			assert.Equal(t, tt.permanent, f.Permanent, f.Message)
		})
	}
}

func TestTheBlameForACallThatDoesNotReachItsServiceIsByTheTable(t *testing.T) {
	t.Parallel()
	blamed := func(t *testing.T, g *outbound.Upstream, class rewards.Class, permanent bool) {
		t.Helper()
		f := failure(t.Context(), t, g, 0, nil)
		assert.Equal(t, class, f.Class, f.Message)
		assert.Equal(t, rewards.BlameDependency, f.Blame, f.Message)
		assert.Equal(t, permanent, f.Permanent, f.Message)
	}
	t.Run("the engine refuses the connection", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		l.Close()
		blamed(t, open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{"http://" + l.Addr().String()}}), rewards.Unavailable, false)
	})
	t.Run("the engine hangs past the attempt's timeout", func(t *testing.T) {
		t.Parallel()
		blamed(t, served(t, outbound.UpstreamConfig{Timeout: 50 * time.Millisecond, Attempts: 2}, hang), rewards.Timeout, false)
	})
	t.Run("a certificate that is not trusted", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.Config.ErrorLog = quiet()
		srv.StartTLS()
		t.Cleanup(srv.Close)
		blamed(t, open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{srv.URL}}), rewards.Internal, true)
	})
	t.Run("https of a server that speaks http", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(srv.Close)
		url := strings.Replace(srv.URL, "http", "https", 1)
		blamed(t, open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{url}}), rewards.Internal, true)
	})
	t.Run("an address that the policy refuses", func(t *testing.T) {
		t.Parallel()
		g, _ := byName(t, outbound.Policy{}, names(t, "127.0.0.1"), "127.0.0.1")
		blamed(t, g, rewards.Internal, true)
	})
	t.Run("all endpoints are left alone", func(t *testing.T) {
		t.Parallel()
		g := served(t, outbound.UpstreamConfig{BreakAfter: 1, Attempts: 1, BreakMin: time.Hour, BreakMax: time.Hour}, status(503, ""))
		blamed(t, g, rewards.Unavailable, false)
		f := failure(t.Context(), t, g, 50*time.Millisecond, nil)
		assert.Equal(t, rewards.Unavailable, f.Class)
		assert.Equal(t, rewards.BlameDependency, f.Blame)
		assert.Contains(t, f.Message, "out of service")
		assert.EqualValues(t, 1, g.Stats().Endpoints[0].Requests)
	})
	t.Run("the transport is closed: the worker ends", func(t *testing.T) {
		t.Parallel()
		tr, err := outbound.NewTransport(outbound.Policy{})
		require.NoError(t, err)
		g, err := tr.Upstream(outbound.UpstreamConfig{URLs: []string{"http://127.0.0.1:1"}})
		require.NoError(t, err)
		tr.Close()
		f := failure(t.Context(), t, g, 0, nil)
		assert.Equal(t, rewards.BlameWorker, f.Blame)
		assert.False(t, f.Permanent)
	})
}

func TestADeadlineThatPassesBeforeTheCallIsSentIsNobodysFault(t *testing.T) {
	t.Parallel()
	hangs := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	refuses := func(*http.Request) (*http.Response, error) { return reply(503, ""), nil }
	for _, tt := range []struct {
		event  string
		cfg    outbound.UpstreamConfig
		trip   tripFunc
		before int // calls that are under way already
		class  rewards.Class
		blame  rewards.Blame
	}{
		{"timeout while queued for a place", outbound.UpstreamConfig{Concurrency: 1}, hangs, 1, rewards.Timeout, rewards.BlameNobody},
		{"timeout while queued for the rate", outbound.UpstreamConfig{RPM: 1}, hangs, 1, rewards.Timeout, rewards.BlameNobody},
		{"too many wait for a place already", outbound.UpstreamConfig{Concurrency: 1, MaxWaiting: 1}, hangs, 2, rewards.Unavailable, rewards.BlameNobody},
		{"timeout while the endpoint works on it", outbound.UpstreamConfig{}, hangs, 1, rewards.Timeout, rewards.BlameDependency},
		{"the endpoint refuses, and the rate is used up", outbound.UpstreamConfig{RPM: 1}, refuses, 0, rewards.Timeout, rewards.BlameDependency},
		{
			"the endpoint is left alone, and those who wait for its probe take all places",
			outbound.UpstreamConfig{Concurrency: 1, BreakAfter: 1, BreakMin: time.Hour, BreakMax: time.Hour},
			refuses, 2, rewards.Timeout, rewards.BlameDependency,
		},
	} {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.cfg.Timeout, tt.cfg.Attempts = time.Hour, 2
				g := fake(t, tt.cfg, tt.trip)
				others, leave := context.WithCancel(t.Context())
				for range tt.before {
					go func() { _, _ = g.Do(others, &outbound.Call{}) }()
					time.Sleep(time.Second)
				}
				start := time.Now()
				_, err := g.Do(in(t, 30*time.Second), &outbound.Call{})
				blame, permanent := rewards.BlameOf(err)
				assert.Equal(t, tt.class, rewards.ClassOf(err), "%v", err)
				assert.Equal(t, tt.blame, blame, "%v", err)
				assert.False(t, permanent)
				if tt.class == rewards.Timeout {
					assert.Equal(t, 30*time.Second, time.Since(start))
				}
				leave()
				synctest.Wait()
			})
		})
	}
}

func TestACallerThatLeavesBlamesNobody(t *testing.T) {
	t.Parallel()
	g := served(t, outbound.UpstreamConfig{}, hang)
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, leave)
	_, err := g.Do(ctx, &outbound.Call{})
	require.ErrorIs(t, err, rewards.Cancelled)
	blame, permanent := rewards.BlameOf(err)
	assert.Equal(t, rewards.BlameNobody, blame)
	assert.False(t, permanent)
}

func TestTheTimeOfAComponentBeginsWhenItsCallHasAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked counter
		g := fake(t, outbound.UpstreamConfig{Concurrency: 1, Attempts: 1}, func(r *http.Request) (*http.Response, error) {
			if asked.next() == 2 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			time.Sleep(time.Minute)
			return reply(200, strconv.Quote("late")), nil
		})
		start := time.Now()
		go func() { _, _ = g.Do(t.Context(), &outbound.Call{}) }()
		synctest.Wait()
		f := failure(t.Context(), t, g, 10*time.Second, nil)
		assert.Equal(t, rewards.Timeout, f.Class, f.Message)
		assert.Equal(t, rewards.BlameDependency, f.Blame)
		assert.Equal(t, 70*time.Second, time.Since(start), "a minute of waiting does not count")
	})
}
