package server_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server"
)

// A server that wants a token serves its router to functions of this machine, which
// know an address alone.
func TestTheRoutersOwnListenerServesWhoKnowsItsAddress(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("of-clients"), 0o600))
	e := &engine{}
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Router, o.Config.TokenFile = e, file }})
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, s.ServeRouter(ln, "secret"))
	require.Error(t, s.ServeRouter(ln, "secret"), "once")

	ask := func(method, user, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+user+ln.Addr().String()+path, strings.NewReader(`{"model": "m"}`))
		require.NoError(t, err)
		a, err := s.client.Do(r)
		require.NoError(t, err)
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		assert.NotContains(t, string(body), "secret")
		return a.StatusCode
	}
	assert.Equal(t, 200, ask(http.MethodPost, "x:secret@", "/v1/chat/completions"))
	assert.Equal(t, 200, ask(http.MethodPost, "x:secret@", "/classify"))
	require.Len(t, e.calls, 2)
	assert.Empty(t, e.calls[0].Header.Get("Authorization"), "the key stays here")
	for _, user := range []string{"", "x:wrong@", "x:of-clients@"} {
		assert.Equal(t, 401, ask(http.MethodPost, user, "/v1/chat/completions"), user)
	}
	for _, path := range []string{"/", "/v1/score", "/metrics", "/healthz", "/v1/stream", "/v1/chat/completions/"} {
		assert.Equal(t, 404, ask(http.MethodGet, "x:secret@", path), path)
	}
	assert.Len(t, e.calls, 2)
	// The key opens nothing else.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader("{}"))
	require.NoError(t, err)
	r.SetBasicAuth("x", "secret")
	assert.Equal(t, 401, s.do(r).StatusCode)
}

func TestTheRoutersOwnListenerIsOfTheLoopbackAndHasAKey(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{bare: true})
	everywhere, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer everywhere.Close()
	require.ErrorContains(t, s.ServeRouter(everywhere, "k"), "loopback")
	here, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer here.Close()
	require.ErrorContains(t, s.ServeRouter(here, ""), "key")
}
