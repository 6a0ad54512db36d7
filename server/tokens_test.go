package server_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
)

const (
	tokenA = "aaaaaaaaaaaaaaaa1"
	tokenB = "bbbbbbbbbbbbbbbb2"
	tokenC = "cccccccccccccccc3"
)

func TestATokenFileHasOneTokenOrNamedOnes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		tokenA + "\n":                          {"default"},
		"  " + tokenA + "  ":                   {"default"},
		"# one\n\n" + tokenA + "\n":            {"default"},
		"a:" + tokenA:                          {"a"},
		"a:" + tokenA + "\r\nb-2:" + tokenB:    {"a", "b-2"},
		"# team\na:" + tokenA + ":with:colons": {"a"},
	} {
		names, warnings, err := server.CheckTokenFile(tokenFile(t, text))
		require.NoError(t, err, text)
		assert.Equal(t, want, names, text)
		assert.Empty(t, warnings, text)
	}
	many := ""
	for i := range 65 {
		many += fmt.Sprintf("n%d:%s%d\n", i, tokenA, i)
	}
	for text, want := range map[string]string{
		"":                                     "the file has no token",
		"\n# nothing\n":                        "the file has no token",
		"a:" + tokenA + "\nb:" + tokenA:        "line 2: the token is on line 1 already",
		"a:" + tokenA + "\na:" + tokenB:        "line 2: the name a is on line 1 already",
		"a:" + tokenA + "\n" + tokenB:          "line 2: a token without a name must be the only token in its file",
		tokenA + "\n" + tokenB:                 "line 2: the name default is on line 1 already",
		"a b:" + tokenA:                        "line 1: want name:token",
		"a:two words that are long enough":     "line 1: a token is one word of printable ASCII",
		"a:":                                   "line 1: a has no token after the colon",
		many:                                   "65 tokens, want at most 64",
		strings.Repeat("#"+tokenA+"\n", 8<<10): "more than 65536 bytes",
	} {
		_, _, err := server.CheckTokenFile(tokenFile(t, text))
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), tokenA)
	}
	_, warnings, err := server.CheckTokenFile(tokenFile(t, "a:"+tokenA+"\nb:short"))
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "line 2: the token of b has 5 characters and can be guessed")
	assert.NotContains(t, warnings[0], "short")
}

func TestEachNamedTokenLetsInAndIsTheClientOfTheMetricsAndOfTheLog(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, "a:"+tokenA+"\nb:"+tokenB+"\n")
	said := new(logs)
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.TokenFile = file
		o.Log = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}})
	c, err := client.Dial(t.Context(), client.Config{URL: "ws" + s.url[4:], Run: "r", Token: tokenA})
	require.NoError(t, err)
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "1", Response: "x"}, time.Minute)
	require.NoError(t, err)
	_, err = f.Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	r := s.do(s.request(t.Context(), http.MethodPost, "/v1/score", []byte(`{"samples": [{"response": "x"}, {"response": "y"}]}`), "Authorization", "Bearer "+tokenB))
	require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
	r = s.do(s.request(t.Context(), http.MethodPost, "/v1/score", []byte(`{"samples": [{"response": "x"}], "reward": "none"}`), "Authorization", "Bearer "+tokenB))
	require.NotEqual(t, http.StatusOK, r.StatusCode, "%s", r.body)
	for shown, want := range map[string]int{"a:" + tokenA: http.StatusOK, tokenC: http.StatusUnauthorized, "a:" + tokenB: http.StatusUnauthorized, "a:": http.StatusUnauthorized, "a": http.StatusUnauthorized} {
		assert.Equal(t, want, s.get("/v1/runs", "Authorization", "Bearer "+shown).StatusCode, shown)
	}
	metrics := string(s.get("/metrics", "Authorization", "Bearer "+tokenA).body)
	assert.Contains(t, metrics, `rewardloop_loop_client_samples_total{client="a"} 1`)
	assert.Contains(t, metrics, `rewardloop_loop_client_samples_total{client="b"} 2`)
	require.Eventually(t, func() bool { return strings.Contains(said.String(), "stream ended") }, patience, time.Millisecond)
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "stream ended") {
			assert.Contains(t, line, "token_name=a")
		}
		if strings.Contains(line, "path=/v1/score") {
			assert.Contains(t, line, "token_name=b")
		}
		assert.NotContains(t, line, tokenA)
	}
}

func TestTokensChangeWithoutARestartAndABrokenFileKeepsTheOldOnes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	file := tokenFile(t, tokenA)
	said := new(logs)
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.TokenFile = file
		o.Log = slog.New(slog.NewTextHandler(said, nil))
	}})
	in := func(token string) bool {
		return s.get("/v1/runs", "Authorization", "Bearer "+token).StatusCode == http.StatusOK
	}
	require.True(t, in(tokenA))
	require.NoError(t, os.WriteFile(file, []byte("a:"+tokenB+"\nc:"+tokenC), 0o600))
	require.Eventually(t, func() bool { return in(tokenB) }, patience, 10*time.Millisecond)
	assert.True(t, in(tokenC))
	assert.False(t, in(tokenA))
	assert.Contains(t, said.String(), "the token file was reloaded")

	require.NoError(t, os.WriteFile(file, []byte("a:"+tokenA+"\na:"+tokenC), 0o600))
	require.Eventually(t, func() bool { _ = in(tokenB); return strings.Contains(said.String(), "cannot be used") }, patience, 10*time.Millisecond)
	assert.True(t, in(tokenB))
	assert.False(t, in(tokenA))
	require.NoError(t, os.Remove(file))
	gone := func() int { return strings.Count(said.String(), "cannot be used") }
	require.Eventually(t, func() bool { _ = in(tokenB); return gone() == 2 }, patience, 10*time.Millisecond)
	for begun := time.Now(); time.Since(begun) < 2500*time.Millisecond; time.Sleep(50 * time.Millisecond) { // it looks once more
		require.True(t, in(tokenB))
	}
	assert.Equal(t, 2, gone(), "it is said once: %s", said)
	require.NoError(t, os.WriteFile(file, []byte(tokenC), 0o600))
	require.Eventually(t, func() bool { return !in(tokenB) }, patience, 10*time.Millisecond)
	assert.True(t, in(tokenC))
}
