package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
	"github.com/rewardloop/rewardloop/wire"
)

// dispatchTrial runs all scenes of one number of workers, side by side: their workers only
// sleep. Every scene has a node of its own, which is closed with its step, because idle
// workers ask for work.
type dispatchTrial struct {
	width  int
	size   stepSize
	scenes []scene
	scale  float64
}

// dispatchScale is what the seconds are divided by.
func dispatchScale(o Options) float64 {
	switch {
	case o.Scale > 0:
		return o.Scale
	case o.Quick:
		return 100
	}
	return 10
}

func newDispatchTrial(width int, scenes []scene, o Options) *dispatchTrial {
	return &dispatchTrial{
		width: width, scenes: scenes, scale: dispatchScale(o),
		size: stepSize{samples: dispatchSamples, rollout: dispatchRollout, update: dispatchUpdate},
	}
}

// Measure implements Trial.
func (t *dispatchTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	all := make([]Readings, len(t.scenes))
	errs := make([]error, len(t.scenes))
	var wg sync.WaitGroup
	before, start := used(), time.Now()
	for i, c := range t.scenes {
		wg.Go(func() {
			d := c.load.draw(t.size, t.width, rep)
			var err error
			if c.simulation != "" {
				all[i], err = t.simulate(c, d)
			} else {
				var got ran
				if got, err = t.run(ctx, c, d); err == nil {
					all[i], err = t.readings(c, d, got)
				}
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	o := outcome{took: time.Since(start), used: used().since(before)}
	out := Readings{othersCores: o.others(), "cpu_cores": o.used.cpu.Seconds() / o.took.Seconds(), "scale": t.scale}
	for i, c := range t.scenes {
		for name, v := range all[i] {
			out[c.name+" "+name] = v
		}
	}
	return out, nil
}

// Close implements Trial.
func (t *dispatchTrial) Close() error { return nil }

// ran is a step that was run, in seconds at full scale.
type ran struct {
	// sent is when each sample was submitted, done when its reward was with the client.
	sent, done []float64
	trace      trace.Trace
	lease      float64
	noticed    float64 // from the kill to when the gateway knew; 0: it did not, or nobody was killed
}

// The times of detection at full scale, which are the defaults; and the least that can be
// had: the engine refuses shorter leases, and workers announce themselves once a second.
const (
	fullLease  = 15 * time.Second
	fullGone   = 5 * time.Second
	leastLease = 100 * time.Millisecond
	leastGone  = 1500 * time.Millisecond
)

// start starts the scene's node and waits until the gateway knows all workers.
func (t *dispatchTrial) start(ctx context.Context, c scene, d drawn) (*node, queue.Config, error) {
	speeds := map[string]float64{replacement: 1}
	for i, s := range d.speeds {
		speeds["w"+strconv.Itoa(i)] = s
	}
	times := newAttempts(c.load, d, t.scale)
	cfg := nodeConfig{
		workers: t.width, places: 1, lanes: 1, mortal: c.kill > 0,
		loop: loop.Config{Dispatch: c.policy},
		profileOf: func(worker string) rewards.ManagerConfig {
			scorer := rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
				return rewards.Score{Value: 1}, sleep(ctx, times.next(int(*s.Index), speeds[worker]))
			})
			return rewards.ManagerConfig{Components: []rewards.Component{{Key: "sleep", Weight: 1, Required: true, Scorer: scorer}}}
		},
	}
	if c.kill > 0 {
		cfg.queue.Lease = max(t.clock(fullLease.Seconds()), leastLease)
		cfg.queue.Gone = max(t.clock(fullGone.Seconds()), leastGone)
	}
	n, err := newNode(ctx, cfg)
	if err != nil {
		return nil, cfg.queue, err
	}
	if err := until(ctx, func() bool { return len(n.queue.Workers()) == t.width }); err != nil {
		return nil, cfg.queue, errors.Join(err, n.Close())
	}
	return n, cfg.queue, nil
}

// clock is how long seconds of full scale take.
func (t *dispatchTrial) clock(seconds float64) time.Duration {
	return time.Duration(seconds / t.scale * float64(time.Second))
}

// run takes one step through the loop.
func (t *dispatchTrial) run(ctx context.Context, c scene, d drawn) (_ ran, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.clock(10*t.size.rollout)+overtime)
	defer cancel()
	n, cfg, err := t.start(ctx, c, d)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	out := ran{lease: cfg.Lease.Seconds() * t.scale}
	const step = 1
	if err := n.clients[0].Declare(wire.Step{Step: step, Expected: int64(len(d.g)), Total: true}); err != nil {
		return ran{}, err
	}
	start := time.Now()
	var killing sync.WaitGroup
	var killed error
	kctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.kill > 0 {
		killing.Go(func() {
			var noticed time.Duration
			if killed = sleep(kctx, t.clock(c.kill*t.size.rollout)); killed == nil {
				noticed, killed = n.kill(kctx)
			}
			if killed == nil {
				out.noticed = noticed.Seconds() * t.scale
			}
		})
	}
	out.sent, out.done, err = t.submit(ctx, n, d, step, start)
	stop()
	killing.Wait()
	if killed != nil && !errors.Is(killed, context.Canceled) { // cancelled: the step was over before anybody noticed
		err = errors.Join(err, killed)
	}
	if err != nil {
		return ran{}, err
	}
	out.trace, err = n.loop.Trace("bench", rewards.Train, step)
	return out, err
}

// submit sends every sample at its time and waits for all rewards.
func (t *dispatchTrial) submit(ctx context.Context, n *node, d drawn, step int64, start time.Time) (sent, done []float64, err error) {
	sent, done = make([]float64, len(d.g)), make([]float64, len(d.g))
	errs := make([]error, len(d.g))
	var wg sync.WaitGroup
	now := func() float64 { return time.Since(start).Seconds() * t.scale }
	for i, g := range d.g {
		if err := sleep(ctx, time.Until(start.Add(t.clock(g)))); err != nil {
			errs[i] = err
			break
		}
		sent[i] = now()
		index := int64(i)
		f, err := n.clients[0].Submit(ctx, &rewards.Sample{ID: "s" + strconv.Itoa(i), Step: step, Index: &index}, 0)
		if err != nil {
			errs[i] = err
			break
		}
		wg.Go(func() {
			res, err := f.Wait(ctx)
			done[i] = now()
			if err == nil && res.Outcome != rewards.Scored {
				err = fmt.Errorf("sample %q: %s: %v", f.ID, res.Outcome, res.Errors)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return sent, done, errors.Join(errs...)
}

// simulations is how many seeds the ideal is the median of: of the policy's choices, and
// of the stragglers' draws where there are any.
const simulations = 25

// reference is when the step of these submissions ends, by the lower bound and, as the median
// of all seeds, by the simulation of the scene's policy.
func (c scene) reference(sent []float64, d drawn) (bound, simulated float64, err error) {
	if bound, err = sim.LowerBoundSpeeds(sent, d.r, d.speeds); err != nil {
		return 0, 0, err
	}
	ends := make([]float64, simulations)
	for i := range ends {
		work, cfg := c.simulated(d, uint64(i))
		s, err := sim.Dispatch(sent, work, cfg)
		if err != nil {
			return 0, 0, err
		}
		ends[i] = s.Makespan
	}
	return bound, report.Median(ends), nil
}

// simulate holds a simulated step against the bound: every sample is submitted on time.
func (t *dispatchTrial) simulate(c scene, d drawn) (Readings, error) {
	bound, end, err := c.reference(d.g, d)
	if err != nil {
		return nil, err
	}
	rollout := slices.Max(d.g)
	return Readings{
		"over_bound": (end + t.size.update) / (bound + t.size.update),
		"exposed_s":  end - rollout, "bound_exposed_s": bound - rollout,
	}, nil
}

// readings holds a step that was run against the bound and the simulation, with the times
// of its own submissions.
func (t *dispatchTrial) readings(c scene, d drawn, got ran) (Readings, error) {
	bound, ideal, err := c.reference(got.sent, d)
	if err != nil {
		return nil, err
	}
	rep, err := trace.Measure(got.trace)
	if err != nil {
		return nil, err
	}
	rollout, end := slices.Max(got.sent), slices.Max(got.done)
	r := Readings{
		"over_bound": (end + t.size.update) / (bound + t.size.update),
		"over_ideal": (end + t.size.update) / (ideal + t.size.update),
		"exposed_s":  end - rollout, "bound_exposed_s": bound - rollout, "ideal_exposed_s": ideal - rollout,
		"backups": float64(rep.Backups), "backups_won": float64(rep.BackupsWon),
	}
	if rep.Imbalance != nil {
		r["imbalance"] = *rep.Imbalance
	}
	if c.kill > 0 {
		r["lease_s"], r["service_s"], r["noticed_s"] = got.lease, slices.Max(d.r), got.noticed
	}
	return r, nil
}
