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
			"same order on 5,120 servers that lose no moment. Memory is the most that the process, client and stub, held.",
		Experiments: []Experiment{{
			Name: "http", Setup: newHTTPTrial,
			Rows: []Row{
				{
					Name: "makespan", Issue: lineHTTP, Unit: "s", Value: reading("ours_s"), Target: within(1.03, "ideal_s"),
					Beside: []string{"ideal_s", "bound_s", "servers_full_s", "cpu_s", othersCores},
				},
				{Name: "over-ideal", Value: ratio("ours_s", "ideal_s")},
				{Name: "memory", Issue: lineHTTP, Unit: "MiB", Value: reading("peak_mib"), Target: atMost(1024)},
			},
		}},
	}
}

// within is a share of a reading of the same run.
func within(share float64, of string) Target {
	return func(now, _ Readings) (Bound, error) {
		v := share * lookup(now, of)
		if !(v > 0) {
			return Bound{}, fmt.Errorf("%s is %v, it must be above 0", of, now[of])
		}
		return Bound{Most: true, Value: v, Note: fmt.Sprintf("%v of %s", share, of)}, nil
	}
}

// httpTrial is a scorer and the stub that it asks.
type httpTrial struct {
	calls, atATime int
	delays         []time.Duration
	transport      *outbound.Transport
	scorer         rewards.Scorer
	stub           net.Listener
	served         chan struct{} // closed when the stub and its connections have ended
}

func newHTTPTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &httpTrial{calls: httpCalls, atATime: httpAtATime, served: make(chan struct{})}
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

// Group implements remote.Groups.
func (t *httpTrial) Group(urls []string, o remote.GroupOptions) (outbound.Doer, error) {
	return t.transport.Group(outbound.GroupConfig{URLs: urls, Concurrency: o.Concurrency, Attempts: o.Attempts})
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

// Measure implements Trial.
func (t *httpTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	ideal, bound, err := t.ideal()
	if err != nil {
		return nil, err
	}
	forgetPeak()
	ctx, cancel := context.WithTimeout(ctx, 4*httpMost+overtime)
	defer cancel()
	var next atomic.Int64
	errs := make([]error, t.atATime)
	var wg sync.WaitGroup
	begun, start := used(), time.Now()
	var full atomic.Int64 // when the last of the first calls had begun, in ns
	for i := range t.atATime {
		wg.Go(func() {
			for errs[i] == nil {
				n := int(next.Add(1)) - 1
				if n >= t.calls {
					return
				}
				if n == t.atATime-1 {
					full.Store(int64(time.Since(start)))
				}
				errs[i] = t.call(ctx, n)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	o := outcome{took: took, used: used().since(begun)}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return Readings{
		"ours_s": took.Seconds(), "ideal_s": ideal, "bound_s": bound, "servers_full_s": time.Duration(full.Load()).Seconds(),
		"cpu_s": o.used.cpu.Seconds(), "peak_mib": peakMiB(), othersCores: o.others(),
	}, nil
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
