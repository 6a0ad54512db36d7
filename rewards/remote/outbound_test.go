package remote_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/remote"
)

// network is what the program hands in: upstreams of package outbound.
type network struct{ transport *outbound.Transport }

func (n network) Upstream(urls []string, o remote.UpstreamOptions) (outbound.Doer, error) {
	return n.transport.Upstream(outbound.UpstreamConfig{
		URLs: urls, KeyFile: o.KeyFile, Concurrency: o.Concurrency, RPM: o.RPM, Timeout: o.Timeout, Attempts: o.Attempts,
		BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
	})
}

func overNetwork(t *testing.T, url string, o options) rewards.Scorer {
	t.Helper()
	transport, err := outbound.NewTransport(outbound.Policy{})
	require.NoError(t, err)
	t.Cleanup(transport.Close)
	sc, err := buildNamed(t, "http", network{transport}, options{"url": url}.with(o))
	require.NoError(t, err)
	return sc
}

func TestOverARealGroupWhatMayPassIsSentAgainAndWhatMayNotIsNot(t *testing.T) {
	t.Parallel()
	good := pickled(t, dict("scores", list(0.5)))
	type answer struct {
		status int
		body   []byte
	}
	for name, tt := range map[string]struct {
		first answer
		class rewards.Class // "": the second request scores
	}{
		"busy":             {answer{503, nil}, ""},
		"too many":         {answer{429, nil}, ""},
		"a truncated body": {answer{200, good[:10]}, ""},
		"a page":           {answer{200, []byte("<html>starting")}, ""},
		"a traceback":      {answer{500, pickled(t, dict("error", "CUDA out of memory"))}, rewards.Unavailable},
		"not this sample":  {answer{400, pickled(t, dict("error", "CUDA out of memory"))}, rewards.BadInput},
		"an error":         {answer{200, pickled(t, dict("error", "CUDA out of memory"))}, rewards.Internal},
		"NaN":              {answer{200, pickled(t, dict("scores", list("CUDA out of memory")))}, rewards.InvalidScore},
		"not found":        {answer{404, []byte("CUDA out of memory")}, rewards.Internal},
		"a gigabyte":       {answer{200, make([]byte, 9<<20)}, rewards.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(n int, _ request) (int, []byte) {
				if n == 0 {
					return tt.first.status, tt.first.body
				}
				return http.StatusOK, good
			})
			score, err := overNetwork(t, srv.URL, options{"protocol": "deepgen"}).Score(t.Context(), sample(t))
			if tt.class == "" {
				require.NoError(t, err)
				assert.InDelta(t, 0.5, score.Value, 0)
				assert.Len(t, srv.requests(), 2)
				return
			}
			requireFailure(t, tt.class, score, err)
			assert.Len(t, srv.requests(), 1, "another attempt is the caller's decision")
		})
	}
}

func TestOverARealGroupARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{}, 1)
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	t.Cleanup(target.Close)
	srv := httptest.NewServer(http.RedirectHandler(target.URL, http.StatusTemporaryRedirect))
	t.Cleanup(srv.Close)
	score, err := overNetwork(t, srv.URL, options{"protocol": "deqa"}).Score(t.Context(), sample(t))
	requireFailure(t, rewards.Internal, score, err)
	assert.Empty(t, reached)
}

func TestOverARealGroupBuildingReachesNobody(t *testing.T) {
	t.Parallel()
	srv := says(t, nil)
	overNetwork(t, srv.URL, options{"protocol": "deqa"})
	assert.Empty(t, srv.requests())
}
