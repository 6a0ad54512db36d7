package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// storm is something that clients do over and over.
type storm struct {
	name string
	// do does it so many times and returns how many samples were left without the result that
	// they must have.
	do func(ctx context.Context, addr string, times int) (unanswered int, err error)
	// answered: every sample must have a result. Whose connection is taken over gets none.
	answered bool
}

func storms() []storm {
	return []storm{{"cancels", cancels, true}, {"takeovers", takeovers, false}, {"resumes", resumes, true}}
}

// Sizes of a storm and of what comes after it.
const (
	stormTimes = 2000
	stormLanes = 4
	// A sample of the storm takes so long of the async function or the blocking one, if nothing
	// interrupts it: long enough to be in a process when the client does its worst, which is
	// at most stormWait later.
	stormTakes  = 20 * time.Millisecond
	stormBlocks = 2 * time.Millisecond
	stormWait   = 2 * time.Millisecond
	// freshSamples are sent afterwards, and have freshLimit.
	freshSamples = 200
	freshLimit   = 60 * time.Second
	// holdFor is how long samples hold all places afterwards.
	holdFor = 2 * time.Second
	// holdHanging is the same where a function has a second.
	holdHanging = 900 * time.Millisecond
)

// stormTrial lets clients do their worst to a server, and then asks what is left of it. Each
// measurement has a server of its own.
type stormTrial struct {
	root   string
	layout layout
	storm  storm
	times  int
}

func newStormTrial(_ context.Context, l layout, k storm, o Options) (_ Trial, err error) {
	t := &stormTrial{layout: l, storm: k, times: stormTimes}
	if o.Quick {
		t.times /= 100
	}
	t.root, err = report.Repository()
	return t, err
}

// Measure implements Trial.
func (t *stormTrial) Measure(ctx context.Context, _ int) (_ Readings, err error) {
	d, err := deploy(ctx, t.root, t.layout, rewardSetting{yaml: stormProfiles})
	if err != nil {
		return nil, err
	}
	defer d.close()
	if _, _, err := t.fresh(ctx, d, "first"); err != nil { // imports and connections
		return nil, err
	}
	alone, unscored, err := t.fresh(ctx, d, "alone")
	if err != nil || unscored > 0 {
		return nil, errors.Join(err, fmt.Errorf("%d samples were not scored before anything happened", unscored))
	}
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
	unanswered, err := t.storm.do(limited, d.addr, t.times)
	cancel()
	if err != nil {
		return nil, err
	}
	r := Readings{"alone_s": alone.Seconds(), "storm_s": time.Since(begin).Seconds(), "unanswered": float64(unanswered), "done": float64(t.times)}
	fresh, unscored, err := t.fresh(ctx, d, "fresh")
	if err != nil {
		return nil, err
	}
	r["fresh_s"], r["fresh_unscored"] = fresh.Seconds(), float64(unscored)
	return r, errors.Join(t.places(ctx, d, r), d.ended())
}

// fresh is how long a new client's samples take, half of them of each function.
func (t *stormTrial) fresh(ctx context.Context, d *deployment, run string) (time.Duration, int, error) {
	samples := make([]rewards.Sample, freshSamples)
	for i := range samples {
		samples[i] = waitFor(strconv.Itoa(i), stormProfile(int64(i)), 5*time.Millisecond)
	}
	took, unscored, err := burst(ctx, d.addr, run, samples, freshLimit)
	return longest(took), unscored, err
}

// places looks for places that were lost.
func (t *stormTrial) places(ctx context.Context, d *deployment, r Readings) (err error) {
	if r["busy"], err = d.settled(ctx); err != nil {
		return err
	}
	if r["lost_async"], err = d.hold(ctx, "", t.layout.scoring(), asyncPlaces, holdFor); err != nil {
		return err
	}
	r["lost_blocking"], err = d.hold(ctx, "blocking", t.layout.scoring(), runtime.NumCPU(), holdFor) // a process for each CPU
	r["lost"] = r["busy"] + r["lost_async"] + r["lost_blocking"]
	return err
}

// settled is how many samples workers count as busy when nothing is in flight any more.
func (d *deployment) settled(ctx context.Context) (float64, error) {
	busy, err := d.busy(ctx)
	for end := time.Now().Add(overtime); err == nil && busy > 0 && time.Now().Before(end); {
		if err = sleep(ctx, 50*time.Millisecond); err == nil {
			busy, err = d.busy(ctx)
		}
	}
	return float64(busy), err
}

// hold sends as many samples of a profile as there are places, over a client for each process
// that has some, and counts those that had to wait for one.
func (d *deployment) hold(ctx context.Context, reward string, processes, places int, lasting time.Duration) (float64, error) {
	errs, lost := make([]error, processes), make([]int, processes)
	var all sync.WaitGroup
	for p := range processes {
		all.Go(func() {
			samples := make([]rewards.Sample, places)
			for i := range samples {
				samples[i] = waitFor(strconv.Itoa(i), reward, lasting)
			}
			var took []time.Duration
			took, _, errs[p] = burst(ctx, d.addr, fmt.Sprintf("hold-%s-%d", reward, p), samples, overtime)
			lost[p] = late(took, lasting)
		})
	}
	all.Wait()
	sum := 0
	for _, n := range lost {
		sum += n
	}
	return float64(sum), errors.Join(errs...)
}

// late counts what took longer than one hold and a half.
func late(took []time.Duration, hold time.Duration) int {
	n := 0
	for _, d := range took {
		if d > hold+hold/2 {
			n++
		}
	}
	return n
}

// Close implements Trial.
func (*stormTrial) Close() error { return nil }

// pause waits a random time before the client does its worst.
func pause(ctx context.Context) error {
	return sleep(ctx, time.Duration(rand.Int64N(int64(stormWait)))) //nolint:gosec // a storm, not a secret
}

// stormProfile is that of a sample: every second one is for the blocking function.
func stormProfile(i int64) string {
	if i%2 == 1 {
		return "blocking"
	}
	return ""
}

// stormSample is one of a storm.
func stormSample(prefix string, i int64) rewards.Sample {
	takes := stormTakes
	if i%2 == 1 {
		takes = stormBlocks
	}
	return waitFor(prefix+strconv.FormatInt(i, 10), stormProfile(i), takes)
}

// cancels sends samples and takes each back a moment later.
func cancels(ctx context.Context, addr string, times int) (int, error) {
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "storm"})
	if err != nil {
		return 0, err
	}
	var next, unanswered atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, failingInFlight)
	for k := range errs {
		wg.Go(func() {
			for errs[k] == nil {
				i := next.Add(1)
				if i > int64(times) {
					return
				}
				var answered bool
				answered, errs[k] = cancelOne(ctx, c, i)
				if !answered {
					unanswered.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(unanswered.Load()), errors.Join(errors.Join(errs...), c.Close())
}

// cancelOne reports whether the sample had a result, of whatever kind.
func cancelOne(ctx context.Context, c *client.Client, i int64) (bool, error) {
	s := stormSample("c", i)
	f, err := c.Submit(ctx, &s, 0)
	if err == nil {
		err = pause(ctx)
	}
	if err == nil {
		err = c.Cancel(s.ID)
	}
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, overtime)
	defer cancel()
	_, err = f.Wait(ctx)
	return err == nil, nil
}
