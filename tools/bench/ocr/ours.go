package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
)

// usage is what a run has cost.
type usage struct {
	took time.Duration
	// own is the processor time of this process, ort that of its children.
	own, ort time.Duration
}

// ours is our reader in one mode.
type ours struct {
	reader *ppocr.Reader
	others []int // processes that are children too, and not ours
}

func newOurs(ctx context.Context, cfg ppocr.Config, e *session) (*ours, error) {
	o := &ours{}
	var err error
	if o.reader, err = ppocr.New(cfg, e.models); err != nil {
		return nil, err
	}
	if err := o.reader.Warm(ctx); err != nil {
		return nil, errors.Join(err, o.reader.Close())
	}
	return o, nil
}

// inFlight is how many pictures are read at the same time: enough that a child never
// waits while another picture is prepared.
func inFlight() int { return 2 * runtime.NumCPU() }

// read reads the pictures, several at the same time.
func (o *ours) read(ctx context.Context, pictures []picture) (usage, [][]line, error) {
	out := make([][]line, len(pictures))
	errs := make([]error, len(pictures))
	u := usage{own: -cputime.Own(), ort: -cputime.Children(o.others...)}
	begin := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range inFlight() {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(pictures); i = next.Add(1) - 1 {
				out[i], errs[i] = o.one(ctx, pictures[i])
			}
		})
	}
	wg.Wait()
	u.took = time.Since(begin)
	u.own += cputime.Own()
	u.ort += cputime.Children(o.others...)
	return u, out, errors.Join(errs...)
}

func (o *ours) one(ctx context.Context, p picture) ([]line, error) {
	found, err := o.reader.Read(ctx, p.px.Frame(0), p.px.Width, p.px.Height)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.File, err)
	}
	lines := make([]line, len(found))
	for i, f := range found {
		lines[i] = line{text: f.Text, score: f.Confidence, quad: f.Quad}
	}
	return lines, nil
}
