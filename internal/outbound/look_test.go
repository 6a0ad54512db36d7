package outbound_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

func TestALookFindsAnEngineThatIsNotThereAndSeesItComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &patient{refuses: true, status: 200, health: 200}
		g := fake(t, outbound.UpstreamConfig{Name: "judge", Attempts: 1, HealthPath: "/v1/models", BreakMax: time.Hour}, p.trip)
		found := g.Look(t.Context())
		require.Len(t, found, 1)
		assert.Equal(t, "judge", found[0].Upstream)
		assert.Equal(t, "http://a", found[0].Endpoint)
		assert.True(t, found[0].Unreached)
		require.ErrorIs(t, found[0].Err, errRefused, "said as it is: %v", found[0].Err)
		assert.True(t, g.Dependency().Down, "before the first call")
		assert.Contains(t, g.Dependency().Last, "refused")
		assert.Zero(t, p.calls)

		changed := g.Dependency().Changed
		p.refuses = false
		require.NoError(t, g.Look(t.Context())[0].Err)
		<-changed
		assert.False(t, g.Dependency().Down, "nobody waits for a sample to find out")
		require.NoError(t, returning(t, g))
	})
}

// What else is wrong with an engine is said, and takes nothing from service: calls find out.
func TestALookSaysWhatElseIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		path   string
		want   string // "": nothing is wrong
	}{
		"it answers":           {func(*http.Request) (*http.Response, error) { return reply(200, `{"data":[]}`), nil }, "/v1/models", ""},
		"it has no such path":  {func(*http.Request) (*http.Response, error) { return reply(404, "no"), nil }, "/v1/models", ""},
		"it wants another key": {func(*http.Request) (*http.Response, error) { return reply(401, "no"), nil }, "/v1/models", ""},
		"it fails":             {func(*http.Request) (*http.Response, error) { return reply(500, "boom"), nil }, "/v1/models", "500"},
		"it is a page":         {func(*http.Request) (*http.Response, error) { return reply(200, "<html>"), nil }, "/v1/models", "did not answer with a JSON object"},
		"it hangs":             {hangs, "/v1/models", "did not answer within 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := fake(t, outbound.UpstreamConfig{HealthPath: c.path}, c.answer)
				start := time.Now()
				found := g.Look(t.Context())
				assert.LessOrEqual(t, time.Since(start), 2*time.Second)
				assert.False(t, g.Dependency().Down)
				assert.False(t, found[0].Unreached)
				if c.want == "" {
					require.NoError(t, found[0].Err)
					return
				}
				require.ErrorContains(t, found[0].Err, c.want)
			})
		})
	}
}

func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// One of two addresses that is not there takes nothing from the other. Later looks are at
// upstreams only of which nothing is in service.
func TestALookAtAllUpstreamsIsInOrderAndLaterOnesAreAtThoseThatAreDown(t *testing.T) {
	t.Parallel()
	tr, err := outbound.NewTransport(outbound.Policy{Allow: []string{"127.0.0.1"}})
	require.NoError(t, err)
	defer tr.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := "http://" + ln.Addr().String()
	require.NoError(t, ln.Close())
	there := served(t, outbound.UpstreamConfig{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })
	url := there.Stats().Endpoints[0].Endpoint
	for name, urls := range map[string][]string{"b": {nobody}, "a": {nobody, url}} {
		_, err := tr.Upstream(outbound.UpstreamConfig{Name: name, URLs: urls, HealthPath: "/v1/models"})
		require.NoError(t, err)
	}
	found := tr.Look(context.Background(), false)
	require.Len(t, found, 3)
	assert.Equal(t, "a", found[0].Upstream)
	require.Error(t, found[0].Err)
	require.NoError(t, found[1].Err)
	assert.Equal(t, "b", found[2].Upstream)
	require.ErrorContains(t, found[2].Err, "refused")
	again := tr.Look(context.Background(), true)
	require.Len(t, again, 1)
	assert.Equal(t, "b", again[0].Upstream)
}

// A service has no path to ask, and a request that it does not know may be a sample to it: it is
// connected to and sent nothing.
func TestALookAtAServiceOnlyConnects(t *testing.T) {
	t.Parallel()
	requests := 0
	g := served(t, outbound.UpstreamConfig{}, func(http.ResponseWriter, *http.Request) { requests++ })
	require.NoError(t, g.Look(t.Context())[0].Err)
	require.Zero(t, requests)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := ln.Addr().String()
	require.NoError(t, ln.Close())
	g = open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{"http://" + nobody}})
	found := g.Look(t.Context())[0]
	require.ErrorContains(t, found.Err, "refused")
	require.True(t, found.Unreached)
	require.True(t, g.Dependency().Down)
	again, err := net.Listen("tcp", nobody)
	require.NoError(t, err)
	defer again.Close()
	require.NoError(t, g.Look(t.Context())[0].Err)
	require.False(t, g.Dependency().Down)
}

// A page that quotes the key it was sent is shown without it.
func TestALookShowsNoKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte("sk-planted"), 0o600))
	g := fake(t, outbound.UpstreamConfig{HealthPath: "/v1/models", KeyFile: file}, func(r *http.Request) (*http.Response, error) {
		return reply(200, "<html>"+r.Header.Get("Authorization")), nil
	})
	err := g.Look(t.Context())[0].Err
	require.ErrorContains(t, err, "did not answer with a JSON object")
	require.NotContains(t, err.Error(), "sk-planted")
}
