package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server"
)

func TestAReloadIsAnsweredWithWhatItDidOrEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	var did server.Reloaded
	var wrong error
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Reload = func(context.Context) (server.Reloaded, error) { return did, wrong }
	}})
	require.JSONEq(t, `{"applied":[],"restart":[]}`, string(s.post("/v1/reload", nil).body))
	did = server.Reloaded{Applied: []string{"a"}, Restart: []string{"b", "c"}}
	require.JSONEq(t, `{"applied":["a"],"restart":["b","c"]}`, string(s.post("/v1/reload", nil).body))
	wrong = errors.New("line 1: this\nline 2: that")
	code, message := s.post("/v1/reload", nil).jsonError(t, http.StatusUnprocessableEntity)
	require.Equal(t, "bad_configuration", code)
	require.Equal(t, wrong.Error(), message)
	none := newSite(t, siteOptions{})
	code, _ = none.post("/v1/reload", nil).jsonError(t, http.StatusNotFound)
	require.Equal(t, "no_reload", code)
}

func TestReloadsAreDoneOneAtATime(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Reload = func(context.Context) (server.Reloaded, error) {
			close(begun)
			<-end
			return server.Reloaded{}, nil
		}
	}})
	first := make(chan int, 1)
	go func() { first <- s.post("/v1/reload", nil).StatusCode }() // ends with the test
	<-begun
	again := s.post("/v1/reload", nil)
	code, _ := again.jsonError(t, http.StatusServiceUnavailable)
	require.Equal(t, "reloading", code)
	require.NotEmpty(t, again.Header.Get("Retry-After"))
	close(end)
	require.Equal(t, http.StatusOK, <-first)
}

func TestRewardsAreShownAsTheyWereDescribedLast(t *testing.T) {
	t.Parallel()
	var all []server.Profile
	s := newSite(t, siteOptions{server: func(o *server.Options) { all = o.Profiles }})
	all = append([]server.Profile(nil), all...)
	for i := range all {
		all[i].Components = []server.Component{{Key: "main", Weight: 7.5}}
	}
	s.Describe(all)
	var shown struct{ Rewards []server.Profile }
	require.NoError(t, json.Unmarshal(s.get("/v1/scorers").body, &shown))
	require.InDelta(t, 7.5, shown.Rewards[0].Components[0].Weight, 0)
}
