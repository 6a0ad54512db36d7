package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
)

// Limits of a plan.
const (
	maxPlanSamples = 1 << 20
	maxPlanServers = 1 << 20
	maxValues      = 16 // of one flag
	maxSeeds       = 1000
	// planSteps is how many steps a draw has: of one_step_off, two that are like
	// those of a long run. Two, because a long wait makes the next one short, so that
	// waits alternate where scoring takes about as long as the rest of a step. Of
	// largeStep samples and more one is enough where steps do not overlap.
	planSteps = 4
	largeStep = 50_000
)

// planner is the load of a plan and the pools to try, checked.
type planner struct {
	o        planOptions
	base     sim.TrainerConfig // all but mode, times and servers
	servers  []int
	policies []string
	g        []float64     // releases of every step
	draws    [][][]float64 // service times by draw and step; nil rows: of devices
	reward   string        // in words
	unit     string        // what a server is called
	unscored int           // samples of the trace that are left out
	slow     [2]float64    // share of the servers, factor
}

func newPlanner(o planOptions) (*planner, error) {
	p := &planner{o: o, unit: "concurrent calls"}
	p.base = sim.TrainerConfig{
		Group: o.group, MiniBatches: o.miniBatches,
		LogProb: o.logProb.Seconds(), Update: o.update.Seconds(), Other: o.other.Seconds(),
		Pool: sim.DispatchConfig{Failures: o.failures, BackupAfter: o.backupAfter},
	}
	rec, err := p.load()
	if err != nil {
		return nil, err
	}
	if err := p.pool(rec); err != nil {
		return nil, err
	}
	if err := p.drawAll(rec); err != nil {
		return nil, err
	}
	return p, p.check()
}

// load sets when samples are generated, from a trace or the flags.
func (p *planner) load() (rec *recorded, err error) {
	o := &p.o
	if o.trace != "" {
		for _, name := range []string{"samples", "generation", "arrivals"} {
			if o.set[name] {
				return nil, fmt.Errorf("--%s and --trace exclude each other: the trace has this value", name)
			}
		}
		if rec, p.unscored, err = readRecorded(o.trace, o.stdin); err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		p.g, o.samples = rec.g, len(rec.g)
		if !o.set["group"] {
			p.base.Group = rec.group
		}
		if !o.set["update"] {
			p.base.Update = rec.update
		}
	}
	if p.base.Group > 0 && !o.set["mini-batches"] {
		p.base.MiniBatches = max(1, min(p.base.MiniBatches, o.samples/p.base.Group))
	}
	switch {
	case o.samples < 1 || o.samples > maxPlanSamples:
		return nil, fmt.Errorf("--samples is %d, must be 1…%d", o.samples, maxPlanSamples)
	case p.base.Group < 1 || o.samples%p.base.Group != 0:
		return nil, fmt.Errorf("--group is %d, must divide the %d samples", p.base.Group, o.samples)
	case p.base.MiniBatches < 1 || p.base.MiniBatches > o.samples/p.base.Group:
		return nil, fmt.Errorf("--mini-batches is %d, must be 1…%d, the number of groups", o.miniBatches, o.samples/p.base.Group)
	}
	for name, d := range map[string]float64{
		"generation": o.generation.Seconds(), "logprob": p.base.LogProb, "update": p.base.Update, "other": p.base.Other, "switch": o.switching.Seconds(),
	} {
		if d < 0 {
			return nil, fmt.Errorf("--%s is negative", name)
		}
	}
	if rec == nil {
		p.g, err = parseArrivals(o.arrivals, o.samples, o.generation.Seconds())
	}
	return rec, err
}

// pool sets who scores.
func (p *planner) pool(rec *recorded) (err error) {
	o := &p.o
	axis, list := "concurrency", o.concurrency
	switch {
	case o.batchCost != "" && (o.reward != "" || o.concurrency != ""):
		return errors.New("--batch-cost goes with --devices, not with --reward and --concurrency")
	case o.batchCost != "":
		if err := p.batch(); err != nil {
			return err
		}
		p.unit, axis, list = "devices", "devices", o.devices
		if list == "" {
			list = strconv.Itoa(max(1, o.rewardGPUs))
		}
	case o.devices != "" || o.set["max-batch"]:
		return errors.New("--devices and --max-batch go with --batch-cost")
	case list == "" && rec != nil:
		list = strconv.Itoa(rec.servers)
	case list == "":
		list = "256,1024,5120"
	}
	if p.servers, err = numbers(axis, list, maxPlanServers); err != nil {
		return err
	}
	for policy := range strings.SplitSeq(o.policy, ",") {
		p.policies = append(p.policies, strings.TrimSpace(policy))
	}
	a, b, err := pair("slow", o.slow, "a share of the servers and by what factor they are slower, such as 0.25,3")
	if err != nil {
		return err
	}
	if o.slow != "" && (a > 1 || b < 1 || b > 1e6) {
		return fmt.Errorf("--slow %q: the share must be 0…1, the factor 1…1e6", o.slow)
	}
	p.slow = [2]float64{a, b}
	s := &p.base.Pool.Stragglers
	s.Share, s.Factor, err = pair("stragglers", o.stragglers, "a share of the attempts and by what factor they take longer, such as 0.02,10")
	return err
}

// batch sets the cost of devices.
func (p *planner) batch() error {
	a, c, err := pair("batch-cost", p.o.batchCost, "two numbers of seconds, such as 0.5,0.05")
	if err != nil {
		return err
	}
	if a+c <= 0 {
		return fmt.Errorf("--batch-cost %q: a batch must take more than 0 s", p.o.batchCost)
	}
	if p.o.maxBatch < 1 || p.o.maxBatch > 1<<16 {
		return fmt.Errorf("--max-batch is %d, must be 1…%d", p.o.maxBatch, 1<<16)
	}
	p.base.Pool.Batch = sim.BatchCost{Fixed: a, PerSample: c, Max: p.o.maxBatch}
	p.reward = fmt.Sprintf("a device needs %g + %g·b s for b ≤ %d samples", a, c, p.o.maxBatch)
	return nil
}

// drawAll draws the service times of all draws.
func (p *planner) drawAll(rec *recorded) error {
	o := &p.o
	dist, err := parseLatency(o.reward)
	switch {
	case err != nil:
		return err
	case o.seeds < 0 || o.seeds > maxSeeds:
		return fmt.Errorf("--seeds is %d, must be 0…%d", o.seeds, maxSeeds)
	case dist.draw != nil:
		p.reward = "a reward takes " + dist.name
	case p.reward != "": // by devices
	case rec == nil:
		return errors.New("the time of a reward is missing: give --reward, --batch-cost or --trace; see --help")
	default:
		p.reward = "rewards take what was recorded"
	}
	if o.seeds == 0 {
		o.seeds = 5
		if o.samples > 10_000 {
			o.seeds = 3
		}
		if o.samples >= largeStep {
			o.seeds = 1
		}
	}
	if o.seeds*planSteps*o.samples > 1<<27 { // 1 GiB
		return fmt.Errorf("--seeds %d × %d samples: want a product of at most %d", o.seeds, o.samples, (1<<27)/planSteps)
	}
	p.draws = make([][][]float64, o.seeds)
	for d := range p.draws {
		rng := rand.New(rand.NewPCG(o.seed, uint64(d))) //nolint:gosec // a simulation
		p.draws[d] = make([][]float64, planSteps)
		for k := range p.draws[d] {
			r := p.g // of devices: not read
			switch {
			case dist.draw != nil:
				r = make([]float64, len(p.g))
				for i := range r {
					r[i] = dist.draw(rng)
				}
			case rec != nil:
				r = rec.r
			}
			p.draws[d][k] = r
		}
	}
	return nil
}

// check lets the simulation say what it will not accept, before anything is run.
func (p *planner) check() error {
	var faults []error
	for _, policy := range p.policies {
		faults = append(faults, p.config(sim.ModeBatch, policy, p.servers[0], 0).Pool.Validate())
	}
	return errors.Join(faults...)
}

// config is the trainer of one draw.
func (p *planner) config(mode, policy string, servers, draw int) sim.TrainerConfig {
	c, steps := p.base, planSteps
	if p.o.samples >= largeStep && !overlaps(mode) {
		steps = 1
	}
	c.Mode, c.G, c.R = mode, slices.Repeat([][]float64{p.g}, steps), p.draws[draw][:steps]
	c.Pool.Policy, c.Pool.Servers, c.Pool.Seed = policy, servers, p.o.seed+uint64(draw) //nolint:gosec // a seed
	if slow := int(p.slow[0]*float64(servers) + 0.5); slow > 0 {
		c.Pool.Speeds = slices.Repeat([]float64{1}, servers)
		for i := range slow {
			c.Pool.Speeds[i] = 1 / p.slow[1]
		}
	}
	return c
}

// saveTrace writes the streaming step of the first draw.
func (p *planner) saveTrace(path string) error {
	cfg := p.config(sim.ModeStreaming, p.policies[0], p.servers[0], 0)
	s, err := sim.Dispatch(p.g, cfg.R[0], cfg.Pool)
	if err != nil {
		return err
	}
	t := trace.FromSchedule(s)
	t.Run, t.Expected, t.Update = "plan", len(p.g), p.base.Update+p.base.Other
	for i := range t.Spans {
		t.Spans[i].UID = strconv.Itoa(i / p.base.Group)
	}
	return writeWhole(path, t.Write)
}
