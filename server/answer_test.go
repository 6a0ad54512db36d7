package server_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server"
)

// flow_grpo's clients obey Retry-After a thousand times: one sample whose reward always
// fails must not hold a trainer for a day.
func TestOnlyWhatWillPassHereAsksForAPause(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: oneAttempt()})
	body := pickled(t, "images", jpegs(1))
	assert.NotEmpty(t, s.post("/scorers/fail-unavailable", body).Header.Get("Retry-After"), "what the reward needs may come back")
	s.succeed()
	for _, class := range []string{"timeout", "crashed"} {
		r := s.post("/scorers/fail-"+class, body)
		r.refused(t, http.StatusServiceUnavailable)
		assert.Empty(t, r.Header.Get("Retry-After"), class)
		assert.Empty(t, s.post("/rm/fail-"+class, []byte(`{"prompt": "a", "response": "b"}`)).Header.Get("Retry-After"), class)
		s.succeed()
	}
	require.NoError(t, s.Drain(t.Context()))
	for _, r := range []reply{s.post("/", body), s.post("/rm", []byte(`{}`)), s.get("/health")} {
		assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		assert.NotEmpty(t, r.Header.Get("Retry-After"))
	}
}

// logs takes what is logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// flow_grpo shows a KeyError, others a status: the reason must be somewhere.
func TestTheLogSaysWhyARequestHasNoScore(t *testing.T) {
	t.Parallel()
	var out logs
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Log = slog.New(slog.NewTextHandler(&out, nil)) }})
	s.post("/scorers/picky", pickled(t, "images", jpegs(2), "prompts", []string{"ok", "fail"})).refused(t, 422)
	assert.Contains(t, out.String(), "a request was answered without a score")
	for _, part := range []string{"route=/scorers/:name", "status=422", "class=bad_input", "failed=[1]", "sample 1: main: ", "request_id="} {
		assert.Contains(t, out.String(), part)
	}
	for range 100 {
		s.post("/scorers/nobody", pickled(t, "images", jpegs(1)))
	}
	assert.Less(t, strings.Count(out.String(), "without a score"), 60, "not all of them, and not none")
}

func TestAFewWarningsPassEachSecondAndTheOthersAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := server.NewSparse(3)
		for i := range 5 {
			missed, ok := w.Allow(time.Now())
			assert.Equal(t, i < 3, ok)
			assert.Zero(t, missed)
		}
		time.Sleep(time.Second)
		missed, ok := w.Allow(time.Now())
		assert.True(t, ok)
		assert.Equal(t, 2, missed)
	})
}
