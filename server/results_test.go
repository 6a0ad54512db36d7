package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

// filled is a store with two steps of two groups of four, whose first sample has a picture and whose last failed.
func filled(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Keep: store.KeepFull}, store.Options{Path: filepath.Join(t.TempDir(), "a.db")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	for n := range 16 {
		put(t, s, n)
	}
	require.Eventually(t, func() bool {
		if s.State().Rows < 16 {
			return false
		}
		row, err := s.Reader().Result(t.Context(), 1)
		return err == nil && row.Media[0].Thumbnail != nil
	}, 30*time.Second, 5*time.Millisecond)
	return s
}

func put(t *testing.T, s *store.Store, n int) {
	t.Helper()
	score := float64(n%8) / 10
	sample := &rewards.Sample{ID: fmt.Sprint("s", n), Step: int64(n / 8), UID: fmt.Sprint("g", n%8/4), GroupSize: 4, Prompt: "<script>alert(1)</script>", Response: strings.Repeat("word ", n%8+1)}
	res := &wire.Result{
		Type: "result", ID: sample.ID, Outcome: rewards.Scored, RewardScore: &score, Worker: "w0", Attempts: 1, TimingMS: map[string]float64{"total": float64(n)},
		ExtraInfo: map[string]any{"reward/combined": score, "reward/a": score, "reward/b": -score},
	}
	if n == 0 {
		var file bytes.Buffer
		require.NoError(t, jpeg.Encode(&file, image.NewGray(image.Rect(0, 0, 40, 20)), nil))
		sample.Media = []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{file.Len()}, Data: file.Bytes()}}
	}
	if n == 15 {
		res.Outcome, res.RewardScore = rewards.Failed, nil
		res.Errors = []rewards.ComponentError{{Component: "a", Class: rewards.Timeout, Message: "no answer"}}
	}
	m, err := wire.Encode(sample, wire.Options{})
	require.NoError(t, err)
	f, err := wire.NewFrame(m, nil)
	require.NoError(t, err)
	s.Media(store.SampleKey{Run: "r/1", Epoch: 7, ID: sample.ID}, f.Sample().Media, f.Data(), false)
	s.Put(store.Record{Run: "r/1", Epoch: 7, Split: rewards.Train, Step: sample.Step, Reward: "default", Header: f.Header(), Result: res, Finished: time.Now()})
}

// keptSite is a site with what is kept.
func keptSite(t *testing.T, s *store.Store) *site {
	t.Helper()
	return newSite(t, siteOptions{server: func(o *server.Options) { o.Store = func() *store.Store { return s } }})
}

// answered is the answer to a GET.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// got asks, and decodes the answer where into is not nil.
func got(t *testing.T, s *site, path string, into any) answered {
	t.Helper()
	resp, err := s.client.Get(s.url + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if into != nil {
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, body)
		require.NoError(t, json.Unmarshal(body, into), "%s: %s", path, body)
	}
	return answered{resp.StatusCode, resp.Header, body}
}

type listed struct {
	Total   int
	Results []*store.Row
}

func TestKeptResultsAreAnsweredOverHTTP(t *testing.T) {
	t.Parallel()
	s := keptSite(t, filled(t))
	for query, want := range map[string][]string{
		"?run=r/1&step=1&sort=best&limit=2":    {"s14", "s13"},
		"?run=r%2F1&step=0&sort=worst&limit=1": {"s0"},
		"?failed=1":                            {"s15"},
		"?sort=slowest&limit=1&offset=1":       {"s14"},
		"?uid=g1&step=0&sort=oldest":           {"s4", "s5", "s6", "s7"},
		"?q=SCRIPT&limit=1":                    {"s15"},
		"?run=nobody":                          nil,
		"?epoch=8":                             nil,
		"?limit=0":                             nil,
	} {
		var list listed
		got(t, s, "/v1/results"+query, &list)
		var ids []string
		for _, r := range list.Results {
			ids = append(ids, r.ID)
		}
		assert.Equal(t, want, ids, query)
	}
	var row store.Row
	got(t, s, "/v1/results/16", &row)
	assert.Equal(t, "no answer", row.Error.Message)
	assert.Equal(t, "<script>alert(1)</script>", row.Prompt)
	var steps struct{ Steps []*store.StepHistory }
	got(t, s, "/v1/history?run=r/1", &steps)
	require.Len(t, steps.Steps, 2)
	assert.Equal(t, int64(1), steps.Steps[1].Failed)
	var runs struct{ Runs []*store.RunHistory }
	got(t, s, "/v1/history/runs", &runs)
	require.Len(t, runs.Runs, 1)
	var groups struct{ Groups []*store.Group }
	got(t, s, "/v1/runs/r%2F1/steps/1/groups?sort=std", &groups)
	require.Len(t, groups.Groups, 2)
	got(t, s, "/v1/runs/r%2F1/steps/1/groups?sort=zero_std&limit=1", &groups)
	require.Len(t, groups.Groups, 1)
	var columns struct{ Columns map[string]*store.Histogram }
	got(t, s, "/v1/runs/r%2F1/steps/1/histogram", &columns)
	assert.Equal(t, 7, columns.Columns["reward"].N)
	assert.Contains(t, columns.Columns, "b")
	var hints struct{ Hints []store.Hint }
	got(t, s, "/v1/hints?run=r/1", &hints)
	assert.NotNil(t, hints.Hints)
}

func TestAKeptPictureIsServedSoThatNothingInItRuns(t *testing.T) {
	t.Parallel()
	s := keptSite(t, filled(t))
	for _, path := range []string{"/v1/results/1/media/0", "/v1/results/1/media/0?full=1", "/v1/results/1/media/0?frame=0"} {
		resp := got(t, s, path, nil)
		require.Equal(t, http.StatusOK, resp.status)
		assert.Equal(t, "image/jpeg", resp.header.Get("Content-Type"))
		assert.Equal(t, "nosniff", resp.header.Get("X-Content-Type-Options"))
		assert.Contains(t, resp.header.Get("Content-Security-Policy"), "sandbox")
		img, err := jpeg.Decode(bytes.NewReader(resp.body))
		require.NoError(t, err)
		assert.Equal(t, image.Pt(40, 20), img.Bounds().Size())
	}
	for _, path := range []string{"/v1/results/1/media/1", "/v1/results/2/media/0", "/v1/results/99/media/0", "/v1/results/1/media/0?frame=3", "/v1/results/1/media/4?full=1"} {
		assert.Equal(t, http.StatusNotFound, got(t, s, path, nil).status, path)
	}
}

func TestBadQueriesOfResultsAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := keptSite(t, filled(t))
	for path, says := range map[string]string{
		"/v1/results?limit=1001":                   "limit",
		"/v1/results?offset=x":                     "offset",
		"/v1/results?sort=random":                  "sort",
		"/v1/results?split=test":                   "split",
		"/v1/results?step=a":                       "step",
		"/v1/results?epoch=-1":                     "epoch",
		"/v1/results/x":                            "whole number",
		"/v1/results/1/media/-1":                   "media",
		"/v1/runs/r%2F1/steps/1/groups?sort=x":     "sort",
		"/v1/runs/r%2F1/steps/one/histogram":       "step",
		"/v1/runs/r%2F1/steps/1/groups?limit=-1":   "limit",
		"/v1/runs/r%2F1/steps/1/groups?split=none": "split",
	} {
		resp := got(t, s, path, nil)
		assert.Equal(t, http.StatusBadRequest, resp.status, "%s: %s", path, resp.body)
		assert.Contains(t, string(resp.body), says, path)
	}
}

func TestWhereNothingIsKeptListsAreEmpty(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*site{"no store": newSite(t, siteOptions{}), "not open": keptSite(t, nil)} {
		for path, want := range map[string]string{
			"/v1/results": `{"results":[],"total":0}`, "/v1/history?run=a": `{"steps":[]}`, "/v1/history/runs": `{"runs":[]}`, "/v1/hints?run=a": `{"hints":[]}`,
			"/v1/runs/a/steps/1/groups": `{"groups":[]}`, "/v1/runs/a/steps/1/histogram": `{"columns":{}}`,
		} {
			assert.JSONEq(t, want, string(got(t, s, path, nil).body), "%s: %s", name, path)
		}
		assert.Equal(t, http.StatusNotFound, got(t, s, "/v1/results/1", nil).status)
		var v server.Overview
		got(t, s, "/v1/overview", &v)
		assert.False(t, v.Store.On)
	}
}

func TestTheOverviewSaysWhichStepWaitsForWhat(t *testing.T) {
	t.Parallel()
	mean, three := 0.5, loop.RunState{Run: "b", Outcomes: map[string]uint64{"scored": 5}, Steps: []loop.StepState{{Summary: step.Summary{Split: rewards.Train, Step: 1, Arrived: 3, InFlight: 3, Expected: 8}}}}
	p := &picture{
		runs: []loop.RunState{{
			Run: "a", Outcomes: map[string]uint64{"scored": 60, "failed": 4, "cancelled": 9},
			Steps: []loop.StepState{{Summary: step.Summary{
				Split: rewards.Train, Step: 6, Expected: 64, Arrived: 64, InFlight: 1, ArrivalMS: 30_000, ExposedMS: 10_000, Outcomes: map[rewards.Outcome]int{rewards.Scored: 60, rewards.Failed: 3},
			}}},
		}, three},
		pending: []loop.PendingSample{{ID: "x", Run: "a", Step: 6, Stage: "running", Attempt: 3, AgeMS: 23_000, LastError: "judge: no answer within 8s\nTraceback"}, {ID: "y", Run: "b", Step: 1}},
	}
	p.runs[0].Steps[0].Stats = []stats.ColumnStats{{Column: "reward_score", Mean: &mean}}
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Loop = p }})
	var v server.Overview
	got(t, s, "/v1/overview", &v)
	require.NotEmpty(t, v.Status)
	last := v.Status[len(v.Status)-1]
	assert.Equal(t, "wait", last.Level)
	assert.Equal(t, "step 6 of run a waits for 1 sample, the oldest for 23.0 s: judge: no answer within 8s … (attempt 3)", last.Text)
	assert.Equal(t, "#/run/a/step/6?split=train", last.Link)
	for _, line := range v.Status {
		assert.NotContains(t, line.Text, "run b", "a step that has not come whole is not waited for")
	}
	require.Len(t, v.Runs, 2)
	r := v.Runs[0]
	assert.InDelta(t, 0.25, *r.ExposedShare, 1e-9)
	assert.InDelta(t, 3.0/63, *r.FailedShare, 1e-9)
	assert.InDelta(t, mean, *r.Mean, 0)
	assert.Equal(t, uint64(65), v.ScoredTotal)
	assert.Equal(t, uint64(4), v.FailedTotal)
}

func TestEventsTellOfTheOverviewAndOfNewResults(t *testing.T) {
	t.Parallel()
	kept := filled(t)
	s := keptSite(t, kept)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events", nil)
	require.NoError(t, err)
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	await := func(name, part string) {
		t.Helper()
		event := ""
		for in.Scan() {
			line := in.Text()
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				event = v
			}
			if v, ok := strings.CutPrefix(line, "data: "); ok && event == name && strings.Contains(v, part) {
				assert.True(t, json.Valid([]byte(v)))
				return
			}
		}
		t.Fatalf("no event %s with %s: %v", name, part, in.Err())
	}
	await("overview", `"rows":16`)
	put(t, kept, 20)
	await("results", `"keys"`)
	await("overview", `"rows":17`)
	require.NoError(t, s.Stop(ctx), "a viewer does not keep the server")
}
