package judge_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
)

// throughGroup wires scorers to a server by the upstreams that ship.
func throughGroup(t *testing.T, h http.HandlerFunc, cfg outbound.UpstreamConfig) judge.Deps {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	transport, err := outbound.NewTransport(outbound.Policy{Allow: []string{"127.0.0.0/8"}})
	require.NoError(t, err)
	t.Cleanup(transport.Close)
	cfg.URLs, cfg.BackoffMin, cfg.BackoffMax = []string{srv.URL}, time.Millisecond, time.Millisecond
	group, err := transport.Upstream(cfg)
	require.NoError(t, err)
	c, err := chat.New(chat.Config{}, group)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return judge.Deps{
		Clients: chat.ClientsFunc(func(chat.Endpoint) (chat.Chatter, error) { return c, nil }),
		Engines: enginesFunc(func(chat.Endpoint) (outbound.Doer, string, error) { return group, "m", nil }),
	}
}

func TestAnEngineInTroubleIsAskedAgainAndNoScoreInvented(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	trouble := func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			_, _ = io.WriteString(w, "<html>502 Bad Gateway</html>")
		case 3: // reset in the middle of the body
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, says("HELLO"))
		case 4:
			_, _ = io.WriteString(w, `{"error": {"message": "CUDA out of memory"}}`)
		default:
			_, _ = io.WriteString(w, says("HELLO"))
		}
	}
	sc := build(t, throughGroup(t, trouble, outbound.UpstreamConfig{Attempts: 5}), "genrm_ocr", `{}`)
	got, err := sc.Score(t.Context(), video(1))
	require.NoError(t, err)
	assert.InDelta(t, 1.0, got.Value, 0)
	assert.EqualValues(t, 5, n.Load())

	n.Store(0)
	sc = build(t, throughGroup(t, trouble, outbound.UpstreamConfig{Attempts: 4}), "genrm_ocr", `{}`)
	_, err = sc.Score(t.Context(), video(1))
	require.ErrorIs(t, err, rewards.Unavailable)
	assert.Contains(t, err.Error(), "CUDA out of memory")
	assert.EqualValues(t, 4, n.Load())
}

func TestAnEngineThatRefusesAPictureFailsTheSampleAtOnce(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error": {"message": "cannot identify image file"}}`)
	}
	for _, tt := range []struct {
		scorer string
		sample *rewards.Sample
	}{{"genrm_ocr", video(1)}, {"disrm", said("2")}} {
		n.Store(0)
		_, err := build(t, throughGroup(t, refuse, outbound.UpstreamConfig{}), tt.scorer, `{}`).Score(t.Context(), tt.sample)
		require.Error(t, err)
		blame, _ := rewards.BlameOf(err)
		assert.Equal(t, rewards.BlameSample, blame, "%v", err)
		assert.Contains(t, err.Error(), "cannot identify image file")
		assert.EqualValues(t, 1, n.Load())
	}
}

func TestAnEngineThatHangsCostsNoMoreThanTheDeadline(t *testing.T) {
	t.Parallel()
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	sc := build(t, throughGroup(t, hang, outbound.UpstreamConfig{}), "genrm_ocr", `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := sc.Score(ctx, video(9))
	assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
}
