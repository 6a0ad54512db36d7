package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
)

// small is a recorded step of three samples on one server.
func small(t *testing.T, run string, step int64) trace.Trace {
	t.Helper()
	s, err := sim.IdealQueue([]float64{1, 2, 3}, []float64{1, 1, 2}, 1)
	require.NoError(t, err)
	recorded := trace.FromSchedule(s)
	recorded.Run, recorded.Split, recorded.Step = run, "train", step
	return recorded
}

// traces serves the endpoint for one run, and keeps what it was asked.
func traces(t *testing.T, asked *[]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		switch {
		case strings.Contains(r.URL.Path, "/steps/99/"):
			http.Error(w, `{"code":"malformed","message":"no step 99"}`, http.StatusNotFound)
		case strings.Contains(r.URL.Path, "/steps/98/"):
			http.Redirect(w, r, "/v1/elsewhere", http.StatusFound)
		case strings.Contains(r.URL.Path, "/steps/97/"):
			_, _ = w.Write([]byte(`{"servers":1,"spans":[],"unknown":1}`))
		default:
			_ = small(t, "my run", 7).Write(w)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTheTraceOfAServersStepIsMeasuredSavedAndDrawn(t *testing.T) {
	t.Parallel()
	var asked []string
	url, dir := traces(t, &asked), t.TempDir()
	token := put(t, dir, "token", []byte("a-token\n"))
	out, chrome := filepath.Join(dir, "step.json"), filepath.Join(dir, "step.trace.json")
	got := call(t, "", "trace", "--server", url+"/", "--run", "my run", "--step", "7", "--token-file", token, "-o", out, "--chrome", chrome)
	require.Equal(t, exitOK, got.code, got.stderr)
	assert.Equal(t, []string{"/v1/runs/my%20run/steps/7/trace?split=train Bearer a-token"}, asked)
	for _, part := range []string{"run my run, train step 7", "3 samples (0 unscored) on 1 server", "exposed reward time 2.000 s", "ui.perfetto.dev"} {
		assert.Contains(t, got.stdout, part)
	}
	// Read back from the saved file, the report is the same.
	again := call(t, "", "trace", "-i", out)
	require.Equal(t, exitOK, again.code, again.stderr)
	assert.True(t, strings.HasPrefix(got.stdout, again.stdout), again.stdout)
	drawn, err := os.ReadFile(chrome)
	require.NoError(t, err)
	assert.True(t, json.Valid(drawn))
	saved, err := os.ReadFile(out)
	require.NoError(t, err)
	piped := call(t, string(saved), "trace", "-i", "-", "--json")
	require.Equal(t, exitOK, piped.code, piped.stderr)
	var rep trace.Report
	require.NoError(t, json.Unmarshal([]byte(piped.stdout), &rep))
	assert.InDelta(t, 2, rep.Exposed, 1e-12)
}

func TestSeveralStepsArePutTogether(t *testing.T) {
	t.Parallel()
	var asked []string
	url := traces(t, &asked)
	got := call(t, "", "trace", "--server", url, "--run", "r", "--step", "3-5")
	require.Equal(t, exitOK, got.code, got.stderr)
	assert.Len(t, asked, 3)
	assert.Contains(t, got.stdout, "all together: 3 steps")
	assert.Contains(t, got.stdout, "exposed reward time, s: p50 2.000, p99 2.000")
	got = call(t, "", "trace", "--server", url, "--run", "r", "--step", "3-5", "--json")
	var both struct {
		Summary trace.Summary
		Steps   []trace.Report
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &both))
	assert.Equal(t, 3, both.Summary.Steps)
	assert.Len(t, both.Steps, 3)
}

func TestATraceThatCannotBeHadSaysWhy(t *testing.T) {
	t.Parallel()
	var asked []string
	url, dir := traces(t, &asked), t.TempDir()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	file := put(t, dir, "half.json", []byte(`{"servers":`))
	empty := put(t, dir, "empty", []byte("\n"))
	for says, args := range map[string][]string{
		`404 Not Found: {"code":"malformed","message":"no step 99"}`: {"--server", url, "--run", "r", "--step", "99"},
		"302 Found":                  {"--server", url, "--run", "r", "--step", "98"},
		"unknown field":              {"--server", url, "--run", "r", "--step", "97"},
		"refused":                    {"--server", gone.URL, "--run", "r", "--step", "1"},
		"half.json":                  {"-i", file},
		"missing.json":               {"-i", filepath.Join(dir, "missing.json")},
		"does not contain one token": {"--server", url, "--run", "r", "--step", "1", "--token-file", empty},
		"no such file":               {"--server", url, "--run", "r", "--step", "1", "--token-file", filepath.Join(dir, "none")},
		"no such file or dir":        {"--server", url, "--run", "r", "--step", "1", "-o", filepath.Join(dir, "no", "step.json")},
	} {
		got := call(t, "", append([]string{"trace"}, args...)...)
		require.Equal(t, exitFailure, got.code, says)
		require.Contains(t, got.stderr, says)
	}
	for _, a := range asked {
		assert.NotContains(t, a, "elsewhere", "a redirection is not followed")
	}
	for says, args := range map[string][]string{
		"exclude each other":    {"-i", "a", "--server", url},
		"-i and --":             {"-i", "a", "--run", "r"},
		`--server "ftp://a"`:    {"--server", "ftp://a", "--run", "r", "--step", "1"},
		`--step "x"`:            {"--server", url, "--run", "r", "--step", "x"},
		`--step "5-3"`:          {"--server", url, "--run", "r", "--step", "5-3"},
		`--step "-3"`:           {"--server", url, "--run", "r", "--step", "-3"},
		"at most 1000 steps":    {"--server", url, "--run", "r", "--step", "1-5000"},
		"-o and --chrome hold":  {"--server", url, "--run", "r", "--step", "1-2", "-o", "x"},
		"name the same file":    {"-i", "a", "-o", "x", "--chrome", "x"},
		`unexpected "step.json`: {"-i", "a", "step.json"},
		`--split "test"`:        {"--server", url, "--run", "r", "--step", "1", "--split", "test"},
	} {
		got := call(t, "", append([]string{"trace"}, args...)...)
		require.Equal(t, exitUsage, got.code, says)
		require.Contains(t, got.stderr, says)
	}
}
