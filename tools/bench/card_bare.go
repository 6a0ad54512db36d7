package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// graph is a session or a language model of this process.
type graph interface {
	Run(ctx context.Context, b infer.Batch) (*ort.Answer, error)
	Close() error
}

// openGraph loads a model into this process.
func openGraph(m infer.Model) (graph, error) {
	library, err := ort.Find("")
	if err != nil {
		return nil, err
	}
	c := ort.SessionConfig{Library: library, Model: m, Concurrency: 1}
	if n, ok := strings.CutPrefix(m.Device, "cuda:"); ok {
		if c.Ordinal, err = strconv.Atoi(n); err != nil {
			return nil, err
		}
	}
	if m.Embed != "" {
		return ort.OpenLanguage(c)
	}
	return ort.OpenSession(c)
}

// bareLoop runs graphs as fast as one thread can.
type bareLoop struct {
	stages []bareStage
	graphs []graph
	// thread runs what it is given on one thread of the system: a CUDA session that is run from
	// several grows with every one of them.
	thread chan func()
	done   chan struct{}
}

func newBareLoop(ctx context.Context, stages []bareStage) (*bareLoop, error) {
	b := &bareLoop{stages: stages, thread: make(chan func()), done: make(chan struct{})}
	go func() { // ends with Close
		runtime.LockOSThread()
		defer close(b.done)
		for f := range b.thread {
			f()
		}
	}()
	var err error
	b.on(func() {
		for _, s := range stages {
			var g graph
			if g, err = openGraph(s.model); err != nil {
				return
			}
			b.graphs = append(b.graphs, g)
		}
	})
	if err == nil {
		err = b.warm(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *bareLoop) on(f func()) {
	over := make(chan struct{})
	b.thread <- func() { defer close(over); f() }
	<-over
}

// warm runs every batch twice: kernels are chosen, and memory grows.
func (b *bareLoop) warm(ctx context.Context) error {
	for i := range b.stages {
		for _, n := range cardBatches {
			if _, err := b.time(ctx, i, n, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// time is what a batch of n takes a stage, the mean of two runs or more within the time given.
func (b *bareLoop) time(ctx context.Context, stage, n int, lasting time.Duration) (took time.Duration, err error) {
	items := make([]infer.Request, n)
	for i := range items {
		items[i] = b.stages[stage].item
	}
	batch, err := infer.Stack(items)
	if err != nil {
		return 0, err
	}
	b.on(func() {
		start, runs := time.Now(), 0
		for runs < 2 || time.Since(start) < lasting {
			var a *ort.Answer
			if a, err = b.graphs[stage].Run(ctx, batch); err != nil {
				err = fmt.Errorf("bare %s, batch of %d: %w", b.stages[stage].name, n, err)
				return
			}
			a.Release()
			runs++
		}
		took = time.Since(start) / time.Duration(runs)
	})
	return took, err
}

// measure adds the curves to the readings, and the rate at the best batches.
func (b *bareLoop) measure(ctx context.Context, lasting time.Duration, r Readings) error {
	each := 0.0 // seconds an item takes in all stages
	for i, s := range b.stages {
		least := 0.0
		for _, n := range cardBatches {
			took, err := b.time(ctx, i, n, lasting/time.Duration(len(cardBatches)*len(b.stages)))
			if err != nil {
				return err
			}
			r[curve(s.name, n)] = took.Seconds() * 1000
			if one := took.Seconds() / float64(n); least == 0 || one < least {
				least, r[s.name+"_best_batch"] = one, float64(n)
			}
		}
		each += least
	}
	r["bare_per_s"] = 1 / each
	return nil
}

// Close ends the sessions and the thread.
func (b *bareLoop) Close() error {
	var errs []error
	b.on(func() {
		for _, g := range b.graphs {
			errs = append(errs, g.Close())
		}
	})
	close(b.thread)
	<-b.done
	return errors.Join(errs...)
}

// residentMiB is the memory of a process.
func residentMiB(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, err
	}
	return resident * float64(os.Getpagesize()) / (1 << 20), nil
}
