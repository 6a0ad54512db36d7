package server_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server"
)

type operation struct {
	Summary, OperationID string
	Tags                 []string
	Parameters           []struct{ Name, In string }
	Responses            map[string]json.RawMessage
	Security             *[]json.RawMessage
}

type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]json.RawMessage }
}

func documentOf(t *testing.T, text []byte) (d document) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func TestEveryRouteIsInTheDocumentAndNothingElse(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, secret)
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.TokenFile, o.Claims = file, http.NotFoundHandler() }})
	assert.Equal(t, http.StatusUnauthorized, s.get("/openapi.json").StatusCode, "it is behind the token")
	d := documentOf(t, s.get("/openapi.json", "Authorization", "Bearer "+secret).body)
	assert.Equal(t, "3.1.0", d.OpenAPI)
	var have []string
	for path, methods := range d.Paths {
		for method := range methods {
			have = append(have, strings.ToUpper(method)+" "+path)
		}
	}
	want := slices.DeleteFunc(s.Routes(), func(r string) bool { return strings.HasPrefix(r, http.MethodHead+" ") })
	assert.ElementsMatch(t, want, have, "describe a route in described (server/openapi.go), and what is gone no more")
}

func TestTheDocumentIsWholeInItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	text := s.get("/openapi.json").body
	d := documentOf(t, text)
	assert.NotContains(t, d.Paths, "/v1/claim", "this process gives nothing to others")
	parameter := regexp.MustCompile(`\{(\w+)\}`)
	seen := map[string]bool{}
	for path, methods := range d.Paths {
		for method, o := range methods {
			at := method + " " + path
			assert.True(t, strings.HasSuffix(o.Summary, "."), "%s: a sentence", at)
			assert.NotEmpty(t, o.Tags, at)
			assert.False(t, seen[o.OperationID], "%s: %s", at, o.OperationID)
			seen[o.OperationID] = true
			assert.Contains(t, o.Responses, "200", at)
			assert.Contains(t, o.Responses, "default", at)
			var named []string
			for _, p := range o.Parameters {
				if p.In == "path" {
					named = append(named, "{"+p.Name+"}")
				}
			}
			assert.ElementsMatch(t, parameter.FindAllString(path, -1), named, at)
		}
	}
	require.NotNil(t, d.Paths["/healthz"]["get"].Security)
	assert.Empty(t, *d.Paths["/healthz"]["get"].Security, "it needs no token")
	assert.Nil(t, d.Paths["/v1/runs"]["get"].Security)
	refs := regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllSubmatch(text, -1)
	require.NotEmpty(t, refs)
	used := map[string]bool{}
	for _, m := range refs {
		assert.Contains(t, d.Components.Schemas, string(m[1]))
		used[string(m[1])] = true
	}
	for name, schema := range d.Components.Schemas {
		assert.True(t, used[name], "%s is used", name)
		assert.NotEqual(t, "null", string(schema), name)
	}
}
