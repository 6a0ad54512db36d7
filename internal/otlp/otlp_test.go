package otlp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	requests "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/rewardloop/rewardloop/internal/otlp"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/testkit/collector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is an exporter to a collector, what it logs, and its metrics.
func started(t *testing.T, cfg otlp.Config) (*otlp.Exporter, *bytes.Buffer, *prometheus.Registry) {
	t.Helper()
	said, reg := new(bytes.Buffer), prometheus.NewRegistry()
	cfg.SampleRatio = 1
	e, err := otlp.Start(otlp.Options{
		Config: cfg, Process: otlp.Process{Instance: "host-1", Host: "host", Version: "v"}, Log: slog.New(slog.NewTextHandler(said, nil)), Metrics: reg,
	})
	require.NoError(t, err)
	t.Cleanup(func() { closeNow(e) })
	return e, said, reg
}

// closeNow waits for nothing.
func closeNow(e *otlp.Exporter) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.Close(ctx)
}

func span(name string) *tracing.Span {
	now := time.Unix(1_700_000_000, 5)
	return &tracing.Span{Context: tracing.Fresh(), Name: name, Kind: tracing.Internal, Start: now, End: now.Add(time.Second)}
}

func dropped(t *testing.T, reg *prometheus.Registry, reason string, want int) {
	t.Helper()
	counted(t, reg, "rewardloop_telemetry_spans_dropped_total", reason, want)
}

// counted checks a counter; reason is the value of its label, if it has one.
func counted(t *testing.T, reg *prometheus.Registry, name, reason string, want int) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (reason == "" || m.GetLabel()[0].GetValue() == reason) {
				assert.InDelta(t, want, m.GetCounter().GetValue(), 0, "%s %s", name, reason)
				return
			}
		}
	}
	assert.Fail(t, "there is no such metric", "%s %s", name, reason)
}

func TestASpanArrivesAsItWasMade(t *testing.T) {
	t.Parallel()
	c := collector.New(t, nil)
	e, said, reg := started(t, otlp.Config{Endpoint: c.URL + "/", ServiceName: "mine"})
	up, other := tracing.Fresh(), tracing.Fresh()
	s := span("sample")
	s.Context, s.Parent, s.Links = up.Child(), up.Span, []tracing.Context{other}
	s.Attributes = []tracing.Attribute{
		tracing.Text("text", "ü\xff"), tracing.Text("none", ""), tracing.Whole("whole", 0), tracing.Number("number", 0),
	}
	s.Fail("timeout", "not \xff UTF-8")
	e.Tracer().End(s)
	e.Close(t.Context())
	got := c.Await(func(s []collector.Span) bool { return len(s) == 1 })[0]
	assert.Equal(t, up.String(), "00-"+got.Trace+"-"+got.Parent+"-01")
	assert.Equal(t, s.String(), "00-"+got.Trace+"-"+got.ID+"-01")
	assert.Equal(t, []string{other.String()[3:35]}, got.Links)
	assert.Equal(t, map[string]any{"text": "ü\ufffd", "whole": int64(0), "number": 0.0, "error.type": "timeout"}, got.Attributes)
	assert.True(t, got.Failed)
	assert.Equal(t, "timeout: not \ufffd UTF-8", got.Message)
	assert.Equal(t, []string{"mine", "host-1"}, []string{got.Service, got.Instance})
	assert.True(t, got.Start.Equal(s.Start) && got.End.Equal(s.End))
	counted(t, reg, "rewardloop_telemetry_spans_sent_total", "", 1)
	assert.Empty(t, said)
}

func TestSpansComeInBatchesAndAllOfThemBeforeTheEnd(t *testing.T) {
	t.Parallel()
	c := collector.New(t, nil)
	e, _, reg := started(t, otlp.Config{Endpoint: c.URL})
	for i := range 2000 {
		e.Tracer().End(span(fmt.Sprint(i)))
	}
	e.Close(t.Context())
	seen := map[string]bool{}
	for _, s := range c.Await(func(s []collector.Span) bool { return len(s) == 2000 }) {
		seen[s.Name] = true
	}
	assert.Len(t, seen, 2000)
	e.Tracer().End(span("late"))
	dropped(t, reg, "stopped", 1)
	dropped(t, reg, "full", 0)
}

func TestWhatACollectorDoesNotTakeIsCountedAndSaidOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := collector.New(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= 3 {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	e, said, reg := started(t, otlp.Config{Endpoint: c.URL})
	for i := range 3 {
		e.Tracer().End(span("a"))
		c.Asked(i + 1)
	}
	e.Tracer().End(span("b"))
	e.Close(t.Context())
	dropped(t, reg, "refused", 3)
	assert.Equal(t, 1, strings.Count(said.String(), "level=WARN"), said)
	assert.Equal(t, 1, strings.Count(said.String(), "accepts spans again"), said)
	assert.Contains(t, said.String(), "spans_lost=3")
}

func TestSpansThatACollectorRejectsInItsAnswerAreCounted(t *testing.T) {
	t.Parallel()
	c := collector.New(t, func(w http.ResponseWriter, _ *http.Request) {
		b, err := proto.Marshal(&requests.ExportTraceServiceResponse{PartialSuccess: &requests.ExportTracePartialSuccess{RejectedSpans: 2}})
		assert.NoError(t, err)
		_, _ = w.Write(b) // the exporter may have gone
	})
	e, _, reg := started(t, otlp.Config{Endpoint: c.URL})
	for range 3 {
		e.Tracer().End(span("a"))
	}
	e.Close(t.Context())
	dropped(t, reg, "refused", 2)
}

// Whoever makes spans never waits: what has no place while the collector hangs is gone, and the end of the process
// does not wait longer than it is told.
func TestAHangingCollectorBlocksNobody(t *testing.T) {
	t.Parallel()
	c := collector.New(t, collector.Hanging(t))
	e, _, reg := started(t, otlp.Config{Endpoint: c.URL})
	e.Tracer().End(span("first"))
	c.Asked(1) // the sender waits for its answer
	for range otlp.QueueSpans + 7 {
		e.Tracer().End(span("more"))
	}
	dropped(t, reg, "full", 7)
	closeNow(e)
	dropped(t, reg, "stopped", otlp.QueueSpans+1)
}

func TestHeadersComeFromAFileAndAreNotSaid(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headers")
	write := func(text string) otlp.Config {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return otlp.Config{Endpoint: "http://127.0.0.1:1", HeadersFile: file}
	}
	c := collector.New(t, nil)
	cfg := write("# keys\n\nAuthorization: Basic c2VjcmV0\nx-team : a:b\n")
	cfg.Endpoint = c.URL
	e, _, _ := started(t, cfg)
	e.Tracer().End(span("a"))
	h := c.Asked(1)
	assert.Equal(t, "Basic c2VjcmV0", h.Get("Authorization"))
	assert.Equal(t, "a:b", h.Get("X-Team"))
	for text, want := range map[string]string{
		"secret": "line 1", "\na b: secret": "not the name of a header", "a: sec\x01ret": "control character", strings.Repeat("#", 70_000): "more than 65536 bytes",
	} {
		_, err := otlp.Start(otlp.Options{Config: write(text)})
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "sec")
	}
	_, err := otlp.Start(otlp.Options{Config: otlp.Config{Endpoint: "http://127.0.0.1:1", HeadersFile: file + "x"}})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTheRulesOfAddressesHoldForACollector(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://169.254.169.254:4318", "collector:4318", "ftp://a", "http://", "http://a/#b"} {
		_, err := otlp.Start(otlp.Options{Config: otlp.Config{Endpoint: address}})
		require.ErrorContains(t, err, "telemetry.otlp_endpoint", address)
	}
	_, err := otlp.Start(otlp.Options{Config: otlp.Config{Endpoint: "http://a"}, Outbound: outbound.Policy{Proxy: "nonsense"}})
	require.Error(t, err)
}

func TestWithoutACollectorThereIsNoExporter(t *testing.T) {
	t.Parallel()
	e, err := otlp.Start(otlp.Options{})
	require.NoError(t, err)
	assert.Nil(t, e)
	assert.Nil(t, e.Tracer())
	e.Close(t.Context())
}

// BenchmarkSpans is what a span costs who makes it, and what it costs to send.
func BenchmarkSpans(b *testing.B) {
	some := make([]*tracing.Span, 512)
	for i := range some {
		some[i] = span("attempt")
		some[i].Attributes = []tracing.Attribute{
			tracing.Whole("rewardloop.attempt", 1), tracing.Text("rewardloop.worker", "host-1-w0"), tracing.Text("rewardloop.outcome", "scored"),
		}
	}
	b.Run("make", func(b *testing.B) {
		b.ReportAllocs()
		tracer := tracing.New(1, func(s *tracing.Span) { some[0] = s })
		own, _ := tracer.Begin("")
		now := time.Now()
		for b.Loop() {
			tracer.End(&tracing.Span{
				Context: own.Attempt(1, "host-1-w0"), Parent: own.Span, Name: "attempt", Kind: tracing.Client, Start: now, End: now,
				Attributes: append(make([]tracing.Attribute, 0, 5),
					tracing.Whole("rewardloop.attempt", 1), tracing.Text("rewardloop.worker", "host-1-w0"), tracing.Text("rewardloop.outcome", "scored")),
			})
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			body, err := otlp.Encode(nil, "v", some)
			require.NoError(b, err)
			_, _ = io.Discard.Write(body)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(some)), "ns/span")
	})
}
