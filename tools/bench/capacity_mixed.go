package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// mixedTrial has a reader beside a judge on three worker processes, of which the last reads
// more slowly.
type mixedTrial struct {
	engine     *timedEngine
	deployment *deployment
	samples    int
	reads      time.Duration
	judges     time.Duration
	next       int // call
}

func newMixedTrial(ctx context.Context, o Options) (_ Trial, err error) {
	t := &mixedTrial{samples: mixedSamples, reads: mixedReads, judges: mixedJudges}
	if o.Quick {
		t.samples, t.judges = 32, mixedJudges/10
	}
	if t.engine, err = newTimedEngine(ctx, enginePlaces); err != nil {
		return nil, err
	}
	root, err := report.Repository()
	if err == nil {
		t.deployment, err = deploy(ctx, root, layout{name: "remote", processes: mixedWorkers}, rewardSetting{
			yaml: mixedProfile(t.engine.url()), files: map[string]map[string]string{slowWorker: {"slow": ""}},
		})
	}
	if err != nil {
		t.engine.kill()
		return nil, err
	}
	return t, nil
}

// slowWorker is the last of the three.
const slowWorker = "w2"

// Measure implements Trial.
func (t *mixedTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	if _, err := t.send(ctx, 8*mixedWorkers*mixedReaders); err != nil { // processes and connections
		return nil, err
	}
	first, strangers := t.next, t.deployment.strangers()
	b, err := t.send(ctx, t.samples)
	if err != nil {
		return nil, err
	}
	judges, err := t.engine.times(first, t.samples)
	if err != nil {
		return nil, err
	}
	ideal, slowly, err := t.ideal(b.sent, judges)
	if err != nil {
		return nil, err
	}
	slow := 0
	for _, res := range b.results {
		if strings.HasPrefix(res.Worker, slowWorker) {
			slow++
		}
	}
	return Readings{
		"ours_s": b.ends(), "ideal_s": ideal, "slow_share": float64(slow) / float64(t.samples), "ideal_slow_share": slowly, othersCores: strangers(),
	}, t.deployment.ended()
}

// send sends samples that are read and judged, and must all be scored.
func (t *mixedTrial) send(ctx context.Context, n int) (*batch, error) {
	samples := make([]rewards.Sample, n)
	for i := range samples {
		samples[i] = judged(t.next+i, t.judges)
		samples[i].GroundTruth = fmt.Appendf(nil, "%q", strconv.FormatFloat(t.reads.Seconds(), 'f', -1, 64))
	}
	t.next += n
	longest := time.Duration(n)*mixedSlow*t.reads + t.judges // the slow worker alone
	b, err := sendOver(ctx, t.deployment.addr, client.Config{Run: "mixed" + strconv.Itoa(t.next)}, samples, longest+overtime)
	if err != nil {
		return nil, err
	}
	return b, b.allScored()
}

// ideal is when the last sample is scored where each of the readers takes the next sample when
// it is free and the judge begins with it at once, and the part of the samples that the slow
// readers have: medians over seeds.
func (t *mixedTrial) ideal(sent, judges []float64) (ends, slowly float64, err error) {
	speeds := make([]float64, mixedWorkers*mixedReaders)
	for i := range speeds {
		speeds[i] = 1
		if i >= len(speeds)-mixedReaders {
			speeds[i] = 1.0 / mixedSlow
		}
	}
	reads := make([]float64, len(sent))
	for i := range reads {
		reads[i] = t.reads.Seconds()
	}
	all, shares := make([]float64, simulations), make([]float64, simulations)
	for k := range all {
		s, err := sim.Dispatch(sent, reads, sim.DispatchConfig{Speeds: speeds, Seed: uint64(k)}) //nolint:gosec // counts from 0
		if err != nil {
			return 0, 0, err
		}
		ends := slices.Clone(s.Finished)
		for i := range ends {
			ends[i] = max(ends[i], s.Started[i]+judges[i])
			if s.Server[i] >= len(speeds)-mixedReaders {
				shares[k] += 1 / float64(len(sent))
			}
		}
		all[k] = slices.Max(ends)
	}
	return report.Median(all), report.Median(shares), nil
}

// Close implements Trial.
func (t *mixedTrial) Close() error {
	t.deployment.close()
	t.engine.kill()
	return nil
}
