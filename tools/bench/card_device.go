package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/infer"
	nodes "github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/tools/bench/randmodel"
)

// closing bounds the end of a runner.
const closing = 20 * time.Second

// comparison is a model whose answers on the device are held against the CPU's.
type comparison struct {
	name string
	most float64
	// pair are the models for the device and for the CPU, and what they are asked.
	pair func(c *cardModels) (device, cpu infer.Model, item infer.Request)
}

func comparisons() []comparison {
	same := func(m func(c *cardModels) infer.Model, item func(c *cardModels) infer.Request) func(c *cardModels) (infer.Model, infer.Model, infer.Request) {
		return func(c *cardModels) (infer.Model, infer.Model, infer.Request) { return m(c), m(c), item(c) }
	}
	file := func(name string) func(c *cardModels) infer.Model {
		return func(c *cardModels) infer.Model { return c.model(name) }
	}
	picture := func(c *cardModels) infer.Request { return ready("pixel_values", 3, c.clip.Picture, c.clip.Picture) }
	tile := func(c *cardModels) infer.Request { return ready("pixel_values", 3, c.smol.Tile, c.smol.Tile) }
	const vision, encoder = "clip/vision_model.onnx", "smolvlm/onnx/vision_encoder.onnx"
	return []comparison{
		{"clip", 1e-3, same(file(vision), picture)},
		{"clip-fp16", 2e-2, func(c *cardModels) (infer.Model, infer.Model, infer.Request) {
			return c.model("clip/" + randmodel.HalfVision), c.model(vision), picture(c)
		}},
		{"clip-text", 1e-3, same(file("clip/text_model.onnx"), func(c *cardModels) infer.Request {
			ids := make([]int64, c.clip.Positions)
			for i := range ids {
				ids[i] = int64(i)
			}
			return infer.Request{Inputs: []infer.Tensor{{Name: infer.InputIDs, DType: infer.I64, Shape: []int{len(ids)}, I64: ids}}}
		})},
		{"smolvlm-vision", 1e-3, same(file(encoder), tile)},
		{"smolvlm-vision-fp16", 2e-2, func(c *cardModels) (infer.Model, infer.Model, infer.Request) {
			return c.model("smolvlm/onnx/" + randmodel.HalfEncoder), c.model(encoder), tile(c)
		}},
		{"smolvlm-language", 1e-3, func(c *cardModels) (infer.Model, infer.Model, infer.Request) {
			s := c.language()
			return s.model, s.model, s.item
		}},
		{"smolvlm-language-fp16", 2e-2, func(c *cardModels) (infer.Model, infer.Model, infer.Request) {
			s := c.language()
			half := s.model
			half.Path = filepath.Join(filepath.Dir(half.Path), randmodel.HalfDecoder)
			return half, s.model, s.item
		}},
		{"detector", 1e-3, same((*cardModels).detector, func(c *cardModels) infer.Request { return ready("", 3, c.page, c.page) })},
		{"recogniser", 1e-3, same((*cardModels).recogniser, func(c *cardModels) infer.Request { return ready("", 3, 48, c.line) })},
	}
}

// runners are the devices' child processes without a pool.
type runners struct {
	opener *ort.Opener
	open   map[string]pool.Runner
}

func openRunners(ctx context.Context, devices ...string) (*runners, error) {
	opener, err := ort.NewOpener(ort.Config{})
	if err != nil {
		return nil, err
	}
	r := &runners{opener: opener, open: map[string]pool.Runner{}}
	for _, d := range devices {
		if r.open[d] != nil {
			continue
		}
		runner, err := opener.Open(ctx, d)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.open[d] = runner
	}
	return r, nil
}

// run loads a model where it is not yet, and runs a batch on its device.
func (r *runners) run(ctx context.Context, m infer.Model, items ...infer.Request) ([]infer.Tensor, error) {
	b, err := infer.Stack(items)
	if err != nil {
		return nil, err
	}
	if _, err := r.open[m.Device].Load(ctx, m); err != nil {
		return nil, err
	}
	return r.open[m.Device].Run(ctx, m, b)
}

// Close ends the processes.
func (r *runners) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	var errs []error
	for _, runner := range r.open {
		errs = append(errs, runner.Close(ctx))
	}
	return errors.Join(errs...)
}

// outputsTrial holds a device against the CPU.
type outputsTrial struct {
	*runners
	models *cardModels
}

func newOutputsTrial(ctx context.Context, o Options) (Trial, error) {
	c, err := newCardModels(o)
	if err != nil {
		return nil, err
	}
	r, err := openRunners(ctx, o.Device, "cpu")
	return &outputsTrial{r, c}, err
}

// Measure implements Trial. A comparison that cannot be made is no reason to leave the others
// away: its difference is then beyond every bound.
func (t *outputsTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	for _, c := range comparisons() {
		device, cpu, item := c.pair(t.models)
		cpu.Device = "cpu"
		items := []infer.Request{item, item}[:1+rep%2]
		got, err := t.run(ctx, device, items...)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", c.name, device.Device, err)
		}
		want, err := t.run(ctx, cpu, items...)
		if err != nil {
			return nil, fmt.Errorf("%s on the CPU: %w", c.name, err)
		}
		r[c.name] = farthest(got, want)
	}
	return r, nil
}

// cardMemoryTrial runs a detector over shapes that change.
type cardMemoryTrial struct {
	*runners
	models *cardModels
	runs   int
	first  Readings
}

func newCardMemoryTrial(ctx context.Context, o Options) (Trial, error) {
	c, err := newCardModels(o)
	if err != nil {
		return nil, err
	}
	t := &cardMemoryTrial{models: c, runs: 10_000}
	if c.small || o.Quick {
		t.runs = 1000
	}
	t.runners, err = openRunners(ctx, o.Device)
	return t, err
}

// Measure implements Trial. There is one measurement, which every repetition tells: a second one
// would be of an arena that has grown already.
func (t *cardMemoryTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	if t.first != nil {
		return t.first, nil
	}
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // shapes
	var shapes []infer.Request
	for range 20 {
		least, span := t.models.page/2/32, t.models.page/2/32+1
		shapes = append(shapes, ready("", 3, 32*(least+rng.IntN(span)), 32*(least+rng.IntN(span))))
	}
	m := t.models.detector()
	var device, host [2]float64
	start := time.Now()
	for i := range t.runs {
		if _, err := t.run(ctx, m, shapes[i%len(shapes)]); err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		for k, at := range [2]int{t.runs / 10, t.runs} {
			if i+1 != at {
				continue
			}
			var err error
			if device[k], err = usedMiB(ctx, m.Device); err != nil {
				return nil, err
			}
			if host[k], err = residentMiB(t.opener.Stats()[m.Device].PIDs[0]); err != nil {
				return nil, err
			}
		}
	}
	stats := t.opener.Stats()[m.Device]
	t.first = Readings{
		"device_growth": device[1] - device[0], "device_mib": device[1], "host_growth": host[1] - host[0], "host_mib": host[1],
		"runs": float64(t.runs), "runs_per_s": float64(t.runs) / time.Since(start).Seconds(), "crashes": float64(stats.Crashes),
	}
	return t.first, nil
}

// usedMiB is the memory in use on a card; 0 for the CPU.
func usedMiB(ctx context.Context, device string) (float64, error) {
	n, ok := strings.CutPrefix(device, "cuda:")
	if !ok {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--id="+n, "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output() //nolint:gosec // a number
	if err != nil {
		return 0, fmt.Errorf("nvidia-smi, which says how much of the card's memory is in use: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// twoTrial is two models on one device.
type twoTrial struct {
	scorers *nodes.Scorers
	nets    [2]infer.Net
	items   [2]infer.Request
	lasting time.Duration
}

func newTwoTrial(ctx context.Context, o Options) (_ Trial, err error) {
	c, err := newCardModels(o)
	if err != nil {
		return nil, err
	}
	t := &twoTrial{lasting: o.Lasting}
	if t.scorers, err = nodes.NewScorers(config.Default(), nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	t.items = [2]infer.Request{ready("pixel_values", 3, c.clip.Picture, c.clip.Picture), ready("", 3, c.page, c.page)}
	for i, m := range [2]infer.Model{c.model("clip/vision_model.onnx"), c.detector()} {
		if t.nets[i], err = t.scorers.Readers.Devices.Net(m); err != nil {
			return nil, err
		}
		if _, err = t.rates(ctx, o.Lasting/4, i); err != nil { // the pool learns what batches cost
			return nil, err
		}
	}
	return t, nil
}

// rates are items a second of the models that are named, side by side.
func (t *twoTrial) rates(ctx context.Context, lasting time.Duration, which ...int) (rates [2]float64, err error) {
	const window = 128 // of each model, as many as in flight in the loop
	var done [2]atomic.Int64
	start := time.Now()
	do := func(ctx context.Context, lane int) error {
		i := which[lane]
		_, err := t.nets[i].Infer(ctx, t.items[i])
		done[i].Add(1)
		return err
	}
	out, err := closedLoop(ctx, do, len(which), window, lasting)
	if err != nil {
		return rates, err
	}
	took := min(time.Since(start), out.took)
	for _, i := range which {
		rates[i] = float64(done[i].Load()) / took.Seconds()
	}
	return rates, nil
}

// Measure implements Trial.
func (t *twoTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	var alone, both [2]float64
	sides := []func() error{
		func() error { r, err := t.rates(ctx, t.lasting, 0); alone[0] = r[0]; return err },
		func() error { r, err := t.rates(ctx, t.lasting, 1); alone[1] = r[1]; return err },
		func() (err error) { both, err = t.rates(ctx, t.lasting, 0, 1); return err },
	}
	for i := range sides {
		if err := sides[(i+rep)%len(sides)](); err != nil {
			return nil, err
		}
	}
	return Readings{
		"shares": both[0]/alone[0] + both[1]/alone[1], "a_alone_per_s": alone[0], "b_alone_per_s": alone[1],
		"a_beside_per_s": both[0], "b_beside_per_s": both[1],
	}, nil
}

// Close implements Trial.
func (t *twoTrial) Close() error { return t.scorers.Close() }
