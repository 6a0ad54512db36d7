package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/server/compat"
)

// A protocol is a row of compat's table: its routes, the form of its refusals and what the
// page says of it follow from the row, whatever is in the table.
func TestEveryRowOfTheTableHasItsRoutesItsFormAndItsPlaceOnThePage(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, secret)
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.TokenFile = file }})
	var page struct {
		Score, State []string
		Systems      map[string]string
	}
	require.NoError(t, json.Unmarshal(s.get("/", "Authorization", "Bearer "+secret).body, &page))
	require.NoError(t, s.Drain(t.Context()))
	for _, p := range compat.Protocols() {
		for _, path := range p.Paths {
			assert.Equal(t, p.System, page.Systems[path])
			url := strings.ReplaceAll(path, "{name}", "looks")
			if p.Method == http.MethodGet {
				assert.Contains(t, page.State, path)
				assert.NotEqual(t, http.StatusNotFound, s.get(url, "Authorization", "Bearer "+secret).StatusCode, path)
				continue
			}
			assert.Contains(t, page.Score, path)
			for _, url := range []string{url, "/" + url + "/"} {
				for header, status := range map[string]int{"": http.StatusUnauthorized, "Bearer " + secret: http.StatusServiceUnavailable} {
					r := s.post(url, []byte("{}"), "Authorization", header)
					if p.Form == compat.Pickle {
						r.refused(t, status)
					} else {
						r.jsonError(t, status)
					}
				}
			}
		}
	}
}
