package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rewardloop/rewardloop/config"
	nodes "github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

const (
	cardLanes  = 4
	cardWindow = 32 // samples in flight on a lane
	// cardPictures are met again and again.
	cardPictures = 256
)

// cardLoop is the whole loop around one job's model.
type cardLoop struct {
	scorers *nodes.Scorers
	scorer  rewards.Scorer
	node    *node
	samples []*rewards.Sample
	next    atomic.Int64
}

func newCardLoop(ctx context.Context, c *cardModels, job cardJob) (_ *cardLoop, err error) {
	l := &cardLoop{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	cfg := config.Default()
	cfg.Pool.ONNX.MaxBatch = cardBatches[len(cardBatches)-1]
	if l.scorers, err = nodes.NewScorers(cfg, nil); err != nil {
		return nil, err
	}
	if l.scorer, err = job.scorer(c, l.scorers); err != nil {
		return nil, err
	}
	if w, ok := l.scorer.(rewards.Warmer); ok {
		if err := w.Warm(ctx); err != nil {
			return nil, err
		}
	}
	width, height := job.side(c)
	l.samples = cardSamples(cardPictures, width, height)
	l.node, err = newNode(ctx, nodeConfig{
		workers: 1, places: cardLanes * cardWindow, lanes: cardLanes,
		profile: rewards.ManagerConfig{
			Components:  []rewards.Component{{Key: job.name, Weight: 1, Required: true, Scorer: l.scorer, Concurrency: cardLanes * cardWindow}},
			Concurrency: cardLanes * cardWindow,
		},
	})
	return l, err
}

// load keeps samples in flight. Of many that fail the first says why.
func (l *cardLoop) load(ctx context.Context, lasting time.Duration) (outcome, error) {
	out, err := closedLoop(ctx, l.send, cardLanes, cardWindow, lasting)
	if all, ok := err.(interface{ Unwrap() []error }); ok { // the outermost
		err = fmt.Errorf("%w, and %d more", all.Unwrap()[0], len(all.Unwrap())-1)
	}
	return out, err
}

// send is one round trip of the next picture.
func (l *cardLoop) send(ctx context.Context, lane int) error {
	i := l.next.Add(1)
	res, err := l.ask(ctx, lane, i)
	if err != nil {
		return err
	}
	if res.Outcome != rewards.Scored {
		return fmt.Errorf("sample %d: %s: %v", i, res.Outcome, res.Errors)
	}
	return nil
}

// ask sends picture i under an id of its own.
func (l *cardLoop) ask(ctx context.Context, lane int, i int64) (*wire.Result, error) {
	s := *l.samples[i%cardPictures]
	m := *s.Media[0] // a description, used once
	s.ID, s.Media = fmt.Sprintf("%s-%d", s.ID, i), []*rewards.Media{&m}
	f, err := l.node.clients[lane].Submit(ctx, &s, 0)
	if err != nil {
		return nil, err
	}
	return f.Wait(ctx)
}

// Close takes the loop down.
func (l *cardLoop) Close() error {
	var errs []error
	if l.node != nil {
		errs = append(errs, l.node.Close())
	}
	if c, ok := l.scorer.(rewards.Closer); ok {
		errs = append(errs, c.Close())
	}
	if l.scorers != nil {
		errs = append(errs, l.scorers.Close())
	}
	return errors.Join(errs...)
}

// children are the processes of the device.
func (l *cardLoop) children(device string) []int { return l.scorers.Children()["onnx "+device].PIDs }

// cardTrial is a job through the whole loop beside the bare one.
type cardTrial struct {
	loop    *cardLoop
	bare    *bareLoop
	lasting time.Duration
}

func newCardTrial(ctx context.Context, o Options, job cardJob) (_ Trial, err error) {
	c, err := newCardModels(o)
	if err != nil {
		return nil, err
	}
	t := &cardTrial{lasting: o.Lasting}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.loop, err = newCardLoop(ctx, c, job); err != nil {
		return nil, err
	}
	// The pool learns what batches cost, and the child's memory grows.
	if _, err = t.loop.load(ctx, o.Lasting); err != nil {
		return nil, err
	}
	t.bare, err = newBareLoop(ctx, job.bare(c))
	return t, err
}

// Measure implements Trial.
func (t *cardTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	ours := func() error {
		out, err := t.loop.load(ctx, t.lasting)
		r["loop_per_s"] = out.perSecond()
		return err
	}
	bare := func() error { return t.bare.measure(ctx, t.lasting, r) }
	sides := []func() error{ours, bare}
	for i := range sides {
		if err := sides[(i+rep)%2](); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close implements Trial.
func (t *cardTrial) Close() error {
	var errs []error
	if t.bare != nil {
		errs = append(errs, t.bare.Close())
	}
	if t.loop != nil {
		errs = append(errs, t.loop.Close())
	}
	return errors.Join(errs...)
}

// cardKillTrial kills the device's child under load.
type cardKillTrial struct {
	loop    *cardLoop
	device  string
	kills   int
	lasting time.Duration
}

func newCardKillTrial(ctx context.Context, o Options) (Trial, error) {
	c, err := newCardModels(o)
	if err != nil {
		return nil, err
	}
	loop, err := newCardLoop(ctx, c, cardJobs()[0])
	if err != nil {
		return nil, err
	}
	return &cardKillTrial{loop: loop, device: o.Device, kills: 2, lasting: o.Lasting}, nil
}

// scoreTolerance is how far a picture's score may be from what it was in a batch of another
// size; those of two pictures are a hundred times as far apart.
const scoreTolerance = 1e-3

// Measure implements Trial.
func (t *cardKillTrial) Measure(ctx context.Context, _ int) (Readings, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	known, err := t.scores(ctx)
	if err != nil {
		return nil, err
	}
	var sent, lost, swapped, answered atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for worker := range cardLanes * cardWindow {
		all.Go(func() {
			for i := int64(worker); !stop.Load() && ctx.Err() == nil; i += cardLanes * cardWindow {
				sent.Add(1)
				res, err := t.loop.ask(ctx, worker%cardLanes, 1<<32+i)
				switch {
				case err != nil || res.Outcome != rewards.Scored:
					lost.Add(1)
				case math.Abs(*res.RewardScore-known[(1<<32+i)%cardPictures]) > scoreTolerance:
					swapped.Add(1)
				}
				answered.Add(1)
			}
		})
	}
	kills, slowest, err := t.kill(ctx, &answered)
	stop.Store(true)
	all.Wait()
	return Readings{
		"lost": float64(lost.Load()), "swapped": float64(swapped.Load()), "samples": float64(sent.Load()),
		"kills": float64(kills), "back_s": slowest.Seconds(),
	}, err
}

// scores are those of the pictures.
func (t *cardKillTrial) scores(ctx context.Context) ([]float64, error) {
	known, errs := make([]float64, cardPictures), make([]error, cardPictures)
	places := make(chan struct{}, cardWindow)
	var all sync.WaitGroup
	for i := range known {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			res, err := t.loop.ask(ctx, i%cardLanes, int64(i))
			if err == nil && res.Outcome != rewards.Scored {
				err = fmt.Errorf("sample %d: %s: %v", i, res.Outcome, res.Errors)
			}
			if errs[i] = err; err == nil {
				known[i] = *res.RewardScore
			}
		})
	}
	all.Wait()
	return known, errors.Join(errs...)
}

// kill kills a child, waits until twice as many samples as are in flight have been answered
// since, and then for a while, and does so again.
func (t *cardKillTrial) kill(ctx context.Context, answered *atomic.Int64) (kills int, slowest time.Duration, err error) {
	for range t.kills {
		if err := sleep(ctx, t.lasting/2); err != nil {
			return kills, slowest, err
		}
		pids := t.loop.children(t.device)
		if len(pids) == 0 {
			return kills, slowest, fmt.Errorf("%s has no child to kill", t.device)
		}
		from, start := answered.Load(), time.Now()
		if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
			return kills, slowest, err
		}
		kills++
		for answered.Load() < from+2*cardLanes*cardWindow {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return kills, slowest, fmt.Errorf("after kill %d samples are no longer answered: %w", kills, err)
			}
		}
		slowest = max(slowest, time.Since(start))
	}
	return kills, slowest, sleep(ctx, t.lasting/2)
}

// Close implements Trial.
func (t *cardKillTrial) Close() error { return t.loop.Close() }
