package remote_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/remote"
)

// verlRow is what testdata/make_verl_sandbox.py writes.
type verlRow struct {
	Name       string            `json:"name"`
	Completion string            `json:"completion"`
	TestCases  json.RawMessage   `json:"test_cases"`
	Continuous bool              `json:"continuous"`
	Answers    []json.RawMessage `json:"answers"`
	Requests   []map[string]any  `json:"requests"`
	Score      float64           `json:"score"`
	Statuses   []string          `json:"statuses"`
}

func verlRows(t *testing.T) []verlRow {
	t.Helper()
	data, err := os.ReadFile("testdata/verl_sandbox.jsonl")
	require.NoError(t, err)
	var rows []verlRow
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r verlRow
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		rows = append(rows, r)
	}
	require.NoError(t, lines.Err())
	require.Greater(t, len(rows), 20)
	return rows
}

// server answers a request with the answer that verl got for the same one.
func (r verlRow) server(t *testing.T) *service {
	t.Helper()
	return serve(t, func(_ int, got request) (int, []byte) {
		var body map[string]any
		if err := json.Unmarshal(got.body, &body); err != nil {
			return http.StatusBadRequest, []byte(err.Error())
		}
		for i, want := range r.Requests {
			if want["code"] == nil {
				body["code"] = nil
			}
			if assert.ObjectsAreEqual(want, body) {
				return http.StatusOK, r.Answers[i]
			}
		}
		return http.StatusTeapot, append([]byte("verl does not send this: "), got.body...)
	})
}

func sandbox(t *testing.T, url string, o options) rewards.Scorer {
	t.Helper()
	sc, err := buildNamed(t, "sandbox_fusion", &groups{}, options{"url": url}.with(o))
	require.NoError(t, err)
	return sc
}

func TestSandboxSendsAndScoresAsVerlDoes(t *testing.T) {
	t.Parallel()
	for _, r := range verlRows(t) {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			srv := r.server(t)
			s := &rewards.Sample{ID: "s1", Response: r.Completion, GroundTruth: r.TestCases}
			score, err := sandbox(t, srv.URL, options{"continuous": r.Continuous, "sandbox_error": "not_passed"}).Score(t.Context(), s)
			require.NoError(t, err)
			assert.InDelta(t, r.Score, score.Value, 1e-15)
			details, _ := score.Details["cases"].([]map[string]any)
			for i, d := range details {
				// verl has two names for a failure without a reason.
				assert.Equal(t, strings.TrimSuffix(r.Statuses[i], "_state"), strings.TrimSuffix(d["status"].(string), "_state"), "case %d", i)
			}
			for _, sent := range srv.requests() {
				assert.Equal(t, "application/json", sent.header.Get("Content-Type"))
				assert.Equal(t, "application/json", sent.header.Get("Accept"))
			}
		})
	}
}

func TestACaseTheServerCouldNotJudgeIsNoZero(t *testing.T) {
	t.Parallel()
	for _, r := range verlRows(t) {
		switch r.Name {
		case "sandbox error", "failed for no reason", "unfinished success":
			s := &rewards.Sample{ID: "s1", Response: r.Completion, GroundTruth: r.TestCases}
			score, err := sandbox(t, r.server(t).URL, options{"continuous": r.Continuous}).Score(t.Context(), s)
			requireFailure(t, rewards.Unavailable, score, err, "could not judge")
		}
	}
	s := codeSample()
	for status, class := range map[int]rewards.Class{500: rewards.Unavailable, 504: rewards.Unavailable, 404: rewards.Internal, 422: rewards.BadInput} {
		srv := serve(t, func(int, request) (int, []byte) { return status, []byte("no") })
		score, err := sandbox(t, srv.URL, nil).Score(t.Context(), s)
		requireFailure(t, class, score, err, "case 0")
		score, err = sandbox(t, srv.URL, options{"sandbox_error": "not_passed"}).Score(t.Context(), s)
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"passed": int64(0), "cases": int64(1), "status": "api_error"}, score.Extra)
	}
	for _, body := range []string{`{}`, `[]`, `{"status":"Fine"}`, `{"status":7}`} {
		score, err := sandbox(t, says(t, []byte(body)).URL, nil).Score(t.Context(), s)
		requireFailure(t, rewards.InvalidScore, score, err)
	}
	score, err := sandbox(t, says(t, []byte(`<html>`)).URL, nil).Score(t.Context(), s)
	requireFailure(t, rewards.Unavailable, score, err)
}

func codeSample() *rewards.Sample {
	return &rewards.Sample{ID: "s1", Response: "```python\nx\n```", GroundTruth: json.RawMessage(`{"inputs":["1"],"outputs":["2"]}`)}
}

func TestTestCasesThatCannotBeReadAreBadInput(t *testing.T) {
	t.Parallel()
	for cases, says := range map[string]string{
		`"text"`:                               "want an object",
		`null`:                                 "want an object",
		`{}`:                                   "neither inputs and outputs nor assert_case",
		`{"inputs":["1"]}`:                     "neither inputs and outputs nor assert_case",
		`{"inputs":[],"outputs":[]}`:           "0 cases",
		`{"inputs":"1","outputs":["2"]}`:       "inputs is str, want a list",
		`{"inputs":["1","2"],"outputs":["2"]}`: "outputs has 1 elements, want 2",
		`{"inputs":["1"],"outputs":["2"],"assert_case":[]}`:              "assert_case has 0 elements",
		`{"assert_case":[1]}`:                                            "assert_case is number",
		`{"inputs":[[1]],"outputs":["2"]}`:                               "input: bad_input: list, want text",
		`{"inputs":["1"],"outputs":[1e3]}`:                               "exponent",
		`{"inputs":["1","1","1","1"],"outputs":["","","",""]}`:           "4 cases, want 1 to max_cases = 3",
		`{"inputs":["` + strings.Repeat("x", 101) + `"],"outputs":[""]}`: "max_case_bytes = 100",
		`{"inputs":["1"],"outputs":["2"],"fn_name":"f();import os"}`:     "fn_name",
		`{"inputs":["1"],"outputs":["2"],"fn_name":3}`:                   "fn_name",
	} {
		srv := serve(t, func(int, request) (int, []byte) { return 200, nil })
		s := codeSample()
		s.GroundTruth = json.RawMessage(cases)
		score, err := sandbox(t, srv.URL, options{"max_cases": 3, "max_case_bytes": 100}).Score(t.Context(), s)
		requireFailure(t, rewards.BadInput, score, err, says)
		assert.Empty(t, srv.requests())
	}
	s := codeSample()
	s.Response = "```python\n" + strings.Repeat("#", 200)
	score, err := sandbox(t, "http://h", options{"max_code_bytes": 100}).Score(t.Context(), s)
	requireFailure(t, rewards.BadInput, score, err, "max_code_bytes = 100")
}

// gauge counts the calls that are under way.
type gauge struct {
	now, most atomic.Int32
	stuck     bool
}

func (g *gauge) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	n := g.now.Add(1)
	defer g.now.Add(-1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
	wait := time.Second
	if g.stuck {
		wait = time.Hour
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", rewards.Timeout, ctx.Err())
	}
	a := &outbound.Answer{Status: 200, Body: []byte(`{"status":"Success","run_result":{"status":"Finished","stdout":"2"}}`)}
	return a, c.Check(a)
}

func TestNoMoreThanMaxConcurrentCasesRunOverAllSamples(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{}
		gr := &groups{doer: g}
		sc, err := buildNamed(t, "sandbox_fusion", gr, options{"url": "http://h/run_code", "max_concurrent": 3, "run_timeout": 7})
		require.NoError(t, err)
		assert.Equal(t, remote.UpstreamOptions{Concurrency: 3, Timeout: 24 * time.Second}, gr.options, "compile, run and verl's 10 s")
		done := make(chan rewards.Score)
		for range 5 {
			go func() {
				s := codeSample()
				s.GroundTruth = json.RawMessage(`{"inputs":["1","1","1"],"outputs":["2","2","3"]}`)
				score, err := sc.Score(t.Context(), s)
				assert.NoError(t, err)
				done <- score
			}()
		}
		begin := time.Now()
		for range 5 {
			assert.InDelta(t, 2.0/3, (<-done).Value, 1e-15)
		}
		assert.EqualValues(t, 3, g.most.Load())
		assert.Equal(t, 1, rewards.ConcurrencyOf(sc), "a sample has three cases at a time, which are all there are")
		assert.Equal(t, 5*time.Second, time.Since(begin), "15 cases of 1 s, 3 at a time")
	})
}

func TestASampleWhoseTimeIsUpLeavesItsCases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{stuck: true}
		sc, err := buildNamed(t, "sandbox_fusion", &groups{doer: g}, options{"url": "http://h", "max_concurrent": 1, "sandbox_error": "not_passed"})
		require.NoError(t, err)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s := codeSample()
			s.GroundTruth = json.RawMessage(`{"inputs":["1","1","1"],"outputs":["2","2","3"]}`)
			score, err := sc.Score(ctx, s)
			cancel()
			requireFailure(t, rewards.Timeout, score, err)
			synctest.Wait()
			assert.Zero(t, g.now.Load())
		}
	})
}

// The program that calls a function is run here, by a Python.
func TestTheFunctionOfTheCodeIsCalledWithTheLinesOfTheInput(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	tests := map[string]struct{ code, input, want string }{
		"a number":       {"def f(a, b):\n    return a + b", "1\n2", "3"},
		"text":           {"def f(s):\n    return s.upper()", `"é"`, "É"},
		"a list":         {"def f(a):\n    return sorted(a)", "[3, 1]", "[1, 3]"},
		"a tuple":        {"def f():\n    return (1, None)", "", "[1, null]"},
		"None":           {"def f():\n    pass", "", "null"},
		"a bool":         {"def f(a):\n    return a > 1", "2", "true"},
		"a float":        {"def f(a):\n    return a / 2", "1", "0.5"},
		"a method":       {"class Solution:\n    def f(self, a):\n        return a * 2", "4", "8"},
		"known modules":  {"def f(a):\n    return heapq.nsmallest(1, a)[0] + floor(2.5) + len(Counter(a))", "[5, 7]", "9"},
		"a name of ours": {"_text = 3\ndef f(json):\n    return json", "1", "1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(_ int, got request) (int, []byte) {
				var in struct{ Code, Stdin string }
				if err := json.Unmarshal(got.body, &in); err != nil {
					return 400, []byte(err.Error())
				}
				cmd := exec.CommandContext(t.Context(), python, "-c", in.Code)
				cmd.Stdin = strings.NewReader(in.Stdin)
				var out, said bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &said
				status, code := "Success", 0
				if cmd.Run() != nil {
					status, code = "Failed", cmd.ProcessState.ExitCode()
				}
				run, _ := json.Marshal(options{"status": status, "run_result": options{
					"status": "Finished", "return_code": code, "stdout": out.String(), "stderr": said.String(),
				}})
				return 200, run
			})
			cases, _ := json.Marshal(options{"fn_name": "f", "inputs": []string{tt.input}, "outputs": []string{tt.want}})
			s := &rewards.Sample{ID: "s1", Response: "```python\n" + tt.code + "\n```", GroundTruth: cases}
			score, err := sandbox(t, srv.URL, nil).Score(t.Context(), s)
			require.NoError(t, err)
			assert.InDelta(t, 1, score.Value, 0, score.Details)
			s.Response = "```python\ndef f(*a):\n    raise ValueError('no')\n```"
			score, err = sandbox(t, srv.URL, nil).Score(t.Context(), s)
			require.NoError(t, err)
			assert.InDelta(t, 0, score.Value, 0)
			assert.Equal(t, "runtime_error", score.Extra["status"])
		})
	}
}
