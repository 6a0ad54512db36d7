package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// lineTracing promises the figure.
const lineTracing = "traces: nothing where they are off, at most 2 % where they are on"

// tracingExperiment is what traces cost: the healthy run on a server that sends its spans to a collector, and on one that
// does not, in turn.
func tracingExperiment(l layout) Experiment {
	return Experiment{
		Name: "tracing-" + l.name, GoesOn: true,
		Setup: func(ctx context.Context, o Options) (Trial, error) { return newTracingTrial(ctx, l, o) },
		Rows: []Row{
			{Name: "cpu", Issue: lineTracing, Value: ratio("on_cpu_ms", "off_cpu_ms"), Target: atMost(1.02), Beside: []string{"on_cpu_ms", "off_cpu_ms", "sent_kib"}},
			{Name: "throughput", Value: ratio("on_per_s", "off_per_s"), Beside: []string{"on_per_s", "off_per_s"}},
		},
	}
}

// tracingTrial has a server with traces and one without. Only one of them has a load at a time.
type tracingTrial struct {
	off, on   *deployment
	collector *http.Server
	served    chan struct{} // closed when the listener has ended
	bytes     atomic.Int64  // that the collector was sent
	picture   []byte
	lasting   time.Duration
}

func newTracingTrial(ctx context.Context, l layout, o Options) (_ Trial, err error) {
	t := &tracingTrial{lasting: max(o.Lasting, 400*time.Millisecond), served: make(chan struct{})}
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	if t.picture, err = smallPicture(); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t.collector = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body) // a body that breaks off is counted as far as it came
		t.bytes.Add(n)
	})}
	go func() { // ends with Close
		defer close(t.served)
		_ = t.collector.Serve(listener) // always an error: that of the end
	}()
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	const yaml = "reward:\n  reward_functions:\n    size: {path: \"builtin://jpeg_compressibility\", required: true}\n"
	if t.off, err = deploy(ctx, root, l, rewardSetting{yaml: yaml}); err != nil {
		return nil, err
	}
	t.on, err = deploy(ctx, root, l, rewardSetting{yaml: yaml + fmt.Sprintf("telemetry: {otlp_endpoint: \"http://%s\"}\n", listener.Addr())})
	return t, err
}

// tracingTurns is how often a repetition goes from one side to the other: the machine changes more in seconds than the sides differ.
const tracingTurns = 16

// Measure implements Trial.
func (t *tracingTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	type side struct {
		took, cpu time.Duration
		scored    int
	}
	sides := map[string]*side{"off": {}, "on": {}}
	sent := t.bytes.Load()
	for i := range 2 * tracingTurns {
		name, d := "off", t.off
		if (i+i/2+rep)%2 == 1 { // off on, on off, off on …
			name, d = "on", t.on
		}
		g, err := healthyLoad(t.picture).begin(ctx, d.addr)
		if err != nil {
			return nil, err
		}
		slice := t.lasting / (2 * tracingTurns)
		err = sleep(ctx, slice/4)
		before := d.use()
		g.open(time.Now())
		err = errors.Join(err, sleep(ctx, slice))
		g.close(time.Now())
		after := d.use()
		if err = errors.Join(err, g.stop(), d.ended()); err != nil {
			return nil, err
		}
		if g.allFailed > 0 || g.scored == 0 {
			return nil, fmt.Errorf("%d of %d samples failed, traces %s: %s", g.allFailed, g.all, name, g.quote)
		}
		s := sides[name]
		s.took, s.scored = s.took+g.took, s.scored+g.scored
		s.cpu += after.Processes + after.Below - before.Processes - before.Below
	}
	r := Readings{"sent_kib": float64(t.bytes.Load()-sent) / 1024}
	for name, s := range sides {
		r[name+"_per_s"] = float64(s.scored) / s.took.Seconds()
		r[name+"_cpu_ms"] = 1000 * s.cpu.Seconds() / float64(s.scored)
	}
	if r["sent_kib"] == 0 {
		return nil, errors.New("the collector got nothing")
	}
	return r, nil
}

// Close implements Trial.
func (t *tracingTrial) Close() error {
	for _, d := range []*deployment{t.off, t.on} {
		if d != nil {
			d.close()
		}
	}
	err := t.collector.Close()
	<-t.served
	return err
}
