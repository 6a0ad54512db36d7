package trainer

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Loop is the part of a reward loop that the trainer uses; a *client.Client implements it. The
// trainer does not wait for single results: futures may be nil.
type Loop interface {
	Sender
	// Chunks yields the rewards of a step in chunks of whole groups, until the last.
	Chunks(ctx context.Context, t wire.Fetch) iter.Seq2[*wire.Rewards, error]
}

// Sender submits samples, after declaring their number in a step.
type Sender interface {
	Declare(s wire.Step) error
	Submit(ctx context.Context, s *rewards.Sample, deadline time.Duration) (*client.Future, error)
}

var _ Loop = (*client.Client)(nil)

// run is a trainer at work. It belongs to the goroutine of Run.
type run struct {
	cfg    Config
	loop   Loop
	theta  Theta
	report *Report
	sleep  sleeper
}

// Run trains for Steps steps and returns a report, which is also returned with an error. An error
// ends the run: the end of ctx, a refused sample, or a step whose rewards are not available.
func Run(ctx context.Context, loop Loop, cfg Config) (*Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{cfg: cfg, loop: loop, report: &Report{Began: time.Now()}, sleep: newSleeper()}
	defer r.sleep.stop()
	var ahead *batch // generated, and to be learned from in the next step
	defer func() {
		cancel()
		_ = ahead.join() // nothing of it outlives Run
	}()
	var err error
	if cfg.Mode.Ahead() {
		if ahead, err = r.generate(ctx, cfg.First); err != nil {
			return r.report, fmt.Errorf("trainer: step %d: %w", cfg.First, err)
		}
	}
	for i := range cfg.Steps {
		step := cfg.First + int64(i)
		start := r.since()
		cur := ahead
		ahead = nil
		switch {
		case !cfg.Mode.Ahead():
			cur, err = r.generate(ctx, step)
		case i+1 < cfg.Steps:
			ahead, err = r.generate(ctx, step+1)
		}
		if err == nil {
			err = r.rest(ctx, cur, start)
		}
		if err != nil {
			cancel()
			_ = cur.join() // what it would say is in err, or is the cancelling
			return r.report, fmt.Errorf("trainer: step %d: %w", step, err)
		}
	}
	return r.report, nil
}

func (r *run) since() time.Duration { return time.Since(r.report.Began) }

// generate runs one rollout, to its end.
func (r *run) generate(ctx context.Context, step int64) (*batch, error) {
	b, err := r.begin(ctx, step)
	if err != nil {
		return nil, err
	}
	if err := r.sleep.until(ctx, b.start.Add(r.cfg.Generation)); err != nil {
		return b, err
	}
	b.rec.Generated = r.since()
	return b, nil
}

// rest is a step after its rollout.
func (r *run) rest(ctx context.Context, b *batch, start time.Duration) error {
	rec := &b.rec
	rec.Start = start
	if err := r.sleep.until(ctx, time.Now().Add(r.cfg.LogProb)); err != nil {
		return err
	}
	end, err := r.learn(ctx, b)
	if err != nil {
		return err
	}
	if err := b.join(); err != nil {
		return err
	}
	if err := r.sleep.until(ctx, end.Add(r.cfg.Other)); err != nil {
		return err
	}
	rec.Theta, rec.End = r.theta, r.since()
	r.report.Steps = append(r.report.Steps, *rec)
	return nil
}

// learn updates the policy with every mini-batch of a batch, and returns when the last
// update has ended. Each takes its part of Update from when it can begin.
func (r *run) learn(ctx context.Context, b *batch) (end time.Time, err error) {
	end = time.Now()
	update := func(rows []int) error {
		if now := time.Now(); now.After(end) {
			end = now
		}
		b.update(&r.theta, rows)
		end = end.Add(r.cfg.Update / time.Duration(r.cfg.MiniBatches))
		return r.sleep.until(ctx, end)
	}
	for {
		waiting := time.Now()
		chunk, more := b.next()
		b.rec.Waited += time.Since(waiting)
		if !more {
			break
		}
		rows, err := b.take(chunk)
		if err != nil {
			return end, err
		}
		if r.cfg.Mode.Pipelines() && len(rows) > 0 {
			if err := update(rows); err != nil {
				return end, err
			}
		}
	}
	if err := b.join(); err != nil { // why there is no more
		return end, err
	}
	if r.cfg.Mode.Pipelines() {
		return end, nil
	}
	size := len(b.noise) / r.cfg.MiniBatches
	for k := range r.cfg.MiniBatches {
		rows := make([]int, size)
		for i := range rows {
			rows[i] = k*size + i
		}
		if err := update(rows); err != nil {
			return end, err
		}
	}
	return end, nil
}

// idOf names a row of a step; rowOf finds the row again.
func idOf(step int64, row int) string {
	return strconv.FormatInt(step, 10) + "/" + strconv.Itoa(row)
}

func rowOf(id string, step int64, rows int) (int, error) {
	prefix, rest, _ := strings.Cut(id, "/")
	row, err := strconv.Atoi(rest)
	if err != nil || row < 0 || row >= rows || prefix != strconv.FormatInt(step, 10) {
		return 0, fmt.Errorf("a reward for sample %q, which was not submitted in step %d", id, step)
	}
	return row, nil
}

// sleeper waits for moments, with one timer.
type sleeper struct{ timer *time.Timer }

func newSleeper() sleeper { return sleeper{time.NewTimer(time.Hour)} }

func (s sleeper) stop() { s.timer.Stop() }

// until waits for a moment, or for the end of ctx.
func (s sleeper) until(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err()
	}
	s.timer.Reset(d)
	select {
	case <-s.timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
