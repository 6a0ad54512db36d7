package server_test

import (
	"fmt"
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

	ask := func(method, user, path string, header ...string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+user+ln.Addr().String()+path, strings.NewReader(`{"model": "m"}`))
		require.NoError(t, err)
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
			if header[0] == "Host" {
				r.Host = header[1]
			}
		}
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
	for _, header := range []string{"Bearer secret", "Bearer EMPTY", ""} { // a process of this user needs no key
		assert.Equal(t, 200, ask(http.MethodPost, "", "/v1/chat/completions", "Authorization", header), header)
	}
	for _, header := range [][]string{{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "same-origin"}, {"Host", "evil.example:80"}} {
		assert.Equal(t, 403, ask(http.MethodPost, "x:secret@", "/v1/chat/completions", header...), header)
	}
	for _, path := range []string{"/", "/v1/score", "/metrics", "/healthz", "/v1/stream", "/v1/chat/completions/"} {
		assert.Equal(t, 404, ask(http.MethodGet, "x:secret@", path), path)
	}
	assert.Len(t, e.calls, 5)
	assert.Empty(t, e.calls[3].Header.Get("Authorization"), "whatever was shown stays here")
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

func TestAConnectionOfAnotherUserNeedsTheKey(t *testing.T) {
	t.Parallel()
	table := filepath.Join(t.TempDir(), "tcp")
	row := func(user int) string {
		return fmt.Sprintf("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
			"   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1\n"+
			"   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 %5d        0 2\n", user)
	}
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 50000}
	to := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}
	require.NoError(t, os.WriteFile(table, []byte(row(os.Geteuid())), 0o600))
	assert.True(t, server.IsOwnUser(table, from, to))
	assert.False(t, server.IsOwnUser(table, &net.TCPAddr{IP: from.IP, Port: 50001}, to), "not in the table")
	require.NoError(t, os.WriteFile(table, []byte(row(os.Geteuid()+1)), 0o600))
	assert.False(t, server.IsOwnUser(table, from, to))
	assert.False(t, server.IsOwnUser(filepath.Join(t.TempDir(), "none"), from, to))
}
