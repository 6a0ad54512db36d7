package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// batch is one step's samples from their generation to the last update with them. Two
// goroutines serve it, which join waits for: submit, which owns Planned, Submitted and
// Responses of rec until then, and collect. The rest is the trainer's.
type batch struct {
	cfg   *Config
	loop  Loop
	theta Theta // of the policy that generates it
	noise []Noise
	start time.Time // of the rollout
	rec   Step

	serving *errgroup.Group
	chunks  chan *wire.Rewards // closed by collect
}

// begin declares a step and starts its rollout.
func (r *run) begin(ctx context.Context, step int64) (*batch, error) {
	n := r.cfg.Prompts * r.cfg.Group
	b := &batch{
		cfg: &r.cfg, loop: r.loop, theta: r.theta, noise: make([]Noise, n),
		chunks: make(chan *wire.Rewards, r.cfg.MiniBatches+1),
		rec: Step{
			Step: step, Planned: make([]time.Duration, n), Submitted: make([]time.Duration, n), Delay: make([]time.Duration, n),
			Responses: make([]string, n), Rewards: make([]float64, n), Valid: make([]bool, n), Advantages: make([]float64, n),
		},
	}
	ids := make([]string, n)
	for row := range ids {
		ids[row] = idOf(step, row)
		b.noise[row] = DrawNoise(r.cfg.Seed, step, row)
		b.rec.Delay[row] = r.cfg.Delay(step, row)
	}
	arrivals := r.cfg.Arrivals(step)
	if len(arrivals) != n || n > 0 && slices.Max(arrivals) > r.cfg.Generation {
		return nil, fmt.Errorf("%d arrivals for %d samples, or one later than the rollout's %v", len(arrivals), n, r.cfg.Generation)
	}
	err := r.loop.Declare(wire.Step{
		Step: step, Expected: int64(n), Total: true, IDs: ids,
		DeadlineMS: r.cfg.StepDeadline.Milliseconds(), OnDeadline: r.cfg.OnDeadline,
	})
	if err != nil {
		return nil, err
	}
	b.start = time.Now()
	b.rec.Rollout = b.start.Sub(r.report.Began)
	serving, ctx := errgroup.WithContext(ctx)
	serving.Go(func() error { return b.submit(ctx, arrivals) })
	serving.Go(func() error { return b.collect(ctx) })
	b.serving = serving
	return b, nil
}

// submit draws each response when its time comes, and submits it: at once, or with the
// others when the rollout has ended. It is late by what a timer is, a millisecond at most,
// and never by the sum of that.
func (b *batch) submit(ctx context.Context, arrivals []time.Duration) error {
	clock := newSleeper()
	defer clock.stop()
	order := make([]int, len(arrivals))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, c int) int { return int(arrivals[a] - arrivals[c]) })
	held := make([]*rewards.Sample, len(arrivals))
	for _, row := range order {
		if err := clock.until(ctx, b.start.Add(arrivals[row])); err != nil {
			return err
		}
		s := b.sample(row)
		if !b.cfg.Mode.Streams() {
			held[row] = s
			continue
		}
		if err := b.send(ctx, row, s, arrivals[row]); err != nil {
			return err
		}
	}
	if b.cfg.Mode.Streams() {
		return nil
	}
	if err := clock.until(ctx, b.start.Add(b.cfg.Generation)); err != nil {
		return err
	}
	for row, s := range held {
		if err := b.send(ctx, row, s, b.cfg.Generation); err != nil {
			return err
		}
	}
	return nil
}

// sample draws a row's response.
func (b *batch) sample(row int) *rewards.Sample {
	step, prompt := b.rec.Step, row/b.cfg.Group
	b.rec.Responses[row] = b.theta.Response(&b.noise[row])
	index := int64(row)
	return &rewards.Sample{
		ID: idOf(step, row), Step: step, Index: &index,
		UID: strconv.FormatInt(step, 10) + "/p" + strconv.Itoa(prompt), GroupSize: b.cfg.Group,
		Prompt: "prompt " + strconv.Itoa(prompt), Response: b.rec.Responses[row],
		GroundTruth: b.truth(row),
	}
}

func (b *batch) truth(row int) json.RawMessage {
	return b.cfg.Truth(b.rec.Step, row, b.rec.Delay[row])
}

func (b *batch) send(ctx context.Context, row int, s *rewards.Sample, planned time.Duration) error {
	b.rec.Planned[row] = b.rec.Rollout + planned
	b.rec.Submitted[row] = b.rec.Rollout + time.Since(b.start)
	if _, err := b.loop.Submit(ctx, s, b.cfg.SampleDeadline); err != nil {
		return fmt.Errorf("sample %q: %w", s.ID, err)
	}
	return nil
}

// askMS is how long the server waits at a time for the next chunk.
const askMS = 30_000

// collect fetches rewards beside everything else that the trainer does, so that a chunk is
// there when the update before it has ended.
func (b *batch) collect(ctx context.Context) error {
	defer close(b.chunks)
	take := wire.Fetch{Step: b.rec.Step, Order: b.cfg.Order, WaitMS: askMS}
	if b.cfg.Mode.Pipelines() {
		take.Groups = int64(b.cfg.Prompts / b.cfg.MiniBatches)
	}
	for chunk, err := range b.loop.Chunks(ctx, take) {
		if err != nil {
			return err
		}
		select {
		case b.chunks <- chunk:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// next waits for the next chunk; false: there is no more, and join says why.
func (b *batch) next() (*wire.Rewards, bool) {
	chunk, more := <-b.chunks // collect closes it at the end of its context
	return chunk, more
}

// join waits for what serves the batch and returns its first error.
func (b *batch) join() error {
	if b == nil {
		return nil
	}
	return b.serving.Wait()
}

// take books a chunk: rewards, and the advantages of its groups. It returns its rows in
// their order.
func (b *batch) take(chunk *wire.Rewards) ([]int, error) {
	if len(chunk.Scores) != len(chunk.IDs) || len(chunk.Valid) != len(chunk.IDs) {
		return nil, fmt.Errorf("chunk %d has %d ids, %d rewards and %d marks", chunk.Chunk, len(chunk.IDs), len(chunk.Scores), len(chunk.Valid))
	}
	rec := &b.rec
	rec.State = chunk.State
	rec.Without = append(rec.Without, chunk.Without...)
	rows := make([]int, len(chunk.IDs))
	for i, id := range chunk.IDs {
		row, err := rowOf(id, rec.Step, len(b.noise))
		if err != nil {
			return nil, err
		}
		rows[i] = row
		if chunk.Valid[i] && chunk.Scores[i] != nil {
			rec.Rewards[row], rec.Valid[row] = *chunk.Scores[i], true
		}
	}
	slices.Sort(rows)
	group := b.cfg.Group
	for i, row := range rows {
		if first := row / group * group; i == 0 || rows[i-1] < first { // once for each group
			copy(rec.Advantages[first:], Advantages(rec.Rewards[first:first+group], rec.Valid[first:first+group]))
		}
	}
	return rows, nil
}

// update learns from some rows.
func (b *batch) update(theta *Theta, rows []int) {
	advantages, noise := make([]float64, len(rows)), make([]Noise, len(rows))
	for i, row := range rows {
		advantages[i], noise[i] = b.rec.Advantages[row], b.noise[row]
	}
	theta.Update(advantages, noise)
	b.rec.Batches = append(b.rec.Batches, rows)
}
