package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"

	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/rewards"
)

const (
	queueSpans = 8192
	batchSpans = 512
	batchWait  = time.Second
	sendWithin = 10 * time.Second
)

// Options are the dependencies of an Exporter.
type Options struct {
	Config
	Process

	// Outbound is the policy for addresses.
	Outbound outbound.Policy
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// Exporter sends spans to a collector. A nil *Exporter traces nothing.
type Exporter struct {
	// Immutable after Start.
	tracer    *tracing.Tracer
	transport *outbound.Transport
	collector outbound.Doer
	header    http.Header
	of        *resource.Resource
	version   string
	log       *slog.Logger
	sent      prometheus.Counter
	dropped   *prometheus.CounterVec

	queue   chan *tracing.Span
	ready   chan struct{}
	closing chan struct{}
	once    sync.Once
	stopped atomic.Bool
	stop    context.CancelFunc
	done    chan struct{} // closed when the sender has returned

	failing bool // the last batch was not taken; the sender's own
	lost    int  // spans since it fails; likewise
}

// Reasons for which spans are dropped.
const (
	reasonFull        = "full"        // the queue had no place
	reasonUnreachable = "unreachable" // the collector did not answer, or not with success
	reasonRefused     = "refused"     // the collector does not want them
	reasonStopped     = "stopped"     // the process ended first
)

// Start starts an exporter, or returns nil if the configuration has no collector. It opens no
// connection before there is a span.
func Start(o Options) (*Exporter, error) {
	if o.Endpoint == "" {
		return nil, nil
	}
	address, err := o.url()
	if err != nil {
		return nil, fmt.Errorf("telemetry.otlp_endpoint: %w", err)
	}
	e := &Exporter{
		of: describe(&o.Config, o.Process), version: o.Version, log: o.Log, queue: make(chan *tracing.Span, queueSpans),
		ready: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.header, err = o.headers(); err != nil {
		return nil, err
	}
	if e.transport, err = outbound.NewTransport(o.Outbound); err != nil {
		return nil, err
	}
	e.collector, err = e.transport.Upstream(outbound.UpstreamConfig{Name: "telemetry", URLs: []string{address}, Concurrency: 1, Timeout: sendWithin})
	if err != nil {
		e.transport.Close()
		return nil, fmt.Errorf("telemetry.otlp_endpoint: %w", err)
	}
	set := metric.For(o.Metrics, "telemetry")
	e.sent = set.Counter("spans_sent_total", "Spans of traces that the collector accepted.")
	e.dropped = set.Counters("spans_dropped_total", "Spans of traces that were dropped, by reason: full (collector too slow), unreachable (no answer from the collector in time), refused (by the collector), stopped (process ended first).",
		metric.By("reason", reasonFull, reasonUnreachable, reasonRefused, reasonStopped))
	e.tracer = tracing.New(o.SampleRatio, e.add)
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	go e.run(ctx) // ends with Close, which waits for it
	return e, nil
}

// Tracer returns the Tracer whose spans are sent; nil: nothing is traced.
func (e *Exporter) Tracer() *tracing.Tracer {
	if e == nil {
		return nil
	}
	return e.tracer
}

// add puts a span into the queue, or drops it.
func (e *Exporter) add(s *tracing.Span) {
	if e.stopped.Load() {
		e.dropped.WithLabelValues(reasonStopped).Inc()
		return
	}
	select {
	case e.queue <- s:
	default:
		e.dropped.WithLabelValues(reasonFull).Inc()
		return
	}
	if len(e.queue) == batchSpans { // else the sender's next look finds it
		select {
		case e.ready <- struct{}{}:
		default:
		}
	}
}

// run sends batches until Close, and then what is left. An idle process wakes once a second for a look at an empty queue.
func (e *Exporter) run(ctx context.Context) {
	defer close(e.done)
	tick := time.NewTicker(batchWait)
	defer tick.Stop()
	batch := make([]*tracing.Span, 0, batchSpans)
	for closing := false; ; {
		if len(e.queue) < batchSpans && !closing {
			select {
			case <-tick.C:
			case <-e.ready:
			case <-e.closing:
				closing = true
			}
		}
		batch = batch[:0]
		for len(batch) < batchSpans && len(e.queue) > 0 {
			batch = append(batch, <-e.queue) // nobody else receives
		}
		if len(batch) > 0 {
			e.send(ctx, batch)
			clear(batch)
		}
		if closing && len(e.queue) == 0 {
			return
		}
	}
}

// send hands a batch to the collector, or drops it.
func (e *Exporter) send(ctx context.Context, batch []*tracing.Span) {
	if ctx.Err() != nil {
		e.drop(reasonStopped, len(batch), nil)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	body, err := encode(e.of, e.version, batch)
	if err != nil {
		e.drop(reasonRefused, len(batch), err)
		return
	}
	answer, err := e.collector.Do(ctx, &outbound.Call{Header: e.header, Body: body, Authorized: true, MaxBytes: 1 << 20})
	switch {
	case errors.Is(err, rewards.Cancelled):
		e.drop(reasonStopped, len(batch), err)
	case err != nil && (errors.Is(err, rewards.Unavailable) || errors.Is(err, rewards.Timeout)):
		e.drop(reasonUnreachable, len(batch), err)
	case err != nil:
		e.drop(reasonRefused, len(batch), err)
	default:
		refused := int(min(rejected(answer.Body), int64(len(batch))))
		e.sent.Add(float64(len(batch) - refused))
		if refused > 0 {
			e.drop(reasonRefused, refused, errors.New("the collector rejected items in its answer"))
			return
		}
		if e.failing {
			e.log.InfoContext(ctx, "the trace collector accepts spans again", "spans_lost", e.lost)
		}
		e.failing, e.lost = false, 0
	}
}

// drop counts spans that are gone, and says so once until the collector takes some again.
func (e *Exporter) drop(reason string, spans int, err error) {
	e.dropped.WithLabelValues(reason).Add(float64(spans))
	e.lost += spans
	if !e.failing && err != nil {
		e.log.Warn("the trace collector does not accept spans, and spans are dropped; scoring is not affected", "reason", reason, "spans", spans, "error", err)
		e.failing = true
	}
}

// Close sends the remaining spans until ctx ends. Later spans are dropped.
func (e *Exporter) Close(ctx context.Context) {
	if e == nil {
		return
	}
	e.once.Do(func() {
		e.stopped.Store(true)
		close(e.closing)
	})
	select {
	case <-e.done:
	case <-ctx.Done():
	}
	e.stop()
	<-e.done
	e.transport.Close()
}
