package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
)

// played has a run's step 3 of one sample scored by the server.
func played(t *testing.T, addr, run string) {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: run})
	require.NoError(t, err)
	defer c.Close()
	file, _ := drawing(t, 1)
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "a", Step: 3, Media: []*rewards.Media{{
		Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(file)}, Data: file,
	}}}, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := f.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, rewards.Scored, res.Outcome, "%v", res.Errors)
}

// asks runs a command against the server and returns what it prints; with --json into.
func asks(t *testing.T, addr string, into any, args ...string) string {
	t.Helper()
	args = append(args, "--server", addr) // without a scheme, as people write it
	if into != nil {
		args = append(args, "--json")
	}
	got := call(t, "", args...)
	require.Equal(t, exitOK, got.code, got.stderr)
	if into != nil {
		require.NoError(t, json.Unmarshal([]byte(got.stdout), into), got.stdout)
	}
	return got.stdout
}

func TestAServerThatRunsIsAskedForItsStatusRunsStepsAndLatestTrace(t *testing.T) {
	t.Parallel()
	_, addr := serving(t, "testdata/cfg.yaml")
	require.Contains(t, asks(t, addr, nil, "runs"), "the server has no run")
	played(t, addr, "my-run")

	text := asks(t, addr, nil, "status")
	require.Regexp(t, `^http://127.0.0.1:\d+  \S+  ready\n`, text)
	require.Contains(t, text, "\n  default  ok, 0 waiting, 0 with workers\n")
	require.Regexp(t, `\nworkers: \d+, with 0 samples\n`, text)
	require.Contains(t, text, "\npending: 0 samples, 0.0 MiB\n")
	require.Contains(t, text, "\nfailures: 0 in all\n")
	require.NotContains(t, text, "\x1b", "colours are for terminals")
	var s serverStatus
	asks(t, addr, &s, "status")
	require.True(t, s.Ready)
	require.Equal(t, "http://"+addr, s.Server)
	require.NotEmpty(t, s.Version)
	require.Len(t, s.Rewards, 1)
	require.NotEmpty(t, s.Workers)

	require.Regexp(t, `(?m)^my-run +\d +0 +0 +\S+ +train 3 +1 scored$`, asks(t, addr, nil, "runs"))
	var runs runList
	asks(t, addr, &runs, "runs")
	require.Equal(t, "my-run", runs.Runs[0].Run)

	for _, args := range [][]string{{"steps"}, {"steps", "my-run"}} {
		require.Regexp(t, `^run my-run: 1 step\n.*\ntrain 3 +- +1 +0 .* 1 scored\n$`, asks(t, addr, nil, args...))
	}
	var steps struct {
		Run   string
		Steps []loop.StepState
	}
	asks(t, addr, &steps, "steps")
	require.Equal(t, int64(3), steps.Steps[0].Step)

	for _, args := range [][]string{{"trace"}, {"trace", "--run", "my-run", "--step", "latest"}, {"trace", "--step", "3"}} {
		require.Contains(t, asks(t, addr, nil, args...), "run my-run, train step 3\n1 sample (0 unscored) on ")
	}
	var rep trace.Report
	asks(t, addr, &rep, "trace")
	require.Equal(t, 1, rep.Samples)
	for says, args := range map[string][]string{
		`has no run "my-rum"; did you mean my-run?`: {"steps", "my-rum"},
		`run "my-run" has no complete val step`:     {"trace", "--split", "val"},
	} {
		got := call(t, "", append(args, "--server", addr)...)
		require.Equal(t, exitFailure, got.code)
		require.Contains(t, got.stderr, says)
	}
}

func TestAServerThatIsNotThereIsSaidInOneLine(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, command := range []string{"status", "runs", "steps", "trace", "failures", "reload"} {
		got := call(t, "", command, "--server", gone.URL)
		require.Equal(t, exitFailure, got.code)
		require.Regexp(t, "^rewardloop "+command+": no server answers at "+gone.URL+` \(.*connection refused\): start one with `+"`rewardloop serve`, or name the server's address with --server\n$", got.stderr)
	}
}

func TestAServerIsShownTheTokenOfTheFlagElseOfTheEnvironment(t *testing.T) {
	t.Parallel()
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"runs": []}`))
	}))
	defer s.Close()
	dir := t.TempDir()
	file, flag := put(t, dir, "file", []byte("of-file\n")), put(t, dir, "flag", []byte("of-flag\n"))
	for want, vars := range map[string]map[string]string{
		"": {}, "Bearer of-variable": {"REWARDLOOP_TOKEN": "of-variable"},
		"Bearer of-file": {"REWARDLOOP_TOKEN": "of-variable", "REWARDLOOP_TOKEN_FILE": file},
		"Bearer of-flag": {"REWARDLOOP_TOKEN": "of-variable", "REWARDLOOP_TOKEN_FILE": file, "flag": flag},
	} {
		args := []string{"runs", "--server", s.URL}
		if vars["flag"] != "" {
			args = append(args, "--token-file", vars["flag"])
		}
		var stdout, stderr lockedBuffer
		code := run(t.Context(), args, env{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, getenv: func(name string) (string, bool) {
			v, ok := vars[name]
			return v, ok
		}})
		require.Equal(t, exitOK, code, stderr.String())
		require.Equal(t, want, asked)
	}
}

// What fails and what waits is on the screen, and the exit code says that it is not ready.
func TestTheStatusOfAServerThatIsNotReadySaysWhy(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{
			"/":            `{"service": "rewardloop", "version": "v9"}`,
			"/readyz":      `{"ready": false, "reasons": ["none of 1 workers is ready"], "rewards": [{"reward": "judge", "state": "stopped", "why": "its engine is down", "waiting": 7}]}`,
			"/v1/workers":  `{"workers": [{"id": "w0", "state": "sick", "busy": 1}], "breakers": [{"worker": "w0", "reward": "judge", "reason": "5 in a row"}]}`,
			"/v1/pending":  `{"total": 7, "held_bytes": 1048576, "samples": [{"id": "s-1", "run": "r", "step": 2, "stage": "queued", "age_ms": 2000, "waits": "no worker takes it"}]}`,
			"/v1/failures": `{"total": 3, "failures": [{"reward": "judge", "class": "internal", "count": 3, "message": "f.py:f: ValueError: row 7\nTraceback"}]}`,
			"/v1/overview": `{"store": {"on": true, "file": "kept.db", "rows": 74, "limit_bytes": 2147483648, "dropped": 5, "error": "database or disk is full (13)"}}`,
		}
		if r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	}))
	defer s.Close()
	got := call(t, "", "status", "--server", s.URL)
	require.Equal(t, exitFailure, got.code)
	require.Empty(t, got.stderr)
	for _, part := range []string{
		"  v9  not ready\n  none of 1 workers is ready\n", "  judge  stopped, 7 waiting, 0 with workers: its engine is down\n",
		"workers: 1, with 1 sample\n  w0  sick\n  w0  gets no samples of judge: 5 in a row\n",
		"pending: 7 samples, 1.0 MiB\n  run r, step 2, s-1  queued for 2s: no worker takes it\n", "failures: 3 in all\n", "3 × judge internal: f.py:f: ValueError: row 7\n",
		"store: 74 results in kept.db, 0.0 of 2.0 GiB\n  results cannot be written: database or disk is full (13)\n  5 results left out since the server started\n",
	} {
		require.Contains(t, got.stdout, part)
	}
}
