package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// The readings of a healthy run beside a failing one, and beside a burner.
const (
	besideFailing = "beside_failing"
	besideBurner  = "beside_burner"
)

// isolationTrial measures a healthy run beside a failing one, and beside a program that uses
// as much of the processors. Each measurement has servers of its own, so that nothing of one
// reaches the next.
type isolationTrial struct {
	root    string
	layout  layout
	failure failure
	engine  string // its address
	end     func() // of the engine
	picture []byte
	lasting time.Duration
	// cost is what a healthy sample takes of the processors, in seconds, with all that is ours.
	cost    float64
	burners []int // the processes that burn has started last
}

func newIsolationTrial(ctx context.Context, l layout, f failure, o Options) (_ Trial, err error) {
	t := &isolationTrial{layout: l, failure: f, lasting: max(o.Lasting, 300*time.Millisecond)}
	if t.root, err = report.Repository(); err != nil {
		return nil, err
	}
	if t.picture, err = smallPicture(); err != nil {
		return nil, err
	}
	if t.engine, t.end, err = f.start(ctx); err != nil {
		return nil, err
	}
	alone, err := t.healthy(ctx, companion{})
	if err == nil && alone.healthy.scored == 0 {
		err = fmt.Errorf("no healthy sample was scored, with nothing beside it: %s", alone.healthy.quote)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.cost = alone.cost()
	return t, nil
}

// lead is how long the failing run, or the burner, is there before the time that counts.
func (t *isolationTrial) lead() time.Duration { return min(t.lasting/4, 5*time.Second) }

// isolated is one measurement of the healthy run.
type isolated struct {
	healthy *tally
	// used is what the healthy run's side has computed: this process, the server and workers.
	// below is that of their Python processes, whose niceness is nice.
	used, below time.Duration
	nice        int
	foreign     float64 // cores that strangers kept busy
	burner      float64 // cores that the burner kept busy
	left        int     // Python processes that outlived the server
}

func (i isolated) cost() float64 { return i.used.Seconds() / float64(max(i.healthy.scored, 1)) }

// cores is a time of computing as cores that were busy.
func (i isolated) cores(d time.Duration) float64 { return d.Seconds() / i.healthy.took.Seconds() }

// failingCores are those that the failing run kept busy: its Python processes, and what the
// rest computed beyond the cost of the healthy samples.
func (i isolated) failingCores(cost float64) (python, rest float64) {
	return i.cores(i.below), max(0, i.cores(i.used)-cost*float64(i.healthy.scored)/i.healthy.took.Seconds())
}

// start starts the judge's engine.
func (f failure) start(ctx context.Context) (url string, end func(), err error) {
	if f.engine != "" {
		return brokenEngine(ctx, f.engine)
	}
	e, err := newStubEngine(ctx)
	if err != nil {
		return "", nil, err
	}
	return e.url, e.close, nil
}

// companion is what is beside the healthy run. What is nil is not done.
type companion struct {
	// before is done while the servers have nothing to do.
	before func(ctx context.Context, d *deployment) error
	// disturb starts what disturbs the healthy run; end stops it, and use is what it has
	// computed if it is not one of ours.
	disturb func(ctx context.Context, d *deployment) (use func() time.Duration, end func(), err error)
	// then is done after the measurement, without the healthy run, beside what disturbs;
	// afterwards without that.
	then, afterwards func(ctx context.Context, d *deployment) error
}

// healthy measures the healthy run with something beside it.
func (t *isolationTrial) healthy(ctx context.Context, b companion) (out isolated, err error) {
	d, err := deploy(ctx, t.root, t.layout, t.failure.setting(t.engine))
	if err != nil {
		return out, err
	}
	defer func() { out.left = d.close() }()
	if err := step(ctx, b.before, d); err != nil {
		return out, err
	}
	outside, end := func() time.Duration { return 0 }, func() {}
	if err := t.window(ctx, d, &out, func() (func() time.Duration, error) {
		if b.disturb != nil {
			outside, end, err = b.disturb(ctx, d)
		}
		return outside, err
	}); err != nil {
		end()
		return out, err
	}
	err = step(ctx, b.then, d)
	end()
	if err == nil {
		err = step(ctx, b.afterwards, d)
	}
	return out, errors.Join(err, d.ended())
}

func step(ctx context.Context, do func(context.Context, *deployment) error, d *deployment) error {
	if do == nil {
		return nil
	}
	return do(ctx, d)
}

// window measures the healthy run, with what disturb starts beside it.
func (t *isolationTrial) window(ctx context.Context, d *deployment, out *isolated, disturb func() (func() time.Duration, error)) (err error) {
	healthy, err := healthyLoad(t.picture).begin(ctx, d.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, healthy.stop()) }()
	outside, err := disturb()
	if err != nil {
		return err
	}
	if err := sleep(ctx, t.lead()); err != nil {
		return err
	}
	before, own, machine, burnt := d.use(), cputime.Own(), cputime.Machine(), outside()
	healthy.open(time.Now())
	err = sleep(ctx, t.lasting)
	healthy.close(time.Now())
	after := d.use()
	out.healthy = &healthy.tally
	out.used = after.Processes - before.Processes + cputime.Own() - own
	out.below, out.nice = after.Below-before.Below, after.Nice
	out.burner = out.cores(outside() - burnt)
	out.foreign = max(0, out.cores(cputime.Machine()-machine-out.used-out.below)-out.burner)
	return err
}

// Measure implements Trial: once beside the failing run, once beside the burner.
func (t *isolationTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	r := Readings{}
	a, err := t.healthy(ctx, t.besideFailing(r))
	if err != nil {
		return nil, fmt.Errorf("beside the failing run: %w", err)
	}
	python, rest := a.failingCores(t.cost)
	b, err := t.healthy(ctx, companion{disturb: func(ctx context.Context, _ *deployment) (func() time.Duration, func(), error) {
		return t.burn(ctx, map[int]float64{a.nice: python}, rest)
	}})
	if err != nil {
		return nil, fmt.Errorf("beside the burner: %w", err)
	}
	if b.healthy.scored > 0 {
		t.cost = b.cost()
	}
	r["failing_cores"], r["burner_cores"] = python+rest, b.burner
	r["foreign_cores"], r["left_behind"] = max(a.foreign, b.foreign), float64(a.left+b.left)
	for name, i := range map[string]isolated{besideFailing: a, besideBurner: b} {
		r[name+"_per_s"] = float64(i.healthy.scored) / i.healthy.took.Seconds()
		r[name+"_gap_s"] = i.healthy.gap.Seconds()
		r[name+"_failed"] = float64(i.healthy.allFailed)
	}
	return r, nil
}

// besideFailing is the failing run, whose fate goes into the readings. What a run that gets
// nothing done costs those that come while it is there, and what it leaves, is looked at, too.
func (t *isolationTrial) besideFailing(r Readings) companion {
	var failing *loading
	load := t.failure.load(t.lasting)
	b := companion{disturb: func(ctx context.Context, d *deployment) (func() time.Duration, func(), error) {
		var err error
		if failing, err = load.begin(ctx, d.addr); err != nil {
			return nil, nil, err
		}
		open := time.AfterFunc(t.lead(), func() { failing.open(time.Now()) })
		return func() time.Duration { return 0 }, func() {
			open.Stop()
			failing.close(time.Now())
			_ = failing.stop() // its connection may end as it likes
			if !t.failure.stuck {
				failing.readings(r)
			}
		}, nil
	}}
	if !t.failure.stuck {
		return b
	}
	b.before = func(ctx context.Context, d *deployment) (err error) {
		if _, _, err := t.fresh(ctx, d, "first"); err != nil { // connections
			return err
		}
		r["alone_s"], _, err = t.fresh(ctx, d, "alone")
		return err
	}
	b.then = func(ctx context.Context, d *deployment) error {
		failing.close(time.Now())
		failing.readings(r)
		r["failing_in_flight"] = float64(load.inFlight)
		r["failed_results"] = float64(failing.failures())
		stages, waiting, err := d.pending(ctx, load.run)
		if err != nil {
			return err
		}
		r["failing_queued"], r["failing_running"], r["failing_waiting"] = float64(stages["queued"]), float64(stages["published"]+stages["running"]), float64(waiting)
		r["fresh_s"], r["fresh_unscored"], err = t.fresh(ctx, d, "fresh")
		return err
	}
	b.afterwards = func(ctx context.Context, d *deployment) error { return t.left(ctx, d, r) }
	return b
}

// fresh is how long a new client's pictures take, in seconds.
func (t *isolationTrial) fresh(ctx context.Context, d *deployment, run string) (seconds, unscored float64, err error) {
	samples := make([]rewards.Sample, freshSamples)
	for i := range samples {
		samples[i] = healthyLoad(t.picture).sample(int64(i))
	}
	took, missing, err := burst(ctx, d.addr, run, samples, freshLimit)
	return longest(took).Seconds(), float64(missing), err
}

// left looks for places that the failing run has kept.
func (t *isolationTrial) left(ctx context.Context, d *deployment, r Readings) (err error) {
	if r["busy"], err = d.settled(ctx); err != nil {
		return err
	}
	if r["lost_async"], err = d.hold(ctx, "waits", t.layout.scoring(), asyncPlaces, holdFor); err != nil {
		return err
	}
	r["lost_own"] = 0
	if t.failure.function != "" {
		places := runtime.NumCPU() // a process for each CPU, which has to start again
		if t.failure.model {
			places = 1
		}
		again := make([]rewards.Sample, places*t.layout.scoring())
		for i := range again {
			again[i] = waitFor(strconv.Itoa(i), "failing", holdHanging/2)
		}
		if _, _, err := burst(ctx, d.addr, "again", again, overtime); err != nil {
			return err
		}
		r["lost_own"], err = d.hold(ctx, "failing", t.layout.scoring(), places, holdHanging)
	}
	r["lost"] = r["busy"] + r["lost_async"] + r["lost_own"]
	return err
}

// readings tells what became of the failing run.
func (g *loading) readings(r Readings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r["failing_per_s"], r["failing_results"] = g.perSecond(), float64(g.all)
	r["failed_samples"] = float64(g.allFailed) + float64(g.unanswered.Load())
	r["told"] = float64(g.told)
	r["scored_share"] = float64(g.scored) / math.Max(1, float64(g.scored+g.failed))
}

// burn starts programs that keep so many cores busy, by their niceness, and more of niceness 0.
func (t *isolationTrial) burn(ctx context.Context, nice map[int]float64, rest float64) (use func() time.Duration, end func(), err error) {
	nice[0] += rest
	var pids []int
	var programs []*program
	end = func() {
		for _, p := range programs {
			p.stop()
		}
		programs = nil
	}
	for niceness, cores := range nice {
		if cores < leastBurn {
			continue
		}
		p, err := start(ctx, "burner", t.root, interpreter(t.root), filepath.Join("tools", "bench", "isolation", "burn.py"),
			strconv.FormatFloat(cores, 'f', 4, 64), strconv.Itoa(niceness))
		if err != nil {
			end()
			return nil, nil, err
		}
		programs, pids = append(programs, p), append(pids, p.cmd.Process.Pid)
	}
	t.burners = pids
	return func() time.Duration {
		u := cputime.Trees(pids...)
		return u.Processes + u.Below
	}, end, nil
}

// leastBurn is the share of a core below which no burner is started for it.
const leastBurn = 0.005

// Close implements Trial.
func (t *isolationTrial) Close() error {
	t.end()
	return nil
}
