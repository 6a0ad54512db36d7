package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/tools/bench/cputime"
)

// roundTrip sends one sample over the lane's connection and returns when its answer
// is there.
type roundTrip func(ctx context.Context, lane int) error

// overtime is how long after its end a load may wait for answers, so that a lost one
// ends the run.
const overtime = 30 * time.Second

// outcome is what a load has measured.
type outcome struct {
	samples int
	took    time.Duration
	// latencies are sorted.
	latencies []time.Duration
	// used is of the whole process: clients, gateway, engine and workers.
	used usage
}

func (o outcome) perSecond() float64 { return float64(o.samples) / o.took.Seconds() }

// quantile is the latency that a share q of the samples did not exceed, in ms.
func (o outcome) quantile(q float64) float64 {
	if len(o.latencies) == 0 {
		return 0
	}
	i := min(int(q*float64(len(o.latencies))), len(o.latencies)-1)
	return float64(o.latencies[i].Nanoseconds()) / 1e6
}

// othersCores is the reading that says how many cores other processes kept busy during a
// repetition, at the worst.
const othersCores = "others_cores"

// others is how many cores other processes kept busy meanwhile.
func (o outcome) others() float64 {
	return max(0, (o.used.machine-o.used.cpu).Seconds()/o.took.Seconds())
}

// usage is what the process has used so far, or between two points.
type usage struct {
	cpu           time.Duration // user and system; 0 where the system does not tell
	machine       time.Duration // the same of all processes
	bytes, allocs uint64        // allocated on the heap
}

func used() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpu: cputime.Own(), machine: cputime.Machine(), bytes: m.TotalAlloc, allocs: m.Mallocs}
}

func (u usage) since(from usage) usage {
	return usage{cpu: u.cpu - from.cpu, machine: u.machine - from.machine, bytes: u.bytes - from.bytes, allocs: u.allocs - from.allocs}
}

// closedLoop keeps window samples in flight on each of lanes connections for the
// time given: the most the path takes.
func closedLoop(ctx context.Context, do roundTrip, lanes, window int, lasting time.Duration) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, lasting+overtime)
	defer cancel()
	var stop atomic.Bool
	parts := make([][]time.Duration, lanes*window)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	before, start := used(), time.Now()
	for i := range parts {
		wg.Go(func() {
			for !stop.Load() && errs[i] == nil {
				at := time.Now()
				errs[i] = do(ctx, i%lanes)
				parts[i] = append(parts[i], time.Since(at))
			}
			stop.Store(stop.Load() || errs[i] != nil)
		})
	}
	timer := time.AfterFunc(lasting, func() { stop.Store(true) })
	defer timer.Stop()
	wg.Wait()
	return finished(parts, start, before, errors.Join(errs...))
}

// openLoop sends samples at random moments, rate per second on average, whether or
// not earlier ones are answered; a latency counts from the moment the sample was to
// be sent. The moments follow from the seed.
func openLoop(ctx context.Context, do roundTrip, lanes int, rate float64, lasting time.Duration, seed uint64) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, lasting+overtime)
	defer cancel()
	moments := arrivals(rate, lasting, seed)
	parts := make([][]time.Duration, len(moments))
	errs := make([]error, len(moments))
	var wg sync.WaitGroup
	before, start := used(), time.Now()
	for i, at := range moments {
		if wait := time.Until(start.Add(at)); wait > 0 {
			time.Sleep(wait)
		}
		wg.Go(func() {
			errs[i] = do(ctx, i%lanes)
			parts[i] = []time.Duration{time.Since(start.Add(at))}
		})
	}
	wg.Wait()
	return finished(parts, start, before, errors.Join(errs...))
}

// arrivals are a Poisson process: exponential gaps. Where a short time at a low rate has none,
// there is one at the end, because a load without a sample measures nothing.
func arrivals(rate float64, lasting time.Duration, seed uint64) []time.Duration {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same arrivals for both sides
	var out []time.Duration
	for at := 0.0; ; {
		at += rng.ExpFloat64() / rate
		if at > lasting.Seconds() {
			if out == nil {
				out = []time.Duration{lasting}
			}
			return out
		}
		out = append(out, time.Duration(at*float64(time.Second)))
	}
}

func finished(parts [][]time.Duration, start time.Time, before usage, err error) (outcome, error) {
	o := outcome{took: time.Since(start), used: used().since(before)}
	for _, p := range parts {
		o.latencies = append(o.latencies, p...)
	}
	slices.Sort(o.latencies)
	o.samples = len(o.latencies)
	if err == nil && o.samples == 0 {
		err = fmt.Errorf("no sample in %v", o.took)
	}
	return o, err
}
