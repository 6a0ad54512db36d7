package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestFailuresOfAServerAreListed(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 8, 0, 1, 0, time.Local)
	list := []failures.Failure{{
		Reward: "judge", Component: "clip", Class: rewards.Internal, Count: 41, Scored: 3, Message: "Traceback\nValueError: row 7", First: at, Last: at.Add(time.Minute),
		Workers: []string{"w0", "w1"},
		Samples: []failures.Sample{{ID: "s-40", Run: "sd3", Step: 12, Split: rewards.Train, Attempts: 1, Outcome: rewards.Failed, At: at.Add(time.Minute)}},
	}, {
		Reward: "default", Class: rewards.Expired, Count: 1, Message: "it was queued", First: at, Last: at,
		Samples: []failures.Sample{{ID: "s-1", Run: "sd3", Step: 12, Split: rewards.Val, Attempts: 0, Outcome: rewards.OutcomeExpired, At: at}},
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/failures" || r.Header.Get("Authorization") != "Bearer a-token" {
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"total": 42, "failures": list})
	}))
	defer s.Close()
	token := put(t, t.TempDir(), "token", []byte("a-token\n"))
	got := call(t, "", "failures", "--server", s.URL, "--token-file", token)
	require.Equal(t, exitOK, got.code, got.stderr)
	assert.Equal(t, `41 samples, reward judge, clip: internal
  Traceback
  ValueError: row 7
  from 2026-11-22 08:00:01 to 2026-11-22 08:01:01, on w0, w1, 3 scored without the component
  08:01:01  run sd3, train step 12, sample s-40, failed after 1 attempt

1 sample, reward default, the sample as a whole: expired
  it was queued
  from 2026-11-22 08:00:01 to 2026-11-22 08:00:01
  08:00:01  run sd3, val step 12, sample s-1, expired after 0 attempts
`, got.stdout)
	one := call(t, "", "failures", "--server", s.URL, "--token-file", token, "--reward", "default", "--json")
	require.Equal(t, exitOK, one.code, one.stderr)
	var answer struct{ Failures []failures.Failure }
	require.NoError(t, json.Unmarshal([]byte(one.stdout), &answer))
	require.Len(t, answer.Failures, 1)
	none := call(t, "", "failures", "--server", s.URL, "--token-file", token, "--reward", "ocr")
	assert.Equal(t, "nothing has failed\n", none.stdout)

	refused := call(t, "", "failures", "--server", s.URL)
	assert.Equal(t, exitFailure, refused.code)
	assert.Contains(t, refused.stderr, "401")
	assert.Contains(t, refused.stderr, "the token is missing or wrong")
	wrong := call(t, "", "failures", "--server", "ftp://localhost:8080")
	assert.Equal(t, exitUsage, wrong.code)
	assert.Contains(t, wrong.stderr, "must be http://")
}
