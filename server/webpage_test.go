package server_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/web"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestABrowserGetsThePageAndItsFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	r := s.get("/", "Accept", browser)
	require.Equal(t, http.StatusOK, r.StatusCode)
	assert.Equal(t, "text/html; charset=utf-8", r.Header.Get("Content-Type"))
	assert.Equal(t, web.Policy, r.Header.Get("Content-Security-Policy"))
	assert.NotContains(t, web.Policy, "unsafe")
	assert.Equal(t, "no-store", r.Header.Get("Cache-Control"), "its names of files change with the program")
	assert.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"))
	assert.Contains(t, r.Header.Get("Vary"), "Accept")
	assert.Contains(t, string(r.body), `<a href="?plain">`, "without scripts")
	named := regexp.MustCompile(`"(assets/[^"]*)"`).FindAllStringSubmatch(string(r.body), -1)
	require.NotEmpty(t, named)
	for _, n := range named {
		path := "/" + n[1]
		f := s.get(path)
		require.Equal(t, http.StatusOK, f.StatusCode, path)
		assert.NotEmpty(t, f.body)
		assert.Regexp(t, `^text/(javascript|css); charset=utf-8$`, f.Header.Get("Content-Type"))
		assert.Equal(t, "public, max-age=31536000, immutable", f.Header.Get("Cache-Control"))
		assert.Equal(t, "nosniff", f.Header.Get("X-Content-Type-Options"))
		tag := f.Header.Get("ETag")
		require.NotEmpty(t, tag)
		again := s.get(path, "If-None-Match", tag)
		assert.Equal(t, http.StatusNotModified, again.StatusCode, path)
		assert.Empty(t, again.body)
	}
}

func TestAFileThatThePageDoesNotHaveIsNotFound(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	for _, path := range []string{"/assets/app.js", "/assets/", "/assets/..", "/assets/%2e%2e%2findex.html", "/assets/index.html", "/assets/a/b"} {
		r := s.get(path)
		assert.Equal(t, http.StatusNotFound, r.StatusCode, path)
		assert.Equal(t, "no-store", r.Header.Get("Cache-Control"), path)
	}
}

// The page is the same for everybody, and asks for the token itself; what it shows is not.
func TestThePageNeedsNoTokenAndTheStateDoes(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, secret)
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.TokenFile = file }})
	r := s.get("/", "Accept", browser)
	require.Equal(t, http.StatusOK, r.StatusCode)
	asset := regexp.MustCompile(`assets/[^"]*\.js`).FindString(string(r.body))
	assert.Equal(t, http.StatusOK, s.get("/"+asset).StatusCode)
	for _, path := range []string{"/?plain", "/v1/overview", "/v1/runs", "/v1/pending"} {
		refused := s.get(path, "Accept", browser)
		assert.Equal(t, http.StatusUnauthorized, refused.StatusCode, path)
		scheme := "Bearer "
		if path == "/?plain" {
			scheme = "Basic "
		}
		assert.True(t, strings.HasPrefix(refused.Header.Get("WWW-Authenticate"), scheme), "%s: a browser asks for a name and a token where no script can", path)
	}
	assert.Equal(t, http.StatusUnauthorized, s.get("/").StatusCode, "the list of endpoints")
	assert.Equal(t, http.StatusUnauthorized, s.post("/", nil, "Accept", browser).StatusCode, "samples")
	assert.Equal(t, http.StatusOK, s.get("/?plain", "Accept", browser, "Authorization", "Bearer "+secret).StatusCode)
}
