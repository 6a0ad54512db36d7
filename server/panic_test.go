package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/server"
)

// broken is a loop that panics wherever it is asked.
type broken struct{ picture }

func (*broken) Submit(context.Context, loop.Submission) (*loop.Future, error) { panic("submit") }
func (*broken) Serve(context.Context, *wsconn.Conn) error                     { panic("serve") }
func (*broken) Runs(int) []loop.RunState                                      { panic("runs") }

func TestAPanicIsOneRequestsAloneAndNeverA500ForASample(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Loop = &broken{} }})
	for range 2 {
		message, _ := s.post("/", pickled(t, "images", jpegs(1))).refused(t, http.StatusServiceUnavailable)
		assert.Contains(t, message, "panic")
		s.post("/v1/score", []byte(`{}`)).jsonError(t, http.StatusServiceUnavailable)
		code, _ := s.get("/v1/runs").jsonError(t, http.StatusInternalServerError)
		assert.Equal(t, "panic", code)
		conn, err := s.dialStream()
		require.NoError(t, err)
		_ = conn.Run(t.Context(), listener{make(chan any, 1)}) // ends, because the server closes it
	}
	var metrics string // the client sees the end of a stream before the server counts it
	require.Eventually(t, func() bool {
		metrics = string(s.get("/metrics").body)
		return strings.Contains(metrics, "rewardloop_http_panics_total 4") && strings.Contains(metrics, "rewardloop_http_streams 0")
	}, patience, 5*time.Millisecond)
	assert.Contains(t, metrics, "rewardloop_http_requests_in_flight 0")
	assert.Equal(t, http.StatusOK, s.get("/healthz").StatusCode)
}
