package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/remote"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// lineHTTP is the issue's.
const lineHTTP = "20,480 HTTP scorer calls of 0.1–4 s, 5,120 at a time, on 2 cores together with the stub: within 3 % of the makespan of an ideal " +
	"pull queue computed from the same drawn times in the same order; under 1 GiB"

// The load: uniform service times, drawn from one seed.
const (
	httpCalls   = 20_480
	httpAtATime = 5_120
	httpLeast   = 100 * time.Millisecond
	httpMost    = 4 * time.Second
	httpSeed    = 20480
)

// overHTTP is how well many slow scorers on other servers are kept busy.
func overHTTP() Suite {
	return Suite{
		Name: "http",
		About: "20,480 calls of the scorer http, each answered by a stub in this process after a time drawn uniformly from 0.1 to 4 s; 5,120 are under " +
			"way at a time, each on a connection of its own, and none is open at the start. Beside it stands an ideal pull queue: the same times in the " +
			"same order on 5,120 servers that lose no moment, and net/http alone with the same calls. Memory is the most that the process, client and stub, held.",
		Experiments: []Experiment{{
			Name: "http", Setup: newHTTPTrial,
			Rows: []Row{
				{
					Name: "makespan", Issue: lineHTTP, Unit: "s", Value: reading("ours_s"), Target: within(1.03, "ideal_s"),
					Beside: []string{"ideal_s", "bare_s", "bound_s", "ours_full_s", "bare_full_s", "ours_cpu_s", "bare_cpu_s", othersCores},
				},
				{Name: "over-ideal", Value: ratio("ours_s", "ideal_s")},
				{Name: "over-bare", Value: ratio("ours_s", "bare_s")},
				{Name: "memory", Issue: lineHTTP, Unit: "MiB", Value: reading("peak_mib"), Target: atMost(1024)},
			},
		}},
	}
}

// within is a share of a reading of the same run.
func within(share float64, of string) Target {
	return func(now, _ Readings) (report.Bound, error) {
		v := share * lookup(now, of)
		if !(v > 0) {
			return report.Bound{}, fmt.Errorf("%s is %v, it must be above 0", of, now[of])
		}
		return report.Bound{Most: true, Value: v, Note: fmt.Sprintf("%v of %s", share, of)}, nil
	}
}

// httpTrial is a scorer and the stub that it asks.
type httpTrial struct {
	calls, atATime int
	delays         []time.Duration
	transport      *outbound.Transport
	scorer         rewards.Scorer
	bare           *http.Transport
	open           atomic.Int64 // connections of the stub
	stub           net.Listener
	served         chan struct{} // closed when the stub and its connections have ended
}

func newHTTPTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &httpTrial{
		calls: httpCalls, atATime: httpAtATime, served: make(chan struct{}),
		bare: &http.Transport{MaxIdleConnsPerHost: httpAtATime, MaxIdleConns: httpAtATime, IdleConnTimeout: 4 * time.Second},
	}
	most := httpMost
	if o.Quick {
		t.calls, t.atATime, most = httpCalls/32, httpAtATime/32, httpMost/8
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	draw := rand.New(rand.NewPCG(httpSeed, 1)) //nolint:gosec // the same times in every run
	for range t.calls {
		t.delays = append(t.delays, httpLeast+time.Duration(draw.Int64N(int64(most-httpLeast))))
	}
	addr, err := t.listen(ctx)
	if err != nil {
		return nil, err
	}
	if t.transport, err = outbound.NewTransport(outbound.Policy{}); err != nil {
		return nil, err
	}
	options, err := json.Marshal(map[string]any{
		"url": "http://" + addr, "protocol": "json", "request": map[string]any{"call": "{extra_info.call}"}, "score_path": "score",
		"concurrency": t.atATime, "attempts": 1,
	})
	if err != nil {
		return nil, err
	}
	for _, spec := range remote.Specs(t) {
		if spec.Name == "http" {
			t.scorer, err = spec.Build(options)
		}
	}
	return t, err
}

// Upstream implements remote.Upstreams.
func (t *httpTrial) Upstream(urls []string, o remote.UpstreamOptions) (outbound.Doer, error) {
	return t.transport.Upstream(outbound.UpstreamConfig{URLs: urls, Concurrency: o.Concurrency, Attempts: o.Attempts})
}

// listen starts the stub: it answers each call after its time. It speaks just enough
// HTTP for that, so that the cores are the client's.
func (t *httpTrial) listen(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	t.stub = l
	go func() { // ends with Close
		defer close(t.served)
		var conns sync.WaitGroup
		defer conns.Wait()
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			conns.Go(func() { t.answer(conn) }) // ends when the client hangs up
		}
	}()
	return l.Addr().String(), nil
}

// answer serves one connection.
func (t *httpTrial) answer(conn net.Conn) {
	t.open.Add(1)
	defer t.open.Add(-1)
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 1<<10)
	var out []byte
	for {
		call, err := readCall(r)
		if err != nil || call < 0 || call >= len(t.delays) {
			return
		}
		time.Sleep(t.delays[call])
		score := strconv.Itoa(call)
		out = fmt.Appendf(out[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"score\": %s}", len(score)+11, score)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// readCall reads a request and returns the number in its body.
func readCall(r *bufio.Reader) (int, error) {
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		if len(name) == 0 {
			break
		}
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}
	if length < 1 || length > 1<<10 {
		return 0, fmt.Errorf("a body of %d bytes", length)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, err
	}
	var asked struct{ Call int }
	err := json.Unmarshal(body, &asked)
	return asked.Call, err
}

// Measure implements Trial: the scorer, and net/http alone, in changing order.
func (t *httpTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	ideal, bound, err := t.ideal()
	if err != nil {
		return nil, err
	}
	r := Readings{"ideal_s": ideal, "bound_s": bound}
	sides := []struct {
		name string
		call func(context.Context, int) error
	}{{"ours", t.call}, {"bare", t.bareCall}}
	for i := range sides {
		s := sides[(i+rep)%2]
		forgetPeak()
		o, full, err := t.load(ctx, s.call)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		r[s.name+"_s"], r[s.name+"_full_s"], r[s.name+"_cpu_s"] = o.took.Seconds(), full.Seconds(), o.used.cpu.Seconds()
		r[othersCores] = max(r[othersCores], o.others())
		if s.name == "ours" {
			r["peak_mib"] = peakMiB()
		}
		t.bare.CloseIdleConnections()
		t.settle(ctx)
	}
	return r, nil
}

// settle waits until no connection is open: each side begins without any.
func (t *httpTrial) settle(ctx context.Context) {
	for t.open.Load() > 0 && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
	}
}

// load makes all calls, so many at a time, in their order. Full is when the last of the
// first ones had begun.
func (t *httpTrial) load(ctx context.Context, call func(context.Context, int) error) (o outcome, full time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*httpMost+overtime)
	defer cancel()
	var next atomic.Int64
	errs := make([]error, t.atATime)
	var wg sync.WaitGroup
	begun, start := used(), time.Now()
	var begun64 atomic.Int64 // of the last of the first calls, in ns
	for i := range t.atATime {
		wg.Go(func() {
			for errs[i] == nil {
				n := int(next.Add(1)) - 1
				if n >= t.calls {
					return
				}
				if n == t.atATime-1 {
					begun64.Store(int64(time.Since(start)))
				}
				errs[i] = call(ctx, n)
			}
		})
	}
	wg.Wait()
	o = outcome{took: time.Since(start), used: used().since(begun)}
	return o, time.Duration(begun64.Load()), errors.Join(errs...)
}

// bareCall is the same call with net/http alone, which looks at nothing.
func (t *httpTrial) bareCall(ctx context.Context, n int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.stub.Addr().String(), strings.NewReader(`{"call": `+strconv.Itoa(n)+`}`))
	if err != nil {
		return err
	}
	resp, err := t.bare.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// call scores one sample and holds its score against the call's number.
func (t *httpTrial) call(ctx context.Context, n int) error {
	got, err := t.scorer.Score(ctx, &rewards.Sample{ID: strconv.Itoa(n), ExtraInfo: json.RawMessage(`{"call": ` + strconv.Itoa(n) + `}`)})
	if err != nil {
		return err
	}
	if got.Value != float64(n) {
		return fmt.Errorf("call %d was answered %v", n, got.Value)
	}
	return nil
}

// ideal is the makespan of a pull queue that loses no moment, and the bound that no
// queue can beat.
func (t *httpTrial) ideal() (queue, bound float64, err error) {
	released, times := make([]float64, t.calls), make([]float64, t.calls)
	for i, d := range t.delays {
		times[i] = d.Seconds()
	}
	s, err := sim.IdealQueue(released, times, t.atATime)
	if err != nil {
		return 0, 0, err
	}
	bound, err = sim.LowerBound(released, times, t.atATime)
	return s.Makespan, bound, err
}

// Close implements Trial.
func (t *httpTrial) Close() error {
	var errs []error
	if c, ok := t.scorer.(rewards.Closer); ok {
		errs = append(errs, c.Close())
	}
	if t.transport != nil {
		t.transport.Close()
	}
	if t.stub != nil {
		errs = append(errs, t.stub.Close())
		<-t.served // the transport's idle connections are closed within seconds
	}
	return errors.Join(errs...)
}

// forgetPeak sets the most memory that the process has held to what it holds now, where
// the system can (proc_pid_clear_refs(5)).
func forgetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peakMiB is the most memory that the process has held; 0 where the system does not tell.
func peakMiB() float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0
			}
			return kib / 1024
		}
	}
	return 0
}
