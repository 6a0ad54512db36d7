package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
	"github.com/rewardloop/rewardloop/wire"
)

// outagePlan is a step at an engine that something happens to.
type outagePlan struct {
	samples, places int
	takes           time.Duration
	// lead is how long the step goes on before, outage how long the engine is away.
	lead, outage time.Duration
}

// outageLasts is the -t with which the engine is away for three minutes, and not for ten
// seconds.
const outageLasts = 20 * time.Second

func planOutage(o Options) outagePlan {
	p := outagePlan{samples: 1155, places: 33, takes: time.Second, lead: 10 * time.Second, outage: 3 * time.Minute}
	switch {
	case o.Quick:
		p = outagePlan{samples: 96, places: 12, takes: 100 * time.Millisecond, lead: 300 * time.Millisecond, outage: 500 * time.Millisecond}
	case o.Lasting < outageLasts:
		p.outage = 10 * time.Second
	}
	return p
}

// needs is what the plan's samples take at the engine.
func (p outagePlan) needs() time.Duration {
	return time.Duration(p.samples/p.places+1) * p.takes
}

// outageSite is a server with three worker processes, an engine, and a healthy run beside.
type outageSite struct {
	plan       outagePlan
	engine     *timedEngine
	deployment *deployment
	healthy    *loading
	client     *client.Client
}

// newOutageSite starts all of it, and takes some samples through so that connections are open.
func newOutageSite(ctx context.Context, root string, p outagePlan, picture []byte) (_ *outageSite, err error) {
	s := &outageSite{plan: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.engine, err = newTimedEngine(ctx, p.places); err != nil {
		return nil, err
	}
	keys := map[string]map[string]string{"gateway": {keyFile: "gateway"}}
	for i := range isolationProcesses {
		name := "w" + strconv.Itoa(i)
		keys[name] = map[string]string{keyFile: name}
	}
	setting := rewardSetting{yaml: outageProfiles(s.engine.url(), p.places), files: keys}
	if s.deployment, err = deploy(ctx, root, layout{name: "remote", processes: isolationProcesses}, setting); err != nil {
		return nil, err
	}
	if s.client, err = client.Dial(ctx, client.Config{URL: "ws://" + s.deployment.addr, Run: "judged", Reward: "judged"}); err != nil {
		return nil, err
	}
	first := make([]rewards.Sample, p.places)
	for i := range first {
		first[i] = judged(p.samples+i, p.takes/4)
	}
	b, err := sendAll(ctx, s.client, first, overtime)
	if err == nil {
		err = b.allScored()
	}
	if err != nil {
		return nil, err
	}
	s.healthy, err = healthyLoad(picture).begin(ctx, s.deployment.addr)
	return s, err
}

// keyFile is where a program's key for the engine is, beside its configuration.
const keyFile = "engine.key"

// step sends the step's samples, lets something happen after the lead, and waits for all results.
func (s *outageSite) step(ctx context.Context, happens func(context.Context) error) (*batch, error) {
	if err := s.client.Declare(wire.Step{Step: 1, Expected: int64(s.plan.samples), Total: true}); err != nil {
		return nil, err
	}
	samples := make([]rewards.Sample, s.plan.samples)
	for i := range samples {
		samples[i] = judged(i, s.plan.takes)
		index := int64(i)
		samples[i].Step, samples[i].Index = 1, &index
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	happened := make(chan error, 1)
	go func() { // ends with happens
		err := sleep(ctx, s.plan.lead)
		if err == nil {
			err = happens(ctx)
		}
		happened <- err
	}()
	b, err := sendAll(ctx, s.client, samples, s.plan.outage+3*s.plan.needs()+overtime)
	if err != nil {
		cancel()
	}
	return b, errors.Join(err, <-happened)
}

// outageStep is a step that goes on around the lead, seen from there.
type outageStep struct {
	rest     float64 // seconds from the lead to the end, without the outage
	batch    *batch
	perSec   float64 // of the healthy run: during the outage, or to the end of a step without
	gap      float64
	failed   int // of the healthy run
	waiting  int // samples that said so late in the outage
	stranger float64
}

// plays runs a step with an outage so long; 0: without.
func (t *outageTrial) plays(ctx context.Context, outage time.Duration) (out outageStep, err error) {
	p := t.plan
	p.outage = outage
	s, err := newOutageSite(ctx, t.root, p, t.picture)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	strangers := s.deployment.strangers()
	out.batch, err = s.step(ctx, func(ctx context.Context) error {
		s.healthy.open(time.Now())
		if outage == 0 {
			return nil
		}
		s.engine.kill()
		err := sleep(ctx, outage*4/5)
		if err == nil {
			_, out.waiting, err = s.deployment.pending(ctx, "judged")
		}
		err = errors.Join(err, sleep(ctx, outage/5))
		s.healthy.close(time.Now())
		return errors.Join(err, s.engine.start(ctx))
	})
	if err != nil {
		return out, err
	}
	s.healthy.close(time.Now()) // where there was no outage
	out.rest = out.batch.ends() - p.lead.Seconds() - outage.Seconds()
	out.perSec, out.gap, out.failed, out.stranger = s.healthy.perSecond(), s.healthy.gap.Seconds(), s.healthy.failures(), strangers()
	return out, s.deployment.ended()
}

// close takes it down, the clients first.
func (s *outageSite) close() error {
	var errs []error
	if s.healthy != nil {
		errs = append(errs, s.healthy.stop())
	}
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.deployment != nil {
		s.deployment.close()
	}
	if s.engine != nil {
		s.engine.kill()
	}
	return errors.Join(errs...)
}

// outageTrial kills the engine in the middle of a step, beside the same step without.
type outageTrial struct {
	root    string
	plan    outagePlan
	picture []byte
}

func newOutageTrial(_ context.Context, o Options) (Trial, error) { return newStepAtEngine(o) }

func newStepAtEngine(o Options) (_ *outageTrial, err error) {
	t := &outageTrial{plan: planOutage(o)}
	if t.root, err = report.Repository(); err != nil {
		return nil, err
	}
	t.picture, err = smallPicture()
	return t, err
}

// Measure implements Trial: with and without, in changing order.
func (t *outageTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{"outage_s": t.plan.outage.Seconds(), "samples": float64(t.plan.samples), "neighbour_failed": 0, othersCores: 0}
	sides := []struct {
		name   string
		outage time.Duration
	}{{"plain_", 0}, {"outage_", t.plan.outage}}
	for i := range sides {
		side := sides[(i+rep)%2]
		got, err := t.plays(ctx, side.outage)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSuffix(side.name, "_"), err)
		}
		r[side.name+"per_s"], r[side.name+"gap_s"] = got.perSec, got.gap
		r["neighbour_failed"] += float64(got.failed)
		r[othersCores] = max(r[othersCores], got.stranger)
		if side.outage == 0 {
			r["plain_rest_s"] = got.rest
			if err := got.batch.allScored(); err != nil {
				return nil, err
			}
			continue
		}
		r["rest_s"], r["failed"], r["waiting"] = got.rest, float64(got.batch.unscored), float64(got.waiting)
	}
	return r, nil
}

// Close implements Trial.
func (*outageTrial) Close() error { return nil }

// partitionTrial cuts one worker off from the engine in the middle of a step.
type partitionTrial struct{ *outageTrial }

func newPartitionTrial(_ context.Context, o Options) (Trial, error) {
	t, err := newStepAtEngine(o)
	return partitionTrial{t}, err
}

// cutWorker is the one that is cut off.
const cutWorker = "w0"

// Measure implements Trial.
func (t partitionTrial) Measure(ctx context.Context, _ int) (_ Readings, err error) {
	p := t.plan
	p.outage = 0
	s, err := newOutageSite(ctx, t.root, p, t.picture)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b, err := s.step(ctx, func(context.Context) error {
		s.engine.reset(cutWorker)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The first calls end together, and so do the last: two of them on either side do not count.
	begin, cut, end := 2*p.takes.Seconds(), p.lead.Seconds(), b.ends()-2*p.takes.Seconds()
	if end <= cut {
		return nil, fmt.Errorf("the step was over after %.1f s, %.1f s after the cut", b.ends(), b.ends()-cut)
	}
	before, _ := b.rates(begin, cut)
	after, cutOff := b.rates(cut, end)
	return Readings{
		"failed": float64(b.unscored), "samples": float64(p.samples),
		"others_before_per_s": before, "others_after_per_s": after, "cut_after_per_s": cutOff,
	}, s.deployment.ended()
}

// rates are how many results a second came from the worker that is cut off and the others.
func (b *batch) rates(from, to float64) (others, cutOff float64) {
	for i, res := range b.results {
		switch {
		case res == nil || b.done[i] < from || b.done[i] >= to || res.Outcome != rewards.Scored:
		case strings.HasPrefix(res.Worker, cutWorker):
			cutOff += 1 / (to - from)
		default:
			others += 1 / (to - from)
		}
	}
	return others, cutOff
}
