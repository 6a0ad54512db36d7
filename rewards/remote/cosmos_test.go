package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// queue is a cosmos-rl reward service whose result is there after some looks.
func queue(t *testing.T, looks int, result string) *service {
	t.Helper()
	pulled := 0
	return serve(t, func(_ int, r request) (int, []byte) {
		if r.path == "/api/reward/enqueue" {
			return 200, []byte(`{"uuid":"u-1","replica_id":"r7"}`)
		}
		if pulled++; pulled <= looks {
			return http.StatusBadRequest, []byte(`{"message":"Not found scores for u-1"}`)
		}
		return 200, []byte(result)
	})
}

func TestCosmosHandsInThePictureAndAsksUntilTheScoreIsThere(t *testing.T) {
	t.Parallel()
	srv := queue(t, 1, `{"scores":{"hpsv2":[0.25]},"type":"hpsv2","duration":"0.3"}`)
	s := sample(t)
	score, err := scorer(t, srv, options{"protocol": "cosmos", "reward": "hpsv2"}).Score(t.Context(), s)
	require.NoError(t, err)
	assert.InDelta(t, 0.25, score.Value, 0)
	sent := srv.requests()
	require.Len(t, sent, 3)
	line, npy, ok := bytes.Cut(sent[0].body, []byte("\n"))
	require.True(t, ok)
	assert.JSONEq(t, `{"media_type":"image","prompts":["a red fox"],"reward_fn":{"hpsv2":1}}`, string(line))
	assert.Equal(t, "application/octet-stream", sent[0].header.Get("Content-Type"))
	require.Equal(t, "\x93NUMPY\x01\x00v\x00", string(npy[:10]), "118 bytes of header: 128 in all")
	assert.Equal(t, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 6, 8, 3), }", string(bytes.TrimSpace(npy[10:128])))
	assert.Equal(t, byte('\n'), npy[127])
	assert.Equal(t, s.Media[0].Data, npy[128:])
	for _, r := range sent[1:] {
		assert.Equal(t, "/api/reward/pull", r.path)
		form, err := url.ParseQuery(string(r.body))
		require.NoError(t, err)
		assert.Equal(t, url.Values{"uuid": {"u-1"}, "type": {"hpsv2"}}, form)
		assert.Equal(t, "r7", r.header.Get("X-Lepton-Replica-Target"), "to the server that has the result")
	}
}

func TestCosmosAddsTheScoresItIsToldTo(t *testing.T) {
	t.Parallel()
	result := `{"scores":{"vq_reward":[1.5],"mq_reward":[-1],"bad":[null],"two":[1,2]}}`
	o := options{"protocol": "cosmos", "reward": "dance_grpo", "score_key": "vq_reward+mq_reward", "extras": []options{{"name": "vq_reward"}}}
	score, err := scorer(t, queue(t, 0, result), o).Score(t.Context(), sample(t))
	require.NoError(t, err)
	assert.InDelta(t, 0.5, score.Value, 0)
	assert.Equal(t, map[string]any{"vq_reward": 1.5}, score.Extra)
	for key, says := range map[string]string{"": "name one in score_key", "vq_reward+bad": "None, want a number", "two": "2 elements", "gone": `no "gone"`} {
		score, err := scorer(t, queue(t, 0, result), o.with(options{"score_key": key})).Score(t.Context(), sample(t))
		requireFailure(t, rewards.InvalidScore, score, err, says)
	}
}

func TestCosmosFailsByWhatTheServiceSays(t *testing.T) {
	t.Parallel()
	o := options{"protocol": "cosmos", "reward": "hpsv2"}
	for _, tt := range []struct {
		enqueue, pull int
		ticket        string
		class         rewards.Class
	}{
		{200, 500, `{"uuid":"u"}`, rewards.Unavailable},
		{200, 404, `{"uuid":"u"}`, rewards.Internal},
		{200, 503, `{"uuid":"u"}`, rewards.Unavailable},
		{500, 200, `{"detail":"Internal error"}`, rewards.Unavailable},
		{200, 200, `{"uuid":7}`, rewards.InvalidScore},
		{200, 200, `{"uuid":"u","replica_id":"a\r\nX: y"}`, rewards.InvalidScore},
		{200, 200, `<html>`, rewards.Unavailable},
		{200, 200, `{"uuid":"u"}`, rewards.InvalidScore}, // its result has no scores
	} {
		srv := serve(t, func(_ int, r request) (int, []byte) {
			if r.path == "/api/reward/enqueue" {
				return tt.enqueue, []byte(tt.ticket)
			}
			return tt.pull, []byte(`{"message":"no"}`)
		})
		score, err := scorer(t, srv, o).Score(t.Context(), sample(t))
		requireFailure(t, tt.class, score, err)
	}
	s := sample(t)
	s.Media = []*rewards.Media{video(t, 2)}
	score, err := scorer(t, says(t, nil), o).Score(t.Context(), s)
	requireFailure(t, rewards.BadInput, score, err, "video")
}

// neverReady takes a sample and has no result for it, without a network.
type neverReady struct{ pulls []time.Time }

func (n *neverReady) Do(_ context.Context, c *outbound.Call) (*outbound.Answer, error) {
	if c.Path == "/api/reward/enqueue" {
		a := &outbound.Answer{Status: 200, Body: []byte(`{"uuid":"u"}`)}
		return a, c.Check(a)
	}
	n.pulls = append(n.pulls, time.Now())
	if !c.Statuses(http.StatusBadRequest) {
		return nil, fmt.Errorf("%w: 400", rewards.Internal)
	}
	return &outbound.Answer{Status: http.StatusBadRequest, Endpoint: "http://h"}, nil
}

func TestAResultThatNeverComesIsATimeoutAndIsAskedForLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &neverReady{}
		sc, err := buildNamed(t, "http", &groups{doer: n}, options{"protocol": "cosmos", "reward": "r", "url": "http://h"})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(cpu.With(t.Context(), fair.NewGate(2)), 10*time.Second)
		defer cancel()
		begin := time.Now()
		score, err := sc.Score(ctx, sample(t))
		requireFailure(t, rewards.Timeout, score, err, "http://h has not scored u")
		assert.Equal(t, 10*time.Second, time.Since(begin))
		var at []time.Duration
		for _, p := range n.pulls {
			at = append(at, p.Sub(begin)/time.Millisecond)
		}
		assert.Equal(t, []time.Duration{0, 200, 600, 1400, 3000, 5000, 7000, 9000}, at)
	})
}
