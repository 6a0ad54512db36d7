package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// observation is what the generator's side saw of one sample. Times count from the
// start of the step.
type observation struct {
	generated, returned time.Duration
	res                 *wire.Result
}

// score is how long the sample was on its place, from the claim to the result.
func (o observation) score() time.Duration { return took(o.res, "score") }

// took is one stage of the server's timing.
func took(r *wire.Result, name string) time.Duration {
	return time.Duration(r.TimingMS[name] * float64(time.Millisecond))
}

// played is one run of the step.
type played struct {
	seen  []observation // by index
	trace trace.Trace
}

// step plays one rollout of the given length. Each sample is submitted when it is
// finished, or with late all of them when the last one is.
func (s *stage) step(ctx context.Context, name string, plan Plan, length time.Duration, late bool) (*played, error) {
	ctx, cancel := context.WithTimeout(ctx, stepDeadline)
	defer cancel()
	c, err := s.dial(ctx, "demo "+name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer c.Close()
	if err := c.Step(rewards.Train, 0, int64(len(s.pictures))); err != nil {
		return nil, fmt.Errorf("announcing the step: %w", err)
	}
	s.cfg.Progress.begin(name, len(s.pictures))
	defer s.cfg.Progress.end()
	r := &run{stage: s, client: c, seen: make([]observation, len(s.pictures))}
	g, ctx := errgroup.WithContext(ctx)
	r.start = time.Now()
	g.Go(func() error { return r.rollout(ctx, g, plan, length, late) })
	if err := g.Wait(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), errors.Join(c.Problems()...))
	}
	trace, err := newTrace(r.seen, s.cfg.Places)
	return &played{seen: r.seen, trace: trace}, err
}

// run is a step under way. Each element of seen belongs to the goroutine that has
// the sample: first its GPU, then the one that waits for its result.
type run struct {
	*stage
	client *client.Client
	start  time.Time
	seen   []observation
}

// rollout plays the GPUs and submits; g holds one waiting goroutine per sample.
func (r *run) rollout(ctx context.Context, g *errgroup.Group, plan Plan, length time.Duration, late bool) error {
	submit := func(ctx context.Context, i int) error {
		f, err := r.client.Submit(ctx, r.pictures[i].sample(i), sampleDeadline)
		if err != nil {
			return err
		}
		g.Go(func() error { return r.wait(ctx, i, f) })
		return nil
	}
	// The wait for a result outlives the rollout, so it gets the step's context.
	err := plan.Play(ctx, r.start, length, func(_ context.Context, i int) error {
		r.seen[i].generated = time.Since(r.start)
		r.cfg.Progress.finished()
		if late {
			return nil
		}
		return submit(ctx, i)
	})
	for i := range r.pictures {
		if err != nil || !late {
			break
		}
		err = submit(ctx, i)
	}
	return err
}

func (r *run) wait(ctx context.Context, i int, f *client.Future) error {
	res, err := f.Wait(ctx)
	if err != nil {
		return fmt.Errorf("sample %s: %w", f.ID, err)
	}
	r.seen[i].returned, r.seen[i].res = time.Since(r.start), res
	r.cfg.Progress.result(res.RewardScore != nil)
	return nil
}

// overlap and overlapEach limit by how much a sample may seem to start before it could. A worker starts its next
// sample as soon as the component of the last one has ended, while it still writes the answer. In a row of samples
// without a pause these moments add up: 29 ms have been measured, in a step of 128 pictures of 30 ms each.
const overlap, overlapEach = 20 * time.Millisecond, 2 * time.Millisecond

// newTrace places what the server measured on the generator's clock. A result says
// for how long its sample was on a place, and it was there when the generator held
// it; a worker has one place and answers in order. So, per worker and from the last
// result back, a sample is placed as late as its result and its successor allow. No
// placement that fits the durations is later, the true one included; so nothing
// starts before it was submitted, unless something is wrong with the trace, which
// its validation then says. A sample without a score has no times of service.
func newTrace(seen []observation, servers int) (trace.Trace, error) {
	rec := trace.Trace{Servers: servers, Spans: make([]trace.Span, len(seen))}
	order := make([]int, len(seen))
	for i, o := range seen {
		order[i] = i
		rec.Spans[i] = trace.Span{ID: o.res.ID, Generated: o.generated.Seconds(), Worker: o.res.Worker}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(strings.Compare(seen[a].res.Worker, seen[b].res.Worker), cmp.Compare(seen[b].res.Seq, seen[a].res.Seq))
	})
	worker, free := "", time.Duration(0) // the worker's place is taken from free on
	row := time.Duration(0)              // number of samples without a pause from there on
	for _, i := range order {
		o, span := seen[i], &rec.Spans[i]
		if o.res.RewardScore == nil {
			continue
		}
		scored, early := o.returned, time.Duration(0)
		if o.res.Worker == worker && free < scored {
			row++
			scored, early = free, overlap+row*overlapEach
		} else {
			row = 0
		}
		worker, free = o.res.Worker, scored-o.score()
		if late := o.generated - free; 0 < late && late <= early {
			free, row = o.generated, 0
		}
		// The queue's time is rounded to a microsecond, which must not put the
		// arrival before the departure.
		queued := max(o.generated, free-took(o.res, "queue"))
		span.Queued, span.Started = new(queued.Seconds()), new(free.Seconds())
		span.Scored, span.Returned = new(scored.Seconds()), new(o.returned.Seconds())
	}
	if err := rec.Validate(); err != nil {
		return rec, fmt.Errorf("the server's times contradict the generator's: %w", err)
	}
	return rec, nil
}
