package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
)

// engine stands for the engines behind the router.
type engine struct {
	do func(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) // nil: {}

	mu    sync.Mutex
	calls []*outbound.Call // guarded by mu
}

var _ outbound.Doer = (*engine)(nil)

func (e *engine) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	own := *c
	own.Body = append([]byte(nil), c.Body...)
	e.mu.Lock()
	e.calls = append(e.calls, &own)
	e.mu.Unlock()
	if e.do == nil {
		return &outbound.Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte("{}")}, nil
	}
	return e.do(ctx, c)
}

func withRouter(t *testing.T, e *engine) *site {
	t.Helper()
	return newSite(t, siteOptions{server: func(o *server.Options) {
		o.Router = e
		o.Config.RouterTimeout = 100 * time.Millisecond
	}})
}

func TestTheRouterHandsRequestsAndAnswersOn(t *testing.T) {
	t.Parallel()
	e := &engine{do: func(_ context.Context, c *outbound.Call) (*outbound.Answer, error) {
		return &outbound.Answer{Status: 200, Body: []byte("answer of " + c.Path), Header: http.Header{
			"Content-Type": {"application/json; charset=utf-8"}, "X-Request-Id": {"engine-7"}, "Connection": {"X-Hop, close"}, "X-Hop": {"1"},
			"Set-Cookie": {"a=b"}, "Content-Length": {"999"}, "Transfer-Encoding": {"chunked"}, "Content-Encoding": {"gzip"}, "Www-Authenticate": {"Basic"},
		}}, nil
	}}
	s := withRouter(t, e)
	const body = ` {"model": "m", "messages": [{"role": "user", "content": "é"}], "stream": false, "temperature": 0.70}`
	for i, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/classify"} {
		r := s.do(s.request(t.Context(), http.MethodPost, path, []byte(body), "Content-Type", "application/json", "Authorization", "Bearer "+secret, "Cookie", "c=d",
			"X-Api-Key", secret, "Connection", "X-Mine", "X-Mine", "1", "X-Forwarded-For", "10.0.0.1", "Te", "trailers", "X-Trace", "t1"))
		require.Equal(t, 200, r.StatusCode)
		assert.Equal(t, "answer of "+path, string(r.body))
		assert.Equal(t, "application/json; charset=utf-8", r.Header.Get("Content-Type"))
		assert.Equal(t, "engine-7", r.Header.Get("X-Request-Id"))
		for _, name := range []string{"X-Hop", "Set-Cookie", "Content-Encoding", "Www-Authenticate"} {
			assert.Empty(t, r.Header.Get(name), name)
		}
		call := e.calls[i]
		assert.Equal(t, http.MethodPost, call.Method)
		assert.Equal(t, path, call.Path)
		assert.True(t, bytes.Equal([]byte(body), call.Body), "byte for byte")
		assert.EqualValues(t, 16<<20, call.MaxBytes)
		assert.Equal(t, "t1", call.Header.Get("X-Trace"))
		assert.Equal(t, "application/json", call.Header.Get("Content-Type"))
		assert.NotContains(t, fmt.Sprint(call.Header), secret)
		for _, name := range []string{"Cookie", "Connection", "X-Mine", "X-Forwarded-For", "Te", "Accept-Encoding", "Content-Length", "Host"} {
			assert.Empty(t, call.Header.Values(name), name)
		}
	}
	r := s.get("/v1/models?x=y")
	assert.Equal(t, "answer of /v1/models", string(r.body))
	assert.Equal(t, http.MethodGet, e.calls[4].Method)
	assert.Empty(t, e.calls[4].Body)

	// A client that asks twice wants two answers.
	s.post("/v1/completions", []byte(body))
	assert.Len(t, e.calls, 6)
	assert.Contains(t, string(s.get("/metrics").body), "rewardloop_http_body_bytes 0")
}

// net/http would guess one from the bytes, and a browser would run what it takes for a page.
func TestAnEnginesAnswerWithoutAContentTypeIsBytes(t *testing.T) {
	t.Parallel()
	s := withRouter(t, &engine{do: func(context.Context, *outbound.Call) (*outbound.Answer, error) {
		return &outbound.Answer{Status: http.StatusOK, Header: http.Header{}, Body: []byte("<html>")}, nil
	}})
	r := s.post("/classify", []byte(`{}`))
	require.Equal(t, http.StatusOK, r.StatusCode)
	assert.Equal(t, "<html>", string(r.body))
	assert.Equal(t, "application/octet-stream", r.Header.Get("Content-Type"))
}

func TestTheRouterHandsOnWhatTheClientCanMend(t *testing.T) {
	t.Parallel()
	e := &engine{}
	s := withRouter(t, e)
	for status, own := range map[int]bool{400: true, 404: true, 413: true, 422: true, 451: true, 401: false, 403: false, 407: false, 408: false, 429: false, 500: false, 302: false, 200: false} {
		e.do = func(_ context.Context, c *outbound.Call) (*outbound.Answer, error) {
			assert.Equal(t, own, c.Statuses(status), "%d", status)
			return &outbound.Answer{Status: status, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("as it said")}, nil
		}
		if !own {
			s.post("/classify", []byte(`{}`))
			continue
		}
		r := s.post("/classify", []byte(`{}`))
		assert.Equal(t, status, r.StatusCode)
		assert.Equal(t, "as it said", string(r.body))
	}
	e.do = func(context.Context, *outbound.Call) (*outbound.Answer, error) {
		return &outbound.Answer{Status: 502}, nil
	}
	s.post("/classify", []byte(`{}`)).jsonError(t, 503)
	for class, want := range map[rewards.Class]int{
		rewards.Unavailable: 503, rewards.Timeout: 503, rewards.Internal: 422, rewards.InvalidScore: 422, rewards.BadInput: 422,
	} {
		e.do = func(context.Context, *outbound.Call) (*outbound.Answer, error) {
			return nil, fmt.Errorf("%w: http://engine answered", class)
		}
		code, message := s.post("/v1/completions", []byte(`{}`)).jsonError(t, want)
		assert.Equal(t, string(class), code)
		assert.Contains(t, message, "http://engine")
	}
	e.do = func(context.Context, *outbound.Call) (*outbound.Answer, error) { panic("router") }
	s.post("/v1/completions", []byte(`{}`)).jsonError(t, 503)
	assert.Contains(t, string(s.get("/metrics").body), "rewardloop_http_body_bytes 0")
}

func TestTheRouterRefusesWhatItCannotForward(t *testing.T) {
	t.Parallel()
	e := &engine{}
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Router, o.Config.JSONBytes = e, 1000 }})
	for body, want := range map[string]string{
		`{"stream": true}`: "does not stream answers", `{"stream": 1}`: "does not stream answers", `{"stream": "false"}`: "does not stream answers", `[]`: "want an object", ``: "not JSON",
		`{"a": 1, "a": 2}`: "duplicate", "{\"a\": \"\xff\"}": "UTF-8",
	} {
		_, message := s.post("/v1/chat/completions", []byte(body)).jsonError(t, 400)
		assert.Contains(t, message, want, body)
	}
	s.post("/v1/chat/completions", []byte(`{"a": "`+strings.Repeat("x", 1000)+`"}`)).jsonError(t, 413)
	assert.Empty(t, e.calls)
	for _, body := range []string{`{"stream": null}`, `{"stream": false}`, `{"messages": [{"stream": true}]}`} {
		assert.Equal(t, 200, s.post("/v1/chat/completions", []byte(body)).StatusCode, body)
	}

	bare := newSite(t, siteOptions{})
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/classify"} {
		_, message := bare.post(path, []byte(`{}`)).jsonError(t, 404)
		assert.Contains(t, message, "reward_model")
	}
	_, message := bare.get("/v1/models").jsonError(t, 404)
	assert.Contains(t, message, "base_urls")
}

func TestARoutedCallEndsWithItsDeadlineAndWithItsClient(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}, 1), make(chan error, 1)
	e := &engine{do: func(ctx context.Context, _ *outbound.Call) (*outbound.Answer, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, fmt.Errorf("waiting: %w", ctx.Err())
	}}
	s := withRouter(t, e)
	s.post("/v1/completions", []byte(`{}`)).jsonError(t, 503)
	<-started
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)

	long := newSite(t, siteOptions{server: func(o *server.Options) { o.Router = e }})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	req := long.request(ctx, http.MethodPost, "/v1/completions", []byte(`{}`))
	go func() { // ends with the request
		resp, err := long.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	receive(t, started, "the engine")
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience):
		require.Fail(t, "the call was not cancelled")
	}
	require.Eventually(t, func() bool {
		return strings.Contains(string(long.get("/metrics").body), `rewardloop_http_requests_total{code="499",route="/v1/completions"} 1`)
	}, patience, 5*time.Millisecond)
}

func TestTheRouterServesWhileSamplesDrainAndStopCutsItOff(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 1)
	e := &engine{}
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Router = e }})
	require.NoError(t, s.Drain(t.Context()))
	assert.Equal(t, 200, s.post("/classify", []byte(`{}`)).StatusCode, "the scorers of samples in flight may be who asks")

	e.do = func(ctx context.Context, _ *outbound.Call) (*outbound.Answer, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, errors.New("cut off")
	}
	done := make(chan struct{})
	req := s.request(t.Context(), http.MethodPost, "/classify", []byte(`{}`))
	go func() { // ends when the server is stopped
		defer close(done)
		if resp, err := s.client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	receive(t, started, "the engine")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, s.Stop(ctx))
	receive(t, done, "the request")
}
