package server_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server"
)

func TestTheFaceOfAWorkerSaysWhetherItTakesSamplesAndSendsThemToAGateway(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	w, err := server.NewWorker(server.Options{
		Config: server.Config{Listen: "127.0.0.1:0", SelfTestEvery: time.Nanosecond},
		SelfTest: func(context.Context) error {
			if ready.Load() {
				return nil
			}
			return errors.New("no worker is connected")
		},
	})
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context(), nil))
	transport := &http.Transport{}
	s := &site{Server: w, t: t, url: "http://" + w.Addr().String(), client: &http.Client{Transport: transport}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		assert.NoError(t, w.Stop(context.Background()))
	})
	require.Equal(t, http.StatusOK, s.get("/healthz").StatusCode)
	r := s.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	assert.JSONEq(t, `{"ready":false,"reasons":["not ready: no worker is connected"]}`, string(r.body))
	ready.Store(true)
	require.Equal(t, http.StatusOK, s.get("/readyz").StatusCode)
	for _, path := range []string{"/v1/pending", "/v1/models"} { // a gateway's, and what only its own listener serves
		_, message := s.get(path).jsonError(t, http.StatusNotFound)
		assert.Contains(t, message, "send samples to a gateway")
	}
	assert.Contains(t, string(s.get("/metrics").body), "rewardloop_http_requests_total")
	require.NoError(t, w.Drain(t.Context()))
	assert.Contains(t, string(s.get("/readyz").body), "draining")
}
