package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// soakTrial is a server that is used for long.
type soakTrial struct {
	deployment *deployment
	calibrated time.Duration
	lasting    time.Duration
	media      [][]*rewards.Media // in turn
	sent       atomic.Int64
	unscored   atomic.Int64
}

func newSoakTrial(ctx context.Context, o Options) (*soakTrial, error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	t := &soakTrial{calibrated: soakCalibration, lasting: o.Lasting}
	if o.Quick {
		t.calibrated, t.lasting = 500*time.Millisecond, 4*time.Second
	}
	raw := bytes.Repeat([]byte{7, 90, 200}, 512*512)
	jpeg, err := os.ReadFile(filepath.Join(root, "testdata", "golden", "ocr", "g00_0.jpg"))
	if err != nil {
		return nil, err
	}
	t.media = [][]*rewards.Media{
		{{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{512, 512, 3}, Data: raw}},
		{{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(jpeg)}, Data: jpeg}},
		nil,
	}
	t.deployment, err = deploy(ctx, root, layout{name: "embedded"}, rewardSetting{
		yaml: "reward: {custom_reward_function: {path: \"builtin://length\"}}\n",
	})
	return t, err
}

// Measure implements Trial.
func (t *soakTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	clients := make([]*client.Client, soakLanes)
	for i := range clients {
		c, err := client.Dial(ctx, client.Config{URL: "ws://" + t.deployment.addr, Run: "soak" + strconv.Itoa(rep), Client: "c" + strconv.Itoa(i)})
		if err != nil {
			return nil, err
		}
		defer c.Close()
		clients[i] = c
	}
	do := func(ctx context.Context, lane int) error { return t.send(ctx, clients[lane]) }
	most, err := closedLoop(ctx, do, soakLanes, soakWindow, t.calibrated)
	if err != nil {
		return nil, err
	}
	before := t.sent.Load()
	watch := newWatch(t.deployment, t.lasting)
	wctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var watched error
	watching.Go(func() { watched = watch.run(wctx) }) // ends with its context
	err = t.load(ctx, do, most.perSecond()/2)
	cancel()
	watching.Wait()
	if err = errors.Join(err, watched, t.deployment.ended()); err != nil {
		return nil, err
	}
	r := watch.readings()
	r["throughput_per_s"], r["unscored"] = most.perSecond(), float64(t.unscored.Load())
	r["samples"] = float64(t.sent.Load() - before)
	r["samples_per_s"] = r["samples"] / t.lasting.Seconds()
	return r, nil
}

// load sends at an even rate: what cannot be sent in its moment is sent later.
func (t *soakTrial) load(ctx context.Context, do roundTrip, rate float64) error {
	ctx, cancel := context.WithTimeout(ctx, t.lasting+overtime)
	defer cancel()
	begun, places := time.Now(), make(chan struct{}, soakLanes*soakWindow)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs error
	for i := 0; time.Since(begun) < t.lasting && ctx.Err() == nil; i++ {
		if wait := time.Until(begun.Add(time.Duration(float64(i) / rate * float64(time.Second)))); wait > 0 {
			time.Sleep(wait)
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if err := do(ctx, i%soakLanes); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = err
				cancel()
			}
		})
	}
	wg.Wait()
	return errs
}

// send sends one sample and waits for its result. Every second step is declared.
func (t *soakTrial) send(ctx context.Context, c *client.Client) error {
	n := t.sent.Add(1) - 1
	step, index := n/soakStep, n%soakStep
	if n%soakStep == 0 && step%2 == 0 {
		if err := c.Step(rewards.Train, step, soakStep); err != nil {
			return err
		}
	}
	f, err := c.Submit(ctx, &rewards.Sample{
		ID: "s" + strconv.FormatInt(n, 10), Step: step, Index: &index, UID: "g" + strconv.FormatInt(n/8, 10),
		Prompt: "a poster", Response: strings.Repeat("word ", 200), Media: t.media[n%int64(len(t.media))],
	}, 0)
	if err != nil {
		return err
	}
	res, err := f.Wait(ctx)
	if err == nil && res.Outcome != rewards.Scored {
		t.unscored.Add(1)
	}
	return err
}

// Close implements Trial.
func (t *soakTrial) Close() error {
	t.deployment.close()
	return nil
}

// soakWatch reads a process every second.
type soakWatch struct {
	d       *deployment
	begun   time.Time
	lasting time.Duration
	at      []float64 // seconds since begun
	of      map[string][]float64
}

func newWatch(d *deployment, lasting time.Duration) *soakWatch {
	return &soakWatch{d: d, begun: time.Now(), lasting: lasting, of: map[string][]float64{}}
}

// What /metrics calls what is read, and what it is here.
var soakMetrics = map[string]string{ //nolint:gochecknoglobals // a table
	"process_resident_memory_bytes": "rss", "process_open_fds": "descriptors", "go_goroutines": "goroutines", "go_gc_heap_live_bytes": "live",
}

func (w *soakWatch) run(ctx context.Context) error {
	every := max(min(time.Second, w.lasting/40), 50*time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := w.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.at = append(w.at, time.Since(w.begun).Seconds())
		for _, name := range soakMetrics {
			w.of[name] = append(w.of[name], now[name])
		}
	}
}

// look reads the process's own metrics.
func (w *soakWatch) look(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.d.addr+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	out := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(res.Body, 16<<20))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if as, ok := soakMetrics[name]; ok {
			if out[as], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, fmt.Errorf("/metrics: %s: %w", name, err)
			}
		}
	}
	if len(out) < len(soakMetrics) {
		return nil, fmt.Errorf("/metrics has %v of %v", out, soakMetrics)
	}
	return out, lines.Err()
}

// readings are the figures, once run has returned.
func (w *soakWatch) readings() Readings {
	const mb = 1e6
	from := func(part float64) int {
		return min(slices.IndexFunc(append(slices.Clone(w.at), math.Inf(1)), func(at float64) bool { return at >= part*w.lasting.Seconds() }), max(len(w.at)-1, 0))
	}
	warm, half, last := from(soakWarmUp), from(2*soakWarmUp), from(1-soakWarmUp)
	mean := func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		return sum / float64(max(len(v), 1))
	}
	grown := func(name string, of func([]float64) float64) float64 {
		return of(w.of[name][last:]) - of(w.of[name][warm:half+1])
	}
	return Readings{
		"rss_slope": slope(w.at[warm:], w.of["rss"][warm:]) * 3600 / mb, "rss_mb": mean(w.of["rss"][last:]) / mb,
		"descriptors": grown("descriptors", mean), "goroutines": grown("goroutines", mean), "live_heap": grown("live", slices.Min[[]float64]) / mb,
	}
}

// slope is that of least squares.
func slope(x, y []float64) float64 {
	n, sx, sy, sxx, sxy := float64(len(x)), 0.0, 0.0, 0.0, 0.0
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}
