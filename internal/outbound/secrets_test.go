package outbound_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

func keyFile(t *testing.T, key string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(key), 0o600))
	return path
}

func TestTheKeyAndThePasswordAreSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url, key, want string
	}{
		"key":      {"http://a", " sk-123\n", "Bearer sk-123"},
		"password": {"http://me:p%40ss@a", "", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:p@ss"))},
		"neither":  {"http://a", "", ""},
	} {
		cfg := outbound.UpstreamConfig{URLs: []string{c.url}}
		if c.key != "" {
			cfg.KeyFile = keyFile(t, c.key)
		}
		g := fake(t, cfg, func(r *http.Request) (*http.Response, error) {
			assert.Nil(t, r.URL.User)
			return reply(200, r.Header.Get("Authorization")), nil
		})
		answer, err := ask(t, g)
		require.NoError(t, err)
		assert.Equal(t, c.want, string(answer.Body), name)
		assert.Equal(t, "http://a", answer.Endpoint)
	}
}

func TestAKeyFileThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"": "empty", " \n": "empty", "two words": "more than one word", "a\nb": "more than one word", "k\u00e9y": "more than one word",
		strings.Repeat("k", 8193): "longer than 8192 bytes",
	} {
		_, err := outbound.NewTestTransport(nil).Upstream(outbound.UpstreamConfig{URLs: []string{"http://a"}, KeyFile: keyFile(t, content)})
		require.ErrorContains(t, err, want)
	}
	_, err := outbound.NewTestTransport(nil).Upstream(outbound.UpstreamConfig{URLs: []string{"http://a"}, KeyFile: filepath.Join(t.TempDir(), "missing")})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestARotatedKeyIsReadAgain(t *testing.T) {
	t.Parallel()
	file := keyFile(t, "old")
	var mu sync.Mutex
	valid := "old"
	g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a"}, KeyFile: file, Attempts: 1}, func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+valid {
			return reply(401, "wrong key"), nil
		}
		return reply(200, ""), nil
	})
	_, err := ask(t, g)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("new"), 0o600))
	mu.Lock()
	valid = "new"
	mu.Unlock()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			answer, err := ask(t, g)
			if assert.NoError(t, err) {
				assert.LessOrEqual(t, answer.Attempts, 2)
			}
		})
	}
	wg.Wait()
	before := g.Stats().Endpoints[0].Requests
	_, err = ask(t, g)
	require.NoError(t, err)
	assert.Equal(t, before+1, g.Stats().Endpoints[0].Requests)

	mu.Lock()
	valid = "unknown to us"
	mu.Unlock()
	_, err = ask(t, g)
	require.ErrorIs(t, err, rewards.Internal)
	require.ErrorContains(t, err, "401 Unauthorized: wrong key; check the key in "+file)
	require.NoError(t, os.Remove(file))
	_, err = ask(t, g)
	require.ErrorContains(t, err, "reading the key again")
}

func TestSecretsAreNeverSaid(t *testing.T) {
	t.Parallel()
	const key, password, token, org = "sk-very-secret-key", "p@ss word", "query-token-1", "header-secret-2"
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	secrets := []string{key, password, url.QueryEscape(password), url.PathEscape(password), token, org, basic}
	everything := strings.Join(secrets, " ") + strings.Repeat("-", 160) + key
	withKey := outbound.UpstreamConfig{
		URLs: []string{"http://a/v1?api_key=" + token + "&model=m"}, KeyFile: keyFile(t, key), Attempts: 1,
	}
	withUser := withKey
	withUser.URLs = []string{"http://me:" + url.PathEscape(password) + "@a/v1?api_key=" + token}
	withUser.KeyFile = ""
	for name, trip := range map[string]tripFunc{
		"an answer that quotes them": func(*http.Request) (*http.Response, error) { return reply(500, everything), nil },
		"a redirect":                 func(*http.Request) (*http.Response, error) { return reply(302, "", "Location: http://"+key+"/"), nil },
		"an error of the network":    func(*http.Request) (*http.Response, error) { return nil, errors.New(everything) },
		"check":                      func(*http.Request) (*http.Response, error) { return reply(200, everything), nil },
		"an encoding":                func(*http.Request) (*http.Response, error) { return reply(200, "", "Content-Encoding: "+key), nil },
	} {
		for _, cfg := range []outbound.UpstreamConfig{withKey, withUser} {
			mine := []string{key[:len(key)-1], token, org} // Nor the beginning of one that was cut.
			if cfg.KeyFile == "" {
				mine = secrets[1:]
			}
			g := fake(t, cfg, trip)
			_, err := g.Do(t.Context(), &outbound.Call{Path: "/chat", Header: http.Header{"x-api-key": {org}}, Check: func(a *outbound.Answer) error {
				return fmt.Errorf("%w: the answer is %s", rewards.InvalidScore, a.Body)
			}})
			require.Error(t, err, name)
			stats := fmt.Sprintf("%+v", g.Stats())
			for _, s := range mine {
				assert.NotContains(t, err.Error(), s, name)
				assert.NotContains(t, stats, s, name)
			}
			require.ErrorContains(t, err, "http://a/v1/chat")
		}
	}
}

func TestWhatTheHeaderOfOneCallHeldIsNotToldToAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const token = "token-of-one-caller"
		g := fake(t, outbound.UpstreamConfig{Attempts: 1, BreakAfter: 1, BreakMin: time.Hour, BreakMax: time.Hour}, func(*http.Request) (*http.Response, error) {
			return reply(503, "who is "+token), nil
		})
		_, err := g.Do(t.Context(), &outbound.Call{Header: http.Header{"X-Auth-Token": {token}}})
		require.ErrorContains(t, err, "503 Service Unavailable: who is ***")
		_, err = g.Do(in(t, time.Minute), &outbound.Call{})
		require.ErrorContains(t, err, "out of service")
		require.ErrorContains(t, err, "who is ***")
	})
}
