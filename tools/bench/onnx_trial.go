package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/media"
	nodes "github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// clipTrial has all sides loaded.
type clipTrial struct {
	scorers *nodes.Scorers
	scorer  rewards.Scorer
	bare    *bareCLIP
	python  map[string]*comparator
	decoder *media.Decoder
	samples []*rewards.Sample
	rounds  int
}

func newCLIPTrial(ctx context.Context, o Options, size int) (_ Trial, err error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(root, ".cache", "bench-onnx", "clip-b32")
	python := exporterPython(root)
	if err := command(ctx, python, filepath.Join(root, "tools", "bench", "onnx", "make.py"), folder); err != nil {
		return nil, err
	}
	t := &clipTrial{python: map[string]*comparator{}, rounds: clipRounds}
	if o.Quick {
		t.rounds = 1
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for _, side := range []string{"transformers", "onnxruntime"} {
		args := []string{
			filepath.Join(root, "tools", "bench", "onnx", "compare.py"), folder, "--side", side, "--size", strconv.Itoa(size),
			"--pictures", strconv.Itoa(clipPictures), "--threads", strconv.Itoa(runtime.NumCPU()),
		}
		c, err := newComparator(ctx, python, args...)
		if err != nil {
			return nil, err
		}
		t.python[side] = c
	}
	cfg := config.Default()
	if t.scorers, err = nodes.NewScorers(cfg, nil); err != nil {
		return nil, err
	}
	options, err := json.Marshal(map[string]any{"model": folder})
	if err != nil {
		return nil, err
	}
	if t.scorer, err = t.scorers.Registry.Build("clipscore", options); err != nil {
		return nil, err
	}
	if err := t.scorer.(rewards.Warmer).Warm(ctx); err != nil { //nolint:forcetypeassert // it is one
		return nil, err
	}
	if t.decoder, err = media.New(media.Config{}); err != nil {
		return nil, err
	}
	t.samples = noise(size)
	if t.bare, err = newBareCLIP(folder); err != nil {
		return nil, err
	}
	for range 4 { // the pool learns what a batch costs, and the arenas grow
		if _, err = t.ours(ctx, "warm"); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// noise are raw pictures, as the comparator draws them.
func noise(size int) []*rewards.Sample {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // noise
	out := make([]*rewards.Sample, clipPictures)
	for i := range out {
		data := make([]byte, size*size*3)
		for k := range data {
			data[k] = byte(rng.Uint32()) //nolint:gosec // truncation is meant
		}
		out[i] = &rewards.Sample{ID: strconv.Itoa(i), Media: []*rewards.Media{{
			Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.HWC, DType: "U8", Shape: []int{size, size, 3}, Data: data,
		}}}
	}
	return out
}

// side is one measurement of a side.
type side struct {
	PerS  float64 `json:"per_s"`
	CPUMS float64 `json:"cpu_ms"`
	// Threads is how many threads a Python side computes with, where it says so.
	Threads int `json:"threads"`
}

// Measure implements Trial: the three sides and the bare graphs, several rounds in changing
// order, of which the mean counts.
func (t *clipTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	names := []string{"ours", "transformers", "onnxruntime", "bare"}
	for turn := range t.rounds * len(names) {
		round := turn / len(names)
		name := names[(turn+round+rep)%len(names)]
		// Some 25 tokens for this tokenizer, as prompts have, and new ones each time.
		prompt := fmt.Sprintf("%s %d %d", strings.Repeat("a photo of a cat ", 4), rep, round)
		before, start := cputime.Machine(), time.Now()
		var s side
		var err error
		switch name {
		case "ours":
			s, err = t.ours(ctx, prompt)
		case "bare":
			s, err = t.bare.measure(ctx)
		default:
			s, err = t.python[name].measure(ctx, prompt)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		r[name+"_s"] += clipPictures / s.PerS
		r[name+"_cpu_ms"] += s.CPUMS / float64(t.rounds)
		if name != "bare" {
			busy := (cputime.Machine() - before).Seconds() - s.CPUMS/1000*clipPictures
			r[othersCores] = max(r[othersCores], busy/time.Since(start).Seconds())
		}
	}
	for _, name := range names {
		r[name+"_per_s"] = float64(t.rounds*clipPictures) / r[name+"_s"]
		delete(r, name+"_s")
	}
	return r, nil
}

// ours scores all pictures, each on a goroutine as workers do.
func (t *clipTrial) ours(ctx context.Context, prompt string) (side, error) {
	for i, s := range t.samples {
		s.Prompt = fmt.Sprintf("%s %d", prompt, i/clipGroup)
		s.Media[0].SetDecoder(t.decoder)
	}
	cpu, start := t.cpu(), time.Now()
	errs := make([]error, len(t.samples))
	running := make(chan struct{}, clipRunning)
	var all sync.WaitGroup
	for i, s := range t.samples {
		running <- struct{}{}
		all.Go(func() {
			_, errs[i] = t.scorer.Score(ctx, s)
			<-running
		})
	}
	t.scorers.Readers.Devices.Flush() // as the loop does once all of a step have arrived
	all.Wait()
	took := time.Since(start)
	return side{PerS: clipPictures / took.Seconds(), CPUMS: (t.cpu() - cpu).Seconds() * 1000 / clipPictures}, errors.Join(errs...)
}

// cpu is what this process and its children have computed so far.
func (t *clipTrial) cpu() time.Duration {
	sum := cputime.Own()
	for _, kind := range t.scorers.Children() {
		for _, pid := range kind.PIDs {
			sum += cputime.Process(pid)
		}
	}
	return sum
}

// Close implements Trial.
func (t *clipTrial) Close() error {
	var errs []error
	for _, c := range t.python {
		errs = append(errs, c.Close())
	}
	if c, ok := t.scorer.(rewards.Closer); ok {
		errs = append(errs, c.Close())
	}
	if t.bare != nil {
		errs = append(errs, t.bare.Close())
	}
	if t.scorers != nil {
		errs = append(errs, t.scorers.Close())
	}
	return errors.Join(errs...)
}
