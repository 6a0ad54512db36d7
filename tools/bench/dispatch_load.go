package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/dispatch"
)

// stepSize is a step of the experiment at full scale, in seconds.
type stepSize struct {
	samples         int
	rollout, update float64
}

// The experiment's step: 32 prompts × 16 samples as in verl-omni's recipe, and as much
// beside the rewards as its 360 s have.
const (
	dispatchSamples = 512
	dispatchRollout = 200.0
	dispatchUpdate  = 160.0
)

// poolLoad is the share of the rollout that keeps the pool busy.
const poolLoad = 0.9

// workload is how long samples take, where, and when they come.
type workload struct {
	name string // in pictures
	// size draws a sample's service time, in units of its mean.
	size func(*rand.Rand) float64
	// stragglers makes an attempt slow by chance; the mean over attempts stays.
	stragglers sim.Stragglers
	// slow makes a quarter of the workers three times slower.
	slow bool
	// burst is how many samples finish together; 1 is a trickle.
	burst int
}

func flat(*rand.Rand) float64        { return 1 }
func uniform(r *rand.Rand) float64   { return 0.8 + 0.4*r.Float64() }
func lognormal(r *rand.Rand) float64 { return math.Exp(r.NormFloat64() - 0.5) }

// hiccup is the share of the attempts that take ten mean service times; all others take
// as much less as keeps the mean. Factor is the ratio of both.
var hiccup = sim.Stragglers{Share: hiccupShare, Factor: hiccupTimes / usualTimes} //nolint:gochecknoglobals // a table

const (
	hiccupShare = 0.02
	hiccupTimes = 10.0
	usualTimes  = (1 - hiccupShare*hiccupTimes) / (1 - hiccupShare)
)

// scene is one step that is run: a row of the results for each number of workers.
type scene struct {
	name   string
	load   workload
	policy dispatch.Config
	// simulation is a policy of package sim that the product does not have; the step is then
	// simulated and not run. "": policy.
	simulation string
	// kill is the part of the rollout after which a worker is killed; 0: none is.
	kill float64
}

// The mean service times after which a second request is sent.
const backupAfter = 2.5

func scenes() []scene {
	even := workload{name: "uniform", size: uniform, burst: 1}
	skewed := workload{name: "log-normal", size: lognormal, burst: 1}
	hiccups := workload{name: "stragglers", size: flat, stragglers: hiccup, burst: 1}
	unequal := workload{name: "a quarter slow", size: flat, slow: true, burst: 1}
	bursts := workload{name: "bursts", size: uniform, burst: 64}
	random := dispatch.Config{Policy: dispatch.Random}
	weighted := dispatch.Config{Policy: dispatch.SpeedWeighted}
	backup := dispatch.Config{Policy: dispatch.Random, BackupAfter: backupAfter}
	return []scene{
		{name: "uniform-random", load: even, policy: random},
		{name: "uniform-random_blind-simulated", load: even, simulation: sim.PolicyRandomBlind},
		{name: "lognormal-random", load: skewed, policy: random},
		{name: "lognormal-random_blind-simulated", load: skewed, simulation: sim.PolicyRandomBlind},
		{name: "stragglers-random", load: hiccups, policy: random},
		{name: "stragglers-backup", load: hiccups, policy: backup},
		{name: "slow-random", load: unequal, policy: random},
		{name: "slow-speed_weighted", load: unequal, policy: weighted},
		{name: "bursts-random", load: bursts, policy: random},
	}
}

// killings are scenes of their own: uniform-random with a worker that dies.
func killings() []scene {
	base := scenes()[0]
	half, late := base, base
	half.name, half.kill = "kill-half", 0.5
	late.name, late.kill = "kill-late", 0.985
	return []scene{half, late}
}

// drawn is a step with its times, in seconds at full scale. It is the same for all scenes
// with the same workload, number of workers and repetition.
type drawn struct {
	// g is when each sample is to be submitted, r what it takes at a worker of speed 1, on
	// average over attempts.
	g, r   []float64
	speeds []float64
	seed   uint64
}

// draw makes the step so that the pool's load is exactly poolLoad.
func (w workload) draw(s stepSize, width, rep int) drawn {
	d := drawn{speeds: make([]float64, width), seed: uint64(rep)<<16 | uint64(width)} //nolint:gosec // counts
	total := 0.0
	for i := range d.speeds {
		d.speeds[i] = 1
		if w.slow && i < width/4 {
			d.speeds[i] = 1.0 / 3
		}
		total += d.speeds[i]
	}
	rng := rand.New(rand.NewPCG(d.seed, 1)) //nolint:gosec // the same times in every run
	sum := 0.0
	for i := range s.samples {
		d.g = append(d.g, s.rollout*min(float64(i/w.burst+1)*float64(w.burst)/float64(s.samples), 1))
		d.r = append(d.r, w.size(rng))
		sum += d.r[i]
	}
	for i := range d.r {
		d.r[i] *= poolLoad * total * s.rollout / sum
	}
	return d
}

// attempts are the service times of a step that runs: how long each attempt takes, by
// sample and how many there were before. Safe for concurrent use.
type attempts struct {
	load  workload
	drawn drawn
	scale float64
	tried []atomic.Uint64
}

func newAttempts(w workload, d drawn, scale float64) *attempts {
	return &attempts{load: w, drawn: d, scale: scale, tried: make([]atomic.Uint64, len(d.r))}
}

// next is what one more attempt at the sample takes on the clock, at a worker of this speed.
func (a *attempts) next(sample int, speed float64) time.Duration {
	seconds := a.drawn.r[sample] / speed
	if s := a.load.stragglers; s.Share > 0 {
		rng := rand.New(rand.NewPCG(a.drawn.seed, uint64(sample)<<8|a.tried[sample].Add(1))) //nolint:gosec // the same times in every run
		seconds *= usualTimes
		if rng.Float64() < s.Share {
			seconds *= s.Factor
		}
	}
	return time.Duration(seconds / a.scale * float64(time.Second))
}

// simulated is the scene for the simulation.
func (c scene) simulated(d drawn, seed uint64) (work []float64, cfg sim.DispatchConfig) {
	work = d.r
	cfg = sim.DispatchConfig{
		Speeds: d.speeds, Policy: cmp.Or(c.simulation, c.policy.Policy), Stragglers: c.load.stragglers, Seed: seed,
		BackupAfter: c.policy.BackupAfter, BackupShare: c.policy.BackupShare,
	}
	if c.load.stragglers.Share > 0 {
		work = make([]float64, len(d.r))
		for i, r := range d.r {
			work[i] = r * usualTimes
		}
	}
	return work, cfg
}
