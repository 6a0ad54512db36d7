package server_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/server"
)

func TestGoProfilesNeedTheTokenAndAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	heap := s.get("/debug/pprof/heap")
	assert.Equal(t, http.StatusOK, heap.StatusCode)
	assert.True(t, bytes.HasPrefix(heap.body, []byte{0x1f, 0x8b}), "a compressed profile")
	assert.Contains(t, string(s.get("/debug/pprof/goroutine?debug=1").body), "goroutine profile")
	assert.Contains(t, string(s.get("/debug/pprof/").body), "heap")
	for _, path := range []string{"/debug/pprof/profile?seconds=3600", "/debug/pprof/trace?seconds=-1"} {
		got := s.get(path)
		assert.Equal(t, http.StatusBadRequest, got.StatusCode)
		assert.Contains(t, string(got.body), "seconds: want 1 to 60")
	}
	assert.Equal(t, http.StatusNotFound, s.get("/debug/pprof/cmdline").StatusCode)

	guarded := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.TokenFile = tokenFile(t, secret) }})
	assert.Equal(t, http.StatusUnauthorized, guarded.get("/debug/pprof/heap").StatusCode)
}
