package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// rateTrial measures how fast a run gets its results with good samples and with bad ones,
// each on servers of its own.
type rateTrial struct {
	root    string
	layout  layout
	failure failure
	engine  *stubEngine
	lasting time.Duration
}

func newRateTrial(ctx context.Context, l layout, f failure, o Options) (_ Trial, err error) {
	t := &rateTrial{layout: l, failure: f, lasting: max(o.Lasting/4, 300*time.Millisecond)}
	if t.root, err = report.Repository(); err != nil {
		return nil, err
	}
	t.engine, err = newStubEngine(ctx)
	return t, err
}

// Measure implements Trial: both flags, in changing order.
func (t *rateTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	flags := []string{flagGood, flagBad}
	for i := range flags {
		flag := flags[(i+rep)%2]
		g, err := t.alone(ctx, flag)
		if err != nil {
			return nil, fmt.Errorf("with %s samples: %w", flag, err)
		}
		if wrong := g.allFailed; flag == flagGood && (wrong > 0 || g.scored == 0) {
			return nil, fmt.Errorf("%d of %d good samples failed: %s", wrong, g.all, g.quote)
		}
		if g.all > g.allFailed && flag == flagBad {
			return nil, fmt.Errorf("%d of %d bad samples were scored", g.all-g.allFailed, g.all)
		}
		r[flag+"_per_s"] = g.perSecond()
	}
	return r, nil
}

// alone runs one side.
func (t *rateTrial) alone(ctx context.Context, flag string) (_ *loading, err error) {
	d, err := deploy(ctx, t.root, t.layout, t.failure.setting(t.engine.url))
	if err != nil {
		return nil, err
	}
	defer d.close()
	g, err := textLoad("failing", "failing", flag, failingInFlight).begin(ctx, d.addr)
	if err != nil {
		return nil, err
	}
	err = sleep(ctx, t.lasting/2)
	g.open(time.Now())
	err = errors.Join(err, sleep(ctx, t.lasting))
	g.close(time.Now())
	return g, errors.Join(err, g.stop(), d.ended())
}

// Close implements Trial.
func (t *rateTrial) Close() error {
	t.engine.close()
	return nil
}

// burst sends samples at once over a client of its own and returns how long each took to be
// scored, since the first was sent; those that were not by the deadline have the deadline.
func burst(ctx context.Context, addr, run string, samples []rewards.Sample, deadline time.Duration) (took []time.Duration, unscored int, err error) {
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: run})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	took = make([]time.Duration, len(samples))
	scored := make([]bool, len(samples))
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range samples {
		wg.Go(func() {
			took[i] = deadline
			f, err := c.Submit(ctx, &samples[i], 0)
			if err != nil {
				return
			}
			if res, err := f.Wait(ctx); err == nil && res.Outcome == rewards.Scored {
				took[i], scored[i] = time.Since(begin), true
			}
		})
	}
	wg.Wait()
	for _, ok := range scored {
		if !ok {
			unscored++
		}
	}
	return took, unscored, nil
}

// agentCalls are what the recipe has under way at a time.
const agentCalls = 256

// The class of the recipe, as an entry that is called for samples and another for groups, and
// by the recipe's own keys.
const (
	agentEntries = `reward:
  reward_functions:
    own: {path: functions.py, name: Agent, weight: 0, required: true, concurrency: 256}
    final: {post_process: own, required: true}
`
	agentRecipe = `reward:
  custom_reward_function: {path: functions.py, name: Agent, max_concurrency: 256}
`
)

// agentTrial has the class of the recipe async_reward_agent behind a server.
type agentTrial struct {
	deployment *deployment
	calls      int
	runs       int
}

func newAgentTrial(ctx context.Context, o Options, reward string) (Trial, error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	t := &agentTrial{calls: agentCalls}
	if o.Quick {
		t.calls = 16
	}
	t.deployment, err = deploy(ctx, root, layout{name: "embedded"}, rewardSetting{yaml: reward})
	return t, err
}

// agentGroup is how many samples a prompt has.
const agentGroup = 4

// Measure implements Trial.
func (t *agentTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	if t.runs == 0 { // the processes start
		if _, _, err := t.send(ctx, 4*agentGroup); err != nil {
			return nil, err
		}
	}
	took, unscored, err := t.send(ctx, t.calls)
	return Readings{"calls_s": longest(took).Seconds(), "unscored": float64(unscored)}, err
}

func (t *agentTrial) send(ctx context.Context, calls int) ([]time.Duration, int, error) {
	t.runs++
	samples := make([]rewards.Sample, calls)
	for i := range samples {
		samples[i] = waitFor(strconv.Itoa(i), "", time.Second)
		samples[i].UID, samples[i].GroupSize = strconv.Itoa(i/agentGroup), agentGroup
		samples[i].DataSource, samples[i].ExtraInfo = "recipe", []byte(`{}`)
	}
	return burst(ctx, t.deployment.addr, fmt.Sprintf("agent%d", t.runs), samples, overtime)
}

// Close implements Trial.
func (t *agentTrial) Close() error {
	t.deployment.close()
	return nil
}

// longest is 0 of none.
func longest(all []time.Duration) time.Duration {
	var most time.Duration
	for _, d := range all {
		most = max(most, d)
	}
	return most
}
