package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/collector"
	"github.com/rewardloop/rewardloop/wire"
)

// fickle scores 0.5, but fails for a sample that is called so: "retry" once by its worker's fault, "bad" always.
func fickle() rewards.Spec {
	var mu sync.Mutex
	tried := map[string]bool{}
	return rewards.Spec{Name: "fickle", Build: func(json.RawMessage) (rewards.Scorer, error) {
		return rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			mu.Lock()
			first := !tried[s.ID]
			tried[s.ID] = true
			mu.Unlock()
			switch {
			case s.ID == "retry" && first:
				return rewards.Score{}, rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: the card is gone", rewards.Unavailable))
			case s.ID == "bad":
				return rewards.Score{}, fmt.Errorf("%w: there is nothing in it", rewards.BadInput)
			}
			return rewards.Score{Value: 0.5}, nil
		}), nil
	}}
}

// traced is a configuration that scores with fickle and sends traces.
func traced(c *collector.Collector, more ...string) []string {
	return append([]string{"+reward.reward_functions.fickle.path=builtin://fickle", "+reward.reward_functions.fickle.required=true", "telemetry.otlp_endpoint=" + c.URL}, more...)
}

// joinWith is joinAs with further scorers.
func joinWith(t *testing.T, name, nats string, scorers []rewards.Spec, overrides ...string) {
	t.Helper()
	cfg, err := config.Load("", append([]string{"++queue.nats=[" + nats + "]", "++queue.name=" + name, "reward.num_workers=2"}, overrides...), os.LookupEnv)
	require.NoError(t, err)
	w, err := node.NewWorker(node.Options{Config: cfg, Version: "test", Scorers: scorers})
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(w.Stop)
}

func submitAll(t *testing.T, addr string, samples ...*rewards.Sample) map[string]*wire.Result {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "r"})
	require.NoError(t, err)
	defer c.Close()
	var futures []*client.Future
	for _, s := range samples {
		f, err := c.Submit(t.Context(), s, time.Minute)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	out := map[string]*wire.Result{}
	for _, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		out[res.ID] = res
	}
	return out
}

const (
	trainersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	trainersSpan  = "00f067aa0ba902b7"
)

func TestASampleHasOneTraceAcrossTheGatewayAndAWorkerOfAnotherProcess(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	c := collector.New(t, nil)
	spec := []rewards.Spec{fickle()}
	gateway, addr := startWith(t, spec, traced(c, "reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0", "++queue.name=gw", "telemetry.service_name=gateway")...)
	joinWith(t, "wa", "nats://"+gateway.NATS(), spec, traced(c, "telemetry.service_name=worker")...)
	awaitWorkers(t, addr, 2)
	results := submitAll(t, addr,
		&rewards.Sample{ID: "ok", Step: 7, Traceparent: "00-" + trainersTrace + "-" + trainersSpan + "-01"},
		&rewards.Sample{ID: "retry"}, &rewards.Sample{ID: "bad"},
		&rewards.Sample{ID: "unrecorded", Traceparent: "00-" + trainersTrace + "-" + trainersSpan + "-00"})
	require.Equal(t, rewards.Failed, results["bad"].Outcome)
	require.Equal(t, 2, results["retry"].Attempts)

	spans := c.Await(func(s []collector.Span) bool {
		return len(collector.Named(s, "sample")) >= 3 && len(collector.Named(s, "score")) >= 4
	})
	whole := map[string]collector.Span{}
	for _, s := range collector.Named(spans, "sample") {
		id, _ := s.Attributes["rewardloop.sample.id"].(string)
		require.Empty(t, whole[id].ID, "a sample has one span of that kind")
		whole[id] = s
	}
	require.Len(t, whole, 3, "a sample whose trainer does not record is not traced")
	ids, seen := map[string]collector.Span{}, map[string]bool{}
	for _, s := range spans {
		require.False(t, seen[s.ID], "%s: no two spans have one id", s.Name)
		seen[s.ID], ids[s.Trace+s.ID] = true, s
		assert.False(t, s.End.Before(s.Start), s.Name)
	}
	for _, s := range spans {
		if s.Name == "sample" {
			continue
		}
		require.Contains(t, ids, s.Trace+s.Parent, "%s has its parent", s.Name)
	}

	ok := whole["ok"]
	assert.Equal(t, trainersTrace, ok.Trace)
	assert.Equal(t, trainersSpan, ok.Parent)
	assert.Equal(t, "gateway", ok.Service)
	assert.False(t, ok.Failed)
	assert.InDelta(t, 0.5, ok.Attributes["rewardloop.score"], 0)
	assert.Equal(t, int64(7), ok.Attributes["rewardloop.step"])
	assert.Equal(t, []string{"attempt", "queue", "receive"}, namesOf(collector.Below(spans, ok)))
	attempt := collector.Named(collector.Below(spans, ok), "attempt")[0]
	assert.Equal(t, results["ok"].Worker, attempt.Attributes["rewardloop.worker"])
	score := collector.Below(spans, attempt)
	require.Equal(t, []string{"score"}, namesOf(score))
	assert.Equal(t, "worker", score[0].Service)
	assert.Equal(t, "default", score[0].Attributes["rewardloop.reward"])
	assert.Equal(t, []string{"claim", "component/fickle"}, namesOf(collector.Below(spans, score[0])))

	retry := whole["retry"]
	assert.Empty(t, retry.Parent, "it begins a trace")
	assert.NotEqual(t, ok.Trace, retry.Trace)
	assert.False(t, retry.Failed)
	tries := collector.Named(collector.Below(spans, retry), "attempt")
	require.Len(t, tries, 2)
	assert.Len(t, collector.Named(collector.Below(spans, retry), "queue"), 2)
	assert.True(t, tries[0].Failed)
	assert.Equal(t, "unavailable: the card is gone", tries[0].Message)
	assert.Equal(t, "unavailable", tries[0].Attributes["error.type"])
	assert.False(t, tries[1].Failed)
	for _, a := range tries {
		assert.Equal(t, []string{"score"}, namesOf(collector.Below(spans, a)))
	}

	bad := whole["bad"]
	assert.True(t, bad.Failed)
	assert.Equal(t, "bad_input: there is nothing in it", bad.Message)
	assert.Equal(t, "failed", bad.Attributes["rewardloop.outcome"])
	attempt = collector.Below(spans, collector.Named(collector.Below(spans, bad), "attempt")[0])[0]
	assert.True(t, attempt.Failed)
	assert.True(t, collector.Named(collector.Below(spans, attempt), "component/fickle")[0].Failed)
}

func namesOf(spans []collector.Span) (names []string) {
	for _, s := range spans {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// A collector that is down, hangs or answers 500 costs its spans and nothing else.
func TestScoringGoesOnWithoutACollector(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{"hangs": collector.Hanging(t), "answers 500": collector.Answering(http.StatusInternalServerError), "answers 400": collector.Answering(http.StatusBadRequest)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := collector.New(t, answer)
			_, addr := startWith(t, []rewards.Spec{fickle()}, traced(c)...)
			for i := range 3 {
				res := submitAll(t, addr, &rewards.Sample{ID: fmt.Sprint(i)})
				assert.Equal(t, rewards.Scored, res[fmt.Sprint(i)].Outcome)
				c.Asked(1) // it has a batch by now
			}
		})
	}
	t.Run("is down", func(t *testing.T) {
		t.Parallel()
		_, addr := startWith(t, []rewards.Spec{fickle()}, traced(&collector.Collector{URL: "http://127.0.0.1:1"})...)
		assert.Equal(t, rewards.Scored, submitAll(t, addr, &rewards.Sample{ID: "a"})["a"].Outcome)
		require.Eventually(t, func() bool {
			return strings.Contains(page(t, addr, "/metrics"), `rewardloop_telemetry_spans_dropped_total{reason="unreachable"} `) &&
				!strings.Contains(page(t, addr, "/metrics"), `rewardloop_telemetry_spans_dropped_total{reason="unreachable"} 0`)
		}, time.Minute, 50*time.Millisecond)
	})
}

// A request over HTTP carries the context of its trace in the header that the standard names.
func TestSamplesOverHTTPGoOnWithTheTraceOfTheirRequest(t *testing.T) {
	t.Parallel()
	c := collector.New(t, nil)
	_, addr := startWith(t, []rewards.Spec{fickle()}, traced(c)...)
	post := func(body, traceparent string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/score", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Traceparent", traceparent)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		return res.StatusCode
	}
	require.Equal(t, http.StatusOK, post(`{"id":"a"}`, "00-"+trainersTrace+"-"+trainersSpan+"-01"))
	require.Equal(t, http.StatusOK, post(`{"id":"b"}`, "nonsense"), "a header that is none is passed over, as the standard says")
	require.Equal(t, http.StatusOK, post(`{"id":"c","traceparent":"00-`+strings.Repeat("a", 32)+`-`+trainersSpan+`-01"}`, "00-"+trainersTrace+"-"+trainersSpan+"-01"))
	require.Equal(t, http.StatusBadRequest, post(`{"id":"d","traceparent":"nonsense"}`, ""))
	spans := collector.Named(c.Await(func(s []collector.Span) bool { return len(collector.Named(s, "sample")) >= 3 }), "sample")
	require.Len(t, spans, 3)
	assert.Equal(t, []string{trainersTrace, trainersSpan}, []string{spans[0].Trace, spans[0].Parent})
	assert.Empty(t, spans[1].Parent)
	assert.Equal(t, strings.Repeat("a", 32), spans[2].Trace, "what a sample says of itself counts more")
}
