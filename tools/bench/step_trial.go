package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/examples/trainer_modes/stub"
	"github.com/rewardloop/rewardloop/examples/trainer_modes/trainer"
	"github.com/rewardloop/rewardloop/internal/sim"
	shipped "github.com/rewardloop/rewardloop/node"
)

// recipe is the experiment's step at full scale.
type recipe struct {
	prompts, group, miniBatches        int
	generation, logProb, update, other time.Duration
	least, most                        time.Duration // of a reward, uniform
}

// asyncRewardAgent is verl's recipe of that name: its sizes and delays, and the phases of
// its step as they were fitted to two of its four published rows.
var asyncRewardAgent = recipe{ //nolint:gochecknoglobals // a table
	prompts: 1024, group: 5, miniBatches: 4,
	generation: 53 * time.Second, logProb: 13 * time.Second, update: 100 * time.Second, other: 26 * time.Second,
	least: time.Second, most: 40 * time.Second,
}

// verlOmni is its documented Qwen-Image OCR run: 32 prompts × 16 images, 420 s a step with
// the reward after the rollout and 360 s beside it; the 60 s between them are taken as the
// time that eight reward workers need for 512 images.
var verlOmni = recipe{ //nolint:gochecknoglobals // a table
	prompts: 32, group: 16, miniBatches: 1,
	generation: 200 * time.Second, update: 160 * time.Second,
	least: 750 * time.Millisecond, most: 1125 * time.Millisecond,
}

// site is a shipped node whose reward is the stub, and a client of it.
type site struct {
	node   *shipped.Node
	stub   *stub.Stub
	client *client.Client
}

// siteYAML is its configuration; the rest is overrides.
const siteYAML = `
reward:
  num_workers: 8
  reward_functions:
    toy: {path: http://127.0.0.1:1, protocol: slime, required: true, concurrency: 8, attempts: 1, idle_timeout: 10m}
loop:
  credit_samples: 16384
`

// newSite starts a node that scores so many samples at a time.
func newSite(ctx context.Context, run string, concurrency int) (_ *site, err error) {
	s := &site{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.stub, err = stub.Listen(ctx, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	cfg, err := config.Parse("bench", []byte(siteYAML), []string{
		"server.listen=127.0.0.1:0", "reward.reward_functions.toy.path=" + s.stub.URL(),
		"reward.reward_functions.toy.concurrency=" + strconv.Itoa(concurrency), "reward.concurrency=" + strconv.Itoa(concurrency),
	}, nil)
	if err != nil {
		return nil, err
	}
	shipped.CollectLater(cfg, os.LookupEnv) // as serve does
	if s.node, err = shipped.New(shipped.Options{Config: cfg}); err != nil {
		return nil, err
	}
	if err := s.node.Start(ctx); err != nil {
		return nil, err
	}
	addr, err := s.node.Listen(ctx)
	if err != nil {
		return nil, err
	}
	s.client, err = client.Dial(ctx, client.Config{URL: "ws://" + addr.String(), Run: run})
	return s, err
}

// warm opens the connections to the scorer, as the steps before would have.
func (s *site) warm(ctx context.Context, concurrency int) error {
	_, err := trainer.Run(ctx, s.client, trainer.Config{
		Mode: trainer.Batch, Prompts: concurrency, Group: 1, Steps: 2, First: 1 << 20,
		Delay: func(int64, int) time.Duration { return time.Second },
	})
	return err
}

// Close takes it down, the client first.
func (s *site) Close() error {
	var errs []error
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.node != nil {
		s.node.Stop()
	}
	if s.stub != nil {
		errs = append(errs, s.stub.Close())
	}
	return errors.Join(errs...)
}

// played is one mode that was run, in seconds at full scale.
type played struct {
	perStep, waited, steady   float64
	ideal, idealSteady, bound float64
	samples, failed           int
}

// play runs a mode on a site of its own and simulates the same.
func (p recipe) play(ctx context.Context, mode trainer.Mode, concurrency, steps int, scale float64, seed uint64) (_ played, err error) {
	s, err := newSite(ctx, fmt.Sprintf("%s-%d", mode, concurrency), concurrency)
	if err != nil {
		return played{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.warm(ctx, concurrency); err != nil {
		return played{}, err
	}
	cfg := p.config(mode, steps, scale, seed)
	report, err := trainer.Run(ctx, s.client, cfg)
	if err != nil {
		return played{}, err
	}
	out, err := p.simulate(cfg, concurrency, scale)
	if err != nil {
		return played{}, err
	}
	out.perStep, out.waited = report.PerStep().Seconds()*scale, report.Waited().Seconds()*scale
	ends := make([]float64, len(report.Steps))
	for i := range report.Steps {
		ends[i] = report.Steps[i].End.Seconds() * scale
		out.failed += report.Steps[i].Failed()
		out.samples += len(report.Steps[i].Valid)
	}
	out.steady = steady(ends, mode.Ahead(), out.perStep)
	if out.failed > 0 {
		return played{}, fmt.Errorf("%s at %d: %d of %d samples have no reward", mode, concurrency, out.failed, out.samples)
	}
	return out, nil
}

// config is the trainer's.
func (p recipe) config(mode trainer.Mode, steps int, scale float64, seed uint64) trainer.Config {
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / scale) }
	return trainer.Config{
		Mode: mode, Prompts: p.prompts, Group: p.group, MiniBatches: p.miniBatches, Steps: steps, Seed: seed,
		Generation: scaled(p.generation), LogProb: scaled(p.logProb), Update: scaled(p.update), Other: scaled(p.other),
		Delay: trainer.UniformDelay(seed, scaled(p.least), scaled(p.most)),
	}.WithDefaults()
}

// simulate gives an ideal queue what the trainer was given: the planned arrivals and the
// delays asked for, so that whatever is late on the way counts as ours.
func (p recipe) simulate(cfg trainer.Config, concurrency int, scale float64) (played, error) {
	t := sim.TrainerConfig{
		Mode: string(cfg.Mode), Group: cfg.Group, MiniBatches: cfg.MiniBatches, Pool: sim.DispatchConfig{Servers: concurrency},
		LogProb: cfg.LogProb.Seconds() * scale, Update: cfg.Update.Seconds() * scale, Other: cfg.Other.Seconds() * scale,
	}
	for i := range cfg.Steps {
		step := cfg.First + int64(i)
		var g, r []float64
		for row, at := range cfg.Arrivals(step) {
			g = append(g, at.Seconds()*scale)
			r = append(r, cfg.Delay(step, row).Seconds()*scale)
		}
		t.G, t.R = append(t.G, g), append(t.R, r)
	}
	run, err := sim.Trainer(t)
	if err != nil {
		return played{}, err
	}
	bound, err := sim.TrainerBound(t)
	if err != nil {
		return played{}, err
	}
	return played{ideal: run.PerStep, bound: bound, idealSteady: steady(run.Ends, cfg.Mode.Ahead(), run.PerStep)}, nil
}

// steady is the distance between the ends of the steps that are like those of a long run:
// a mode that is a step ahead has nothing to generate in its last one, and waits longer in
// its first.
func steady(ends []float64, ahead bool, otherwise float64) float64 {
	last := len(ends) - 1
	if ahead {
		last--
	}
	if last < 1 || !ahead {
		return otherwise
	}
	return (ends[last] - ends[0]) / float64(last)
}

// modesTrial plays modes of a recipe at one concurrency.
type modesTrial struct {
	recipe      recipe
	modes       []trainer.Mode
	concurrency int
	steps       map[bool]int // by whether the mode is a step ahead
	scale       float64
	atOnce      int // modes that are played side by side
	told        Readings
}

func newModesTrial(c int, o Options) *modesTrial {
	return &modesTrial{
		recipe: asyncRewardAgent, modes: trainer.Modes(), concurrency: c, steps: map[bool]int{false: 2, true: 4}, scale: scaleOf(o),
		atOnce: map[int]int{recipeCalls: 6, moreCalls: 3, mostCalls: 1}[c],
	}
}

// newFullTrial is one step of the recipe at full scale.
func newFullTrial(_ context.Context, o Options) (Trial, error) {
	scale := 1.0
	if s := scaleOf(o); s > usualScale { // a quick look
		scale = s
	}
	return &modesTrial{
		recipe: asyncRewardAgent, modes: []trainer.Mode{trainer.Streaming}, concurrency: mostCalls, steps: map[bool]int{false: 1}, scale: scale, atOnce: 1,
	}, nil
}

func newVerlOmniTrial(_ context.Context, o Options) (Trial, error) {
	return &modesTrial{
		recipe: verlOmni, modes: []trainer.Mode{trainer.Batch, trainer.Streaming}, concurrency: 8, steps: map[bool]int{false: 2}, scale: scaleOf(o), atOnce: 2,
		told: Readings{"documented_sync": 420, "documented_async": 360},
	}, nil
}

// Measure implements Trial.
func (t *modesTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	out := Readings{"scale": t.scale}
	maps.Copy(out, t.told)
	before, start := used(), time.Now()
	for modes := range slices.Chunk(t.modes, t.atOnce) {
		if err := t.sideBySide(ctx, modes, uint64(rep), out); err != nil { //nolint:gosec // counts from 0
			return nil, err
		}
	}
	out[othersCores] = outcome{took: time.Since(start), used: used().since(before)}.others()
	return out, nil
}

// sideBySide plays some modes at once and adds their readings.
func (t *modesTrial) sideBySide(ctx context.Context, modes []trainer.Mode, seed uint64, out Readings) error {
	results, errs := make([]played, len(modes)), make([]error, len(modes))
	var wg sync.WaitGroup
	for i, m := range modes {
		wg.Go(func() { results[i], errs[i] = t.recipe.play(ctx, m, t.concurrency, t.steps[m.Ahead()], t.scale, seed) })
	}
	wg.Wait()
	for i, m := range modes {
		p := results[i]
		for what, v := range map[string]float64{
			"": p.perStep, "_ideal": p.ideal, "_bound": p.bound, "_waited": p.waited, "_steady": p.steady, "_steady_ideal": p.idealSteady,
		} {
			out[string(m)+what] = v
		}
	}
	return errors.Join(errs...)
}

// Close implements Trial.
func (*modesTrial) Close() error { return nil }
