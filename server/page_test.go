package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

// picture is a loop with a fixed state, for the page.
type picture struct {
	server.Steps // not asked for
	pending      []loop.PendingSample
	runs         []loop.RunState
	breakers     []loop.BreakerInfo
	failures     []failures.Failure
	progress     []loop.Progress
}

func (*picture) Submit(context.Context, loop.Submission) (*loop.Future, error) {
	return nil, loop.ErrStopped
}
func (*picture) Serve(context.Context, *wsconn.Conn) error { return nil }
func (*picture) Draining() bool                            { return false }
func (*picture) InFlight() int                             { return 137 }
func (*picture) Bytes() (held, granted int64)              { return 103 << 20, 61 << 20 }

func (p *picture) Pending(limit int) ([]loop.PendingSample, int) {
	return p.pending[:min(limit, len(p.pending))], 137
}
func (p *picture) Breakers() []loop.BreakerInfo { return p.breakers }
func (p *picture) Runs(int) []loop.RunState     { return p.runs }

func (p *picture) Progress() []loop.Progress { return p.progress }

func (p *picture) Failures() ([]failures.Failure, uint64) { return slices.Clone(p.failures), 412 }

// crew is a fixed set of workers.
type crew []wire.WorkerInfo

func (c crew) Workers() []wire.WorkerInfo { return c }

const hostile = `<script>alert("x")</script>'"&{{.}}</td>`

func busyPicture() (*picture, crew) {
	mean, std := 0.6123, 0.1875
	flat := 0.0
	p := &picture{
		pending: []loop.PendingSample{
			{ID: "step12/prompt-0091/sample-3", Run: "sd3-ocr", Step: 12, Stage: "running", Attempt: 2, Workers: []string{"w3", "w1"}, Bytes: 786_944, AgeMS: 48_212, LastError: "crashed: the Tesseract child was killed by signal 11"},
			{ID: hostile, Run: hostile, Step: 12, Stage: "running", Attempt: 1, Workers: []string{hostile}, Bytes: 786_944, AgeMS: 9_100, LastError: hostile},
			{ID: "step12/prompt-0007/sample-15-with-a-very-long-name-that-a-trainer-made-of-a-hash-7f1d2c0a9be44f", Run: "sd3-ocr", Step: 12, Stage: "waiting_for_group_mean", Attempt: 1, Group: "g7", Bytes: 25_000, AgeMS: 812},
			{ID: "step12/prompt-0008/sample-0", Run: "qwen-image-pickscore", Step: 88, Stage: "queued", Bytes: 786_944, AgeMS: 3.2, Waits: "no worker serves the profile \"ocr\" at the moment"},
		},
		breakers: []loop.BreakerInfo{
			{Worker: "w1", Reward: "ocr", State: "open", Reason: "the card is lost", Since: time.Date(2026, 11, 22, 8, 0, 1, 0, time.UTC), Until: time.Date(2026, 11, 22, 8, 0, 31, 0, time.UTC)},
			{Worker: hostile, Reward: hostile, State: "open", Reason: hostile, Permanent: true},
		},
		progress: []loop.Progress{
			{Reward: "default", State: loop.Progressing},
			{Reward: "ocr", State: loop.Slow, Why: "no result for 20s: calls at judge, no answer for 20s", Waiting: 93, Running: 8},
			{Reward: hostile, State: loop.Stopped, Why: hostile, Waiting: 2},
		},
		failures: append(make([]failures.Failure, 0, 9), slices.Repeat([]failures.Failure{{
			Reward: "ocr", Component: "aesthetic", Class: rewards.Internal, Count: 41, Message: "ValueError: row 7\n" + hostile, Last: time.Date(2026, 11, 22, 8, 0, 1, 0, time.UTC),
			Samples: []failures.Sample{{ID: hostile, Run: hostile, Step: 12}},
		}, {
			Reward: hostile, Class: rewards.Expired, Count: 3, Message: "it was queued", Samples: []failures.Sample{{ID: "step12/prompt-0001", Run: "sd3-ocr", Step: 12}},
		}}, 4)...),
		runs: []loop.RunState{{
			Run: "sd3-ocr", Epoch: 2, Clients: 8, Queued: 93, InFlight: 136, MeanMS: 842,
			Outcomes: map[string]uint64{"scored": 18_204, "failed": 3, "expired": 1},
			Steps: []loop.StepState{
				{Summary: step.Summary{Split: "train", Step: 12, Expected: 512, Arrived: 377, InFlight: 136, Outcomes: map[rewards.Outcome]int{"scored": 240, "failed": 1}, ArrivalMS: 61_000}},
				{Summary: step.Summary{Split: "train", Step: 11, Expected: 512, Arrived: 512, Outcomes: map[rewards.Outcome]int{"scored": 512}, ArrivalMS: 93_400, ExposedMS: 1_380}},
				{Summary: step.Summary{Split: "val", Step: 10, Arrived: 64, Outcomes: map[rewards.Outcome]int{"scored": 63, "expired": 1}, ArrivalMS: 12_400, ExposedMS: 900_000}},
			},
			Groups: []loop.GroupState{
				{Split: "train", Step: 12, UID: "prompt-0093", Size: 16, Arrived: 9, Settled: 4},
				{Split: "train", Step: 12, UID: "prompt-0092", Size: 16, Settled: 16, Closed: true, Stats: &wire.GroupStats{Size: 16, Scored: 16, Mean: &mean, Std: &std}},
				{Split: "train", Step: 12, UID: hostile, Size: 16, Settled: 15, Closed: true, Stats: &wire.GroupStats{Size: 16, Scored: 14, Failed: 1, Mean: &mean, Std: &flat, ZeroStd: true, Missing: 1}},
			},
		}, {Run: "_pickle", Outcomes: map[string]uint64{}}},
	}
	return p, crew{
		{ID: "w0", Busy: 8, State: wire.WorkerReady, Profiles: []wire.ProfileInfo{{Capacity: 8}, {Name: "ocr", Capacity: 2}}, Scored: 9_102},
		{ID: "w1", Busy: 3, State: wire.WorkerReady, Profiles: []wire.ProfileInfo{{Capacity: 8}}, Scored: 9_100, Failed: 2},
		{ID: "gpu-node-07/" + hostile, Busy: 4, State: wire.WorkerSick, Profiles: []wire.ProfileInfo{{Name: hostile, Waits: hostile}}, Failed: 31},
		{ID: "w3", State: wire.WorkerDraining},
	}
}

func TestTheStatusPageShowsTheStateAndEscapesWhatStrangersWrote(t *testing.T) {
	t.Parallel()
	p, workers := busyPicture()
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Loop, o.Presence = p, workers
		o.Profiles = []server.Profile{
			{Name: "", Components: []server.Component{{Key: "ocr", Weight: 1, Required: true}, {Key: "aesthetic", Weight: 0.25}}},
			{Name: hostile, Components: []server.Component{{Key: hostile, Weight: 1}}},
		}
	}})
	r := s.get("/?plain", "Accept", "text/html,application/xhtml+xml")
	require.Equal(t, http.StatusOK, r.StatusCode)
	page := string(r.body)
	if path := os.Getenv("REWARDLOOP_PAGE"); path != "" { // to look at it
		require.NoError(t, os.WriteFile(path, r.body, 0o600))
	}
	assert.Equal(t, "text/html; charset=utf-8", r.Header.Get("Content-Type"))
	assert.Contains(t, r.Header.Get("Content-Security-Policy"), "default-src 'none'")
	assert.Contains(t, page, "the 5 newest of")
	assert.Contains(t, page, "no result for 20s: calls at judge, no answer for 20s")
	assert.Contains(t, page, "ValueError: row 7")
	assert.NotContains(t, page, "<script")
	assert.NotContains(t, page, `"x"`)
	assert.Contains(t, page, "&lt;script&gt;")
	for _, want := range []string{
		`<meta http-equiv="refresh" content="5">`, "137", "103.0 MiB", "48.2 s", "running", "w3, w1", "signal 11", "0.6123", "0.1875", "zero std",
		"1 missing", "18204 scored", "3 failed", "377 / 512", "1.4 s", "sick", "v0-test", "0.25 × aesthetic", "ready",
		"Workers that get no samples of a reward", "the card is lost", "08:00:31", "after a restart", "no worker serves the profile",
	} {
		assert.Contains(t, page, want)
	}
	assert.Equal(t, strings.Count(page, "<tr"), strings.Count(page, "</tr>"))
	var plain map[string]any
	require.NoError(t, json.Unmarshal(s.get("/").body, &plain), "without Accept: text/html")
	assert.Equal(t, "rewardloop", plain["service"])
}

func TestTheStatusPageShowsATracebackOnce(t *testing.T) {
	t.Parallel()
	const why = "ValueError: row 7\n  File mine.py, line 2"
	p, workers := busyPicture()
	p.pending, p.breakers, p.progress, p.failures, p.runs = p.pending[:1], p.breakers[:1], p.progress[:1], p.failures[:1], p.runs[1:]
	p.pending[0].LastError, p.breakers[0].Reason, p.failures[0].Message = why, why, why
	p.progress[0] = loop.Progress{Reward: "default", State: loop.Failing, Why: "every sample fails: " + why}
	p.runs[0].Clients = 1
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Loop, o.Presence = p, workers }})
	page := regexp.MustCompile(`title="[^"]*"`).ReplaceAllString(string(s.get("/?plain", "Accept", "text/html").body), "")
	assert.Equal(t, 1, strings.Count(page, "mine.py"), "among the failures")
	assert.Equal(t, 4, strings.Count(page, "ValueError: row 7"), "the first line is everywhere")
	assert.Contains(t, page, "1 client<")
}

func TestTheStatusPageOfAnEmptyServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{workers: -1})
	page := string(s.get("/?plain", "Accept", "text/html").body)
	for _, want := range []string{"not ready", "none of 0 workers is ready", "Nothing is pending", "No worker is connected", "No run yet"} {
		assert.Contains(t, page, want)
	}
}

func TestStateEndpoints(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := s.slowly(ctx, pickled(t, "images", jpegs(2), "prompts", []string{"a", "b"}))
	receive(t, s.started, "the slow scorer")
	receive(t, s.started, "the slow scorer")

	var pending struct {
		Total   int
		Samples []loop.PendingSample
	}
	require.NoError(t, json.Unmarshal(s.get("/v1/pending?limit=1").body, &pending))
	assert.Equal(t, 2, pending.Total)
	require.Len(t, pending.Samples, 1)
	assert.Equal(t, "running", pending.Samples[0].Stage)
	assert.Equal(t, "_pickle", pending.Samples[0].Run)

	var workers struct{ Workers []wire.WorkerInfo }
	require.NoError(t, json.Unmarshal(s.get("/v1/workers").body, &workers))
	require.Len(t, workers.Workers, 1)
	assert.Equal(t, 8, workers.Workers[0].Profiles[0].Capacity)

	var runs struct{ Runs []loop.RunState }
	require.NoError(t, json.Unmarshal(s.get("/v1/runs?groups=0").body, &runs))
	require.Len(t, runs.Runs, 1)
	assert.Equal(t, 2, runs.Runs[0].InFlight)

	var scorers struct{ Rewards []server.Profile }
	require.NoError(t, json.Unmarshal(s.get("/v1/scorers").body, &scorers))
	assert.NotEmpty(t, scorers.Rewards)

	for _, bad := range []string{"/v1/pending?limit=x", "/v1/pending?limit=-1", "/v1/runs?groups=10001"} {
		_, message := s.get(bad).jsonError(t, http.StatusBadRequest)
		assert.Contains(t, message, "want a number")
	}
	metrics := string(s.get("/metrics").body)
	assert.Contains(t, metrics, `rewardloop_http_requests_total{code="200",route="/v1/pending"} 1`)
	assert.Contains(t, metrics, `rewardloop_http_requests_total{code="400",route="/v1/pending"} 2`)
	assert.Contains(t, metrics, `rewardloop_http_request_seconds_count{route="/v1/runs"} 2`)
	cancel()
	assert.Nil(t, answerOf(t, done))
	require.Eventually(t, func() bool {
		return strings.Contains(string(s.get("/metrics").body), `rewardloop_http_requests_total{code="499",route="/scorers/:name"} 1`)
	}, patience, 5*time.Millisecond)
}

func TestFailuresAreListedWithTheirReasons(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	for n := 1; n <= 2; n++ { // the same body again would be answered from memory
		s.post("/scorers/picky", pickled(t, "images", jpegs(n), "prompts", slices.Repeat([]string{"fail"}, n)))
	}
	type list struct {
		Total    int
		Failures []failures.Failure
	}
	read := func(path string) (l list) {
		require.NoError(t, json.Unmarshal(s.get(path).body, &l))
		return l
	}
	all := read("/v1/failures")
	require.Equal(t, 3, all.Total)
	require.Len(t, all.Failures, 1)
	f := all.Failures[0]
	assert.Equal(t, "picky", f.Reward)
	assert.Equal(t, rewards.BadInput, f.Class)
	assert.EqualValues(t, 3, f.Count)
	assert.Contains(t, f.Message, "asked to fail")
	assert.Len(t, f.Samples, 3)
	assert.Equal(t, "_pickle", f.Samples[0].Run)
	require.Len(t, read("/v1/failures?reward=picky").Failures, 1)
	none := read("/v1/failures?reward=looks")
	require.NotNil(t, none.Failures)
	require.Empty(t, none.Failures)
	assert.Contains(t, string(s.get("/?plain", "Accept", "text/html").body), "asked to fail")
}

func TestReadinessIsASelfTestAWorkerAndNoDrain(t *testing.T) {
	t.Parallel()
	type outcome struct {
		err   error
		block bool
	}
	next := make(chan outcome, 1)
	calls := make(chan struct{}, 100)
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.SelfTestEvery, o.Config.SelfTestTimeout = time.Nanosecond, 100*time.Millisecond
		o.SelfTest = func(ctx context.Context) error {
			calls <- struct{}{}
			n := <-next
			if n.block {
				<-ctx.Done()
				return ctx.Err()
			}
			if n.err != nil && n.err.Error() == "panic" {
				panic("self-test")
			}
			return n.err
		}
	}})
	require.Eventually(t, func() bool { return strings.Contains(string(s.get("/v1/workers").body), "ready") }, patience, time.Millisecond)
	for _, c := range []struct {
		outcome

		status int
		reason string
	}{
		{outcome{}, 200, ""},
		{outcome{err: errors.New("the known picture got 0.2, want 0.9")}, 503, "got 0.2"},
		{outcome{err: errors.New("panic")}, 503, "panicked"},
		{outcome{block: true}, 503, "self-test"},
	} {
		next <- c.outcome
		r := s.get("/readyz")
		require.Equal(t, c.status, r.StatusCode, "%s", r.body)
		assert.Contains(t, string(r.body), c.reason)
	}
	assert.Len(t, calls, 4)
	close(next) // from here on it passes, once the one that hangs has been given up
	require.Eventually(t, func() bool { return s.get("/readyz").StatusCode == http.StatusOK }, patience, time.Millisecond)
}

func TestAProbeWithoutTheTokenIsNotToldWhy(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, secret)
	s := newSite(t, siteOptions{workers: -1, server: func(o *server.Options) { o.Config.TokenFile = file }})
	assert.JSONEq(t, `{"ready": false}`, string(s.get("/readyz").body))
	assert.Contains(t, string(s.get("/readyz", "Authorization", "Bearer "+secret).body), "workers")
}

// One reward of several that is stopped takes the gateway from nobody; who asks for that
// reward is told. Where all are stopped, the gateway is not ready.
func TestReadinessIsThatOfTheRewardsTogetherOrOfOne(t *testing.T) {
	t.Parallel()
	p, _ := busyPicture()
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Loop, o.Presence = p, crew{{ID: "w0", State: wire.WorkerReady}}
	}})
	p.progress = []loop.Progress{{Reward: "default", State: loop.Slow, Why: "no result for 10s"}, {Reward: "judge", State: loop.Stopped, Why: "waiting for e"}}
	var all struct {
		Ready   bool
		Reasons []string
		Rewards []loop.Progress
	}
	read := func(path string, status int) {
		t.Helper()
		r := s.get(path)
		require.Equal(t, status, r.StatusCode, "%s", r.body)
		all.Reasons, all.Rewards = nil, nil
		require.NoError(t, json.Unmarshal(r.body, &all))
		require.Equal(t, status == http.StatusOK, all.Ready)
	}
	read("/readyz", http.StatusOK)
	require.Len(t, all.Rewards, 2)
	assert.Equal(t, "waiting for e", all.Rewards[1].Why)
	for _, name := range []string{"default", ""} {
		read("/readyz?reward="+name, http.StatusOK)
		assert.Equal(t, "no result for 10s", all.Rewards[0].Why)
	}
	read("/readyz?reward=judge", http.StatusServiceUnavailable)
	assert.Equal(t, []string{"waiting for e"}, all.Reasons)
	p.progress[0].State = loop.Stopped
	read("/readyz", http.StatusServiceUnavailable)
	assert.Equal(t, []string{"reward default: no result for 10s", "reward judge: waiting for e"}, all.Reasons)
	assert.Contains(t, string(s.get("/readyz?reward=none").body), "no reward named")
	assert.Equal(t, http.StatusUnprocessableEntity, s.get("/readyz?reward=none").StatusCode)
}
