package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
	"github.com/rewardloop/rewardloop/wire"
)

// batch is what became of samples that were sent one after the other, in seconds since the
// first: when the client began to submit each, and when it had its result.
type batch struct {
	sent, done []float64
	results    []*wire.Result
	unscored   int
	quote      string // why the first of them has no score
}

// ends is when the last result was there.
func (b *batch) ends() float64 { return slices.Max(b.done) }

// allScored is an error where a sample has no score.
func (b *batch) allScored() error {
	if b.unscored > 0 {
		return fmt.Errorf("%d of %d samples were not scored: %s", b.unscored, len(b.sent), b.quote)
	}
	return nil
}

// sendAll sends samples as fast as the client takes them and waits for all results until the
// deadline: a sample without one then is not scored.
func sendAll(ctx context.Context, c *client.Client, samples []rewards.Sample, deadline time.Duration) (*batch, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	n := len(samples)
	b := &batch{sent: make([]float64, n), done: make([]float64, n), results: make([]*wire.Result, n)}
	waits := make([]error, n)
	var refused error
	var wg sync.WaitGroup
	start := time.Now()
	for i := range samples {
		b.sent[i] = time.Since(start).Seconds()
		f, err := c.Submit(ctx, &samples[i], 0)
		if err != nil {
			refused = fmt.Errorf("sample %d of %d: %w", i+1, n, err)
			break
		}
		wg.Go(func() {
			b.results[i], waits[i] = f.Wait(ctx)
			b.done[i] = time.Since(start).Seconds()
		})
	}
	wg.Wait()
	for i, res := range b.results {
		var why string
		switch {
		case res == nil:
			why = fmt.Sprintf("no result: %v", waits[i])
		case res.Outcome != rewards.Scored:
			why = fmt.Sprintf("%s: %v", res.Outcome, res.Errors)
		default:
			continue
		}
		b.unscored++
		b.quote = cmp.Or(b.quote, why)
	}
	return b, refused
}

// sendOver is sendAll over a client of its own.
func sendOver(ctx context.Context, addr string, cfg client.Config, samples []rewards.Sample, deadline time.Duration) (b *batch, err error) {
	cfg.URL = "ws://" + addr
	c, err := client.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return sendAll(ctx, c, samples, deadline)
}

// callsTrial has a function that waits behind a server.
type callsTrial struct {
	deployment *deployment
	bare       *bare
	calls      int
	waits      time.Duration
	lasting    time.Duration // of the calibration
	runs       int
}

func newCallsTrial(ctx context.Context, o Options, yaml string) (_ Trial, err error) {
	t := &callsTrial{calls: agentCalls, waits: time.Second, lasting: min(o.Lasting, 3*time.Second)}
	if o.Quick {
		t.calls, t.waits = 16, 100*time.Millisecond
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	if t.bare, err = newBare(ctx, lanes); err != nil {
		return nil, err
	}
	t.deployment, err = deploy(ctx, root, layout{name: "embedded"}, rewardSetting{yaml: yaml})
	return t, err
}

// Measure implements Trial.
func (t *callsTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	frame := make([]byte, 300)
	o, err := closedLoop(ctx, func(ctx context.Context, lane int) error { return t.bare.send(ctx, lane, frame) }, lanes, 32, t.lasting)
	if err != nil {
		return nil, err
	}
	r := Readings{"bare_per_s": o.perSecond(), "waits_s": t.waits.Seconds()}
	if t.runs == 0 { // the process starts
		if _, err := t.send(ctx, 4); err != nil {
			return nil, err
		}
	}
	b, err := t.send(ctx, t.calls)
	if err != nil {
		return nil, err
	}
	r["calls_s"], r["first_s"], r["unscored"] = b.ends(), slices.Min(b.done), float64(b.unscored)
	return r, t.deployment.ended()
}

func (t *callsTrial) send(ctx context.Context, calls int) (*batch, error) {
	t.runs++
	samples := make([]rewards.Sample, calls)
	for i := range samples {
		samples[i] = waitFor(strconv.Itoa(i), "", t.waits)
	}
	return sendOver(ctx, t.deployment.addr, client.Config{Run: fmt.Sprintf("calls%d", t.runs)}, samples, overtime+time.Duration(calls)*t.waits)
}

// Close implements Trial.
func (t *callsTrial) Close() error {
	if t.deployment != nil {
		t.deployment.close()
	}
	if t.bare != nil {
		return t.bare.Close()
	}
	return nil
}

// engineTrial has a judge behind a server, and net/http alone, at the same engine.
type engineTrial struct {
	engine        *timedEngine
	deployment    *deployment
	bare          *http.Transport
	calls, places int
	takes         time.Duration
	next          int // call
}

func newEngineTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &engineTrial{calls: engineCalls, places: enginePlaces, takes: time.Second}
	if o.Quick {
		t.calls, t.places, t.takes = 64, 16, 100*time.Millisecond
	}
	t.bare = &http.Transport{MaxIdleConnsPerHost: t.places, MaxIdleConns: t.places}
	if t.engine, err = newTimedEngine(ctx, t.places); err != nil {
		return nil, err
	}
	root, err := report.Repository()
	if err == nil {
		t.deployment, err = deploy(ctx, root, layout{name: "embedded"}, rewardSetting{yaml: judgeProfile(t.places, t.engine.url())})
	}
	if err != nil {
		t.engine.kill()
		return nil, err
	}
	return t, nil
}

// Measure implements Trial: both sides, in changing order.
func (t *engineTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{othersCores: 0}
	sides := []struct {
		name string
		do   func(ctx context.Context, calls int, takes time.Duration) (sent, done []float64, err error)
	}{{"ours", t.ours}, {"bare", t.alone}}
	for i := range sides {
		s := sides[(i+rep)%2]
		if _, _, err := s.do(ctx, t.places, t.takes/4); err != nil { // connections
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		first, strangers := t.next, t.deployment.strangers()
		sent, done, err := s.do(ctx, t.calls, t.takes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		r[othersCores] = max(r[othersCores], strangers())
		times, err := t.engine.times(first, t.calls)
		if err != nil {
			return nil, err
		}
		ideal, err := sim.IdealQueue(sent, times, t.places)
		if err != nil {
			return nil, err
		}
		r[s.name+"_s"], r[s.name+"_ideal_s"], r[s.name+"_submitted_s"] = slices.Max(done), ideal.Makespan, slices.Max(sent)
	}
	return r, t.deployment.ended()
}

// ours sends samples to the server.
func (t *engineTrial) ours(ctx context.Context, calls int, takes time.Duration) (sent, done []float64, err error) {
	samples := make([]rewards.Sample, calls)
	for i := range samples {
		samples[i] = judged(t.next+i, takes)
	}
	t.next += calls
	b, err := sendOver(ctx, t.deployment.addr, client.Config{Run: "judged" + strconv.Itoa(t.next)}, samples, overtime)
	if err != nil {
		return nil, nil, err
	}
	return b.sent, b.done, b.allScored()
}

// judged is a sample whose call of the engine takes so long.
func judged(call int, takes time.Duration) rewards.Sample {
	return rewards.Sample{ID: "j" + strconv.Itoa(call), Prompt: prompt(call, takes), Response: "an answer"}
}

// alone makes the same calls with net/http, as many at a time as the engine serves. All of them
// are there from the beginning.
func (t *engineTrial) alone(ctx context.Context, calls int, takes time.Duration) (sent, done []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, overtime)
	defer cancel()
	first := t.next
	t.next += calls
	done = make([]float64, calls)
	errs := make([]error, t.places)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for k := range errs {
		wg.Go(func() {
			for errs[k] == nil {
				i := int(next.Add(1)) - 1
				if i >= calls {
					return
				}
				errs[k] = t.post(ctx, prompt(first+i, takes))
				done[i] = time.Since(start).Seconds()
			}
		})
	}
	wg.Wait()
	return make([]float64, calls), done, errors.Join(errs...)
}

// post asks the engine once.
func (t *engineTrial) post(ctx context.Context, text string) error {
	body := fmt.Sprintf(`{"model":"stub","messages":[{"role":"user","content":%q}],"temperature":0,"max_tokens":1024}`, text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.engine.url()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.bare.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// Close implements Trial.
func (t *engineTrial) Close() error {
	t.deployment.close()
	t.bare.CloseIdleConnections()
	t.engine.kill()
	return nil
}

// strangers begins to measure how many cores are busy with what is neither the bench nor its
// programs; the function that it returns ends that.
func (d *deployment) strangers() func() float64 {
	busy := func() time.Duration {
		use := d.use()
		return cputime.Machine() - cputime.Own() - use.Processes - use.Below
	}
	before, start := busy(), time.Now()
	return func() float64 { return max(0, (busy()-before).Seconds()/time.Since(start).Seconds()) }
}
