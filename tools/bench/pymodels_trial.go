package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// modelsFile holds the models, and each of them alone.
const modelsFile = "models.py"

// modelBench has a model behind a server, and the same model alone.
type modelBench struct {
	deployment *deployment
	alone      *comparator
	sent       int // steps
}

func newModelBench(ctx context.Context, python, model, yaml string) (_ *modelBench, err error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	b := &modelBench{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	file := filepath.Join(root, "tools", "bench", "pymodels", modelsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if b.alone, err = newComparator(ctx, python, file, model); err != nil {
		return nil, err
	}
	b.deployment, err = deploy(ctx, root, layout{name: "embedded"}, rewardSetting{
		yaml: yaml, files: map[string]map[string]string{"gateway": {modelsFile: string(text)}},
	})
	return b, err
}

// Close implements Trial.
func (b *modelBench) Close() error {
	if b.deployment != nil {
		b.deployment.close()
	}
	if b.alone != nil {
		return b.alone.Close()
	}
	return nil
}

// step sends a step of a profile at once, and all of it must be scored.
func (b *modelBench) step(ctx context.Context, reward string, n int, sample func(i int) rewards.Sample) (*batch, error) {
	samples := make([]rewards.Sample, n)
	for i := range samples {
		samples[i] = sample(i)
		samples[i].Reward = reward
	}
	b.sent++
	cfg := client.Config{Run: "step" + strconv.Itoa(b.sent)}
	out, err := sendOver(ctx, b.deployment.addr, cfg, samples, stepLimit)
	if err != nil {
		return nil, err
	}
	return out, out.allScored()
}

// stepLimit bounds a step.
const stepLimit = 5 * time.Minute

// bare is the model alone: so many samples in batches of a size.
func (b *modelBench) bare(ctx context.Context, size, samples int) (side, error) {
	return b.alone.measure(ctx, fmt.Sprintf("%d %d", size, samples))
}

// fastest is the best of the model alone over sizes, and its size.
func (b *modelBench) fastest(ctx context.Context, sizes []int, samples int) (best side, size int, err error) {
	for _, s := range sizes {
		got, err := b.bare(ctx, s, samples)
		if err != nil {
			return best, 0, err
		}
		if got.PerS > best.PerS {
			best, size = got, s
		}
	}
	return best, size, nil
}

// columns are what the model says beside the score of each sample of a step, a number by that name;
// NaN where it does not.
func (b *batch) columns(name string) []float64 {
	out := make([]float64, len(b.results))
	for i, res := range b.results {
		v, err := strconv.ParseFloat(fmt.Sprint(res.ExtraInfo["reward/it/"+name]), 64)
		if err != nil {
			v = math.NaN()
		}
		out[i] = v
	}
	return out
}

// powers are the powers of two between two sizes.
func powers(from, to int) (out []int) {
	for s := from; s <= to; s *= 2 {
		out = append(out, s)
	}
	return out
}

// numberedSample has a number, which is its score.
func numberedSample(i int) rewards.Sample {
	return rewards.Sample{ID: strconv.Itoa(i), Prompt: "p", Response: "r", ExtraInfo: fmt.Appendf(nil, `{"n": %d}`, i)}
}

// swapped is an error where a score is that of another sample.
func (b *batch) swapped() error {
	for i, res := range b.results {
		if res.RewardScore == nil || *res.RewardScore != float64(i) { //nolint:nilaway // checked first
			return fmt.Errorf("sample %d has the score of another: %v", i, res.RewardScore)
		}
	}
	return nil
}

// sleepingProfiles is the sleeping model with batches of up to so many, and one by one.
func sleepingProfiles(most int) string {
	return fmt.Sprintf(`reward:
  reward_functions:
    it: {path: models.py, name: Sleeping, required: true, max_batch_size: %d}
rewards:
  single:
    reward_functions:
      it: {path: models.py, name: Sleeping, required: true, max_batch_size: 1}
`, most)
}

// burstTrial sends steps to the sleeping model. Each measurement has a server of its own.
type burstTrial struct {
	python                       string
	most, samples, singles, from int
}

func newBurstTrial(most int) func(context.Context, Options) (Trial, error) {
	return func(_ context.Context, o Options) (Trial, error) {
		root, err := report.Repository()
		t := &burstTrial{python: interpreter(root), most: most, samples: burstSamples, singles: burstSingles, from: 8}
		if o.Quick {
			t.samples, t.singles, t.from = 32, 4, 16
		}
		return t, err
	}
}

// Measure implements Trial: a first step, and then the sides in changing order.
func (t *burstTrial) Measure(ctx context.Context, rep int) (_ Readings, err error) {
	b, err := newModelBench(ctx, t.python, "Sleeping", sleepingProfiles(t.most))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	strangers := b.deployment.strangers()
	r := Readings{}
	if err := t.ours(ctx, b, r, "first"); err != nil {
		return nil, err
	}
	sides := []func() error{
		func() error { return t.ours(ctx, b, r, "ours") },
		func() error {
			best, size, err := b.fastest(ctx, powers(t.from, t.most), t.samples)
			r["static_per_s"], r["static_batch"] = best.PerS, float64(size)
			return err
		},
		func() error {
			one, err := b.step(ctx, "single", t.singles, numberedSample)
			if err == nil {
				r["single_per_s"] = float64(t.singles) / one.ends()
			}
			return err
		},
	}
	for i := range sides {
		if err := sides[(i+rep)%len(sides)](); err != nil {
			return nil, err
		}
	}
	r[othersCores] = strangers()
	return r, b.deployment.ended()
}

func (t *burstTrial) ours(ctx context.Context, b *modelBench, r Readings, name string) error {
	s, err := b.step(ctx, "", t.samples, numberedSample)
	if err != nil {
		return err
	}
	made := s.columns("batches")
	r[name+"_per_s"], r[name+"_batches"] = float64(t.samples)/s.ends(), slices.Max(made)-slices.Min(made)+1
	return s.swapped()
}

// Close implements Trial.
func (*burstTrial) Close() error { return nil }

// trickleTrial sends samples one after the other at random moments.
type trickleTrial struct {
	*modelBench

	samples, singles int
}

func newTrickleTrial(ctx context.Context, o Options) (Trial, error) {
	t := &trickleTrial{samples: max(10, int(trickleRate*o.Lasting.Seconds())), singles: trickleSingle}
	if o.Quick {
		t.samples, t.singles = 4, 2
	}
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	t.modelBench, err = newModelBench(ctx, interpreter(root), "Sleeping", sleepingProfiles(burstMost))
	return t, err
}

// Measure implements Trial. The server has seen a step before, so that it knows what batches cost.
func (t *trickleTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	if rep == 0 {
		if _, err := t.step(ctx, "", 4*t.singles, numberedSample); err != nil {
			return nil, err
		}
	}
	strangers := t.deployment.strangers()
	one, err := t.bare(ctx, 1, t.singles)
	if err != nil {
		return nil, err
	}
	took, err := t.drip(ctx)
	if err != nil {
		return nil, err
	}
	again, err := t.bare(ctx, 1, t.singles)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	at := func(q float64) float64 { return 1000 * took[min(int(q*float64(len(took))), len(took)-1)].Seconds() }
	return Readings{
		"median_ms": at(0.5), "p99_ms": at(0.99), "single_ms": (1000/one.PerS + 1000/again.PerS) / 2, "samples": float64(t.samples),
		othersCores: strangers(),
	}, t.deployment.ended()
}

// drip sends samples at the moments of a Poisson process and returns how long each took to be scored.
func (t *trickleTrial) drip(ctx context.Context) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	t.sent++
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + t.deployment.addr, Run: "drip" + strconv.Itoa(t.sent)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	rng := rand.New(rand.NewPCG(5, 5)) //nolint:gosec // moments
	took = make([]time.Duration, t.samples)
	errs := make([]error, t.samples)
	var wg sync.WaitGroup
	for i := range took {
		if err := sleep(ctx, time.Duration(rng.ExpFloat64()/trickleRate*float64(time.Second))); err != nil {
			return nil, err
		}
		s, start := numberedSample(i), time.Now()
		f, err := c.Submit(ctx, &s, 0)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			res, err := f.Wait(ctx)
			took[i], errs[i] = time.Since(start), err
			if err == nil && res.Outcome != rewards.Scored {
				errs[i] = fmt.Errorf("%s: %v", res.Outcome, res.Errors)
			}
		})
	}
	wg.Wait()
	return took, errors.Join(errs...)
}

// torchPython is a Python with torch and transformers: that of make test-pymodels, or what
// REWARDLOOP_PYMODELS_PYTHON names.
func torchPython(root string) string {
	return cmp.Or(os.Getenv("REWARDLOOP_PYMODELS_PYTHON"), filepath.Join(root, ".cache", "pymodels", "bin", "python"))
}

// visionTrial has the vision tower behind a server, and alone.
type visionTrial struct {
	*modelBench

	samples, batch int
	pictures       []*rewards.Media
}

func newVisionTrial(ctx context.Context, o Options) (_ Trial, err error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	python := torchPython(root)
	if err := command(ctx, python, "-c", "import torch, transformers"); err != nil {
		return nil, fmt.Errorf("%w: no torch (make test-pymodels makes an environment, REWARDLOOP_PYMODELS_PYTHON names one): %w", errSkipped, err)
	}
	t := &visionTrial{samples: visionSamples}
	sizes := powers(1, visionMost)
	if o.Quick {
		t.samples, sizes = 4, []int{2}
	}
	for _, s := range noise(visionSize)[:min(t.samples, clipPictures)] {
		t.pictures = append(t.pictures, s.Media[0])
	}
	t.modelBench, err = newModelBench(ctx, python, "Vision", fmt.Sprintf(`reward:
  reward_functions:
    it: {path: models.py, name: Vision, required: true, max_batch_size: %d, pixels: torch, probe: false, interpreter: %q}
`, visionMost, python))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if _, err = t.bare(ctx, visionMost, visionMost); err != nil {
		return nil, err
	}
	if _, t.batch, err = t.fastest(ctx, sizes, max(t.samples/2, slices.Max(sizes))); err != nil {
		return nil, err
	}
	for range 2 { // the pool learns what a batch costs
		if _, err = t.ours(ctx, Readings{}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Measure implements Trial: both sides twice, ours and bare and then bare and ours, or the other way round.
func (t *visionTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	strangers := t.deployment.strangers()
	r := Readings{"bare_batch": float64(t.batch)}
	seconds := map[string]float64{}
	for turn := range 4 {
		if (turn == 0 || turn == 3) == (rep%2 == 0) {
			s, err := t.ours(ctx, r)
			if err != nil {
				return nil, err
			}
			seconds["ours"] += s
			continue
		}
		s, err := t.bare(ctx, t.batch, t.samples)
		if err != nil {
			return nil, err
		}
		if s.Threads != int(r["threads"]) && r["threads"] > 0 {
			return nil, fmt.Errorf("%d threads alone, %v behind the server: both sides need as many", s.Threads, r["threads"])
		}
		seconds["bare"] += float64(t.samples) / s.PerS
		r["bare_cpu_ms"] = s.CPUMS
	}
	for name, s := range seconds {
		r[name+"_per_s"] = 2 * float64(t.samples) / s
	}
	r[othersCores] = strangers()
	return r, t.deployment.ended()
}

// ours is how many seconds a step takes.
func (t *visionTrial) ours(ctx context.Context, r Readings) (float64, error) {
	b, err := t.step(ctx, "", t.samples, func(i int) rewards.Sample {
		s := numberedSample(i)
		s.Media = t.pictures[i%len(t.pictures):][:1]
		return s
	})
	if err != nil {
		return 0, err
	}
	r["threads"], r["ours_batch"] = slices.Max(b.columns("threads")), report.Median(b.columns("batch"))
	return b.ends(), nil
}
