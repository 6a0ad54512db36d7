package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

// What is wrong with an item, by its number: what a runner does about it follows
// from that alone, so that every answer can be foretold.
const (
	crashes = 97 // the batch it is in, always
	refused = 89 // it is no input for the model
	nanOnce = 31 // NaN the first time
	nanEver = 83
	huge    = 79 // there is no memory for it
)

// hostile is a runner that fails in all ways, sometimes for no reason.
type hostile struct {
	mu    sync.Mutex
	rand  *rand.Rand
	seen  map[int]bool
	known map[infer.Model]bool // was loaded once: it loads again
	torn  atomic.Int64         // runs whose inputs changed under way
	peak  atomic.Int64
	runs  atomic.Int64
	slots int
}

func (h *hostile) Open(context.Context, string) (pool.Runner, error) {
	if h.draw(3) == 0 {
		return nil, errBroken
	}
	return h, nil
}

func (h *hostile) Slots() int                  { return h.slots }
func (h *hostile) Close(context.Context) error { return nil }

func (h *hostile) Restart(context.Context) error             { return nil }
func (h *hostile) Unload(context.Context, infer.Model) error { return nil }

func (h *hostile) Load(_ context.Context, m infer.Model) (infer.Info, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.known[m] && h.rand.IntN(3) == 0 {
		return infer.Info{}, infer.ErrCrashed
	}
	if h.known == nil {
		h.known = make(map[infer.Model]bool)
	}
	h.known[m] = true
	return infer.Info{}, nil
}

func (h *hostile) draw(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rand.IntN(n)
}

// first says whether an item is seen for the first time.
func (h *hostile) first(x int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.seen[x]
	h.seen[x] = true
	return !was
}

func (h *hostile) Run(ctx context.Context, _ infer.Model, b infer.Batch) ([]infer.Tensor, error) {
	if n := h.runs.Add(1); n > h.peak.Load() {
		h.peak.Store(n)
	}
	defer h.runs.Add(-1)
	xs := make([]int, len(b.Names))
	width := len(b.Inputs[0].F32) / len(xs)
	for i := range xs {
		xs[i] = int(b.Inputs[0].F32[i*width])
	}
	select {
	case <-time.After(5*time.Millisecond + time.Duration(len(xs)+h.draw(5))*time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for i := range xs {
		if xs[i] != int(b.Inputs[0].F32[i*width]) {
			h.torn.Add(1)
		}
	}
	return h.answer(xs)
}

func (h *hostile) answer(xs []int) ([]infer.Tensor, error) {
	out := infer.Floats("y", make([]float32, len(xs)), len(xs))
	for i, x := range xs {
		switch {
		case x%crashes == 0:
			return nil, infer.ErrCrashed
		case x%refused == 0:
			return nil, fmt.Errorf("%w: item %d", infer.ErrInput, x)
		case x%huge == 0:
			return nil, infer.ErrMemory
		case x%nanEver == 0, x%nanOnce == 0 && h.first(x):
			out.F32[i] = float32(math.NaN())
		default:
			out.F32[i] = 2*float32(x) + 1
		}
	}
	if len(xs) > 1 { // for no reason: with a batch of one it would be the item's answer
		switch h.draw(30) {
		case 0:
			return nil, infer.ErrMemory
		case 1:
			return nil, errBroken
		case 2:
			panic("for no reason")
		}
	}
	return []infer.Tensor{out}, nil
}

// foretold is what has to become of an item whose caller stays.
func foretold(x int) error {
	switch {
	case x%crashes == 0:
		return infer.ErrCrashed
	case x%refused == 0:
		return infer.ErrInput
	case x%huge == 0:
		return infer.ErrMemory
	case x%nanEver == 0:
		return infer.ErrFault
	}
	return nil
}

// caller submits one item, perhaps leaves early, checks what it gets, and uses its
// tensors' memory for something else.
func caller(t *testing.T, m *pool.Model, x, shape int, leave time.Duration, deadline bool) {
	t.Helper()
	ctx := t.Context()
	cancel := func() {}
	switch {
	case leave > 0 && deadline:
		ctx, cancel = context.WithTimeout(ctx, leave)
	case leave > 0:
		ctx, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(leave, cancel).Stop()
	}
	defer cancel()
	req := number(float32(x), shape)
	out, err := m.Infer(ctx, req)
	req.Inputs[0].F32[0] = -1
	switch want := foretold(x); {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()): // it left
		assert.Equal(t, deadline, errors.Is(err, infer.ErrTimeout))
	case !errors.Is(err, want):
		t.Errorf("item %d: got %v, want %v", x, err, want)
	case want == nil:
		assert.Equal(t, []infer.Tensor{infer.Floats("y", []float32{2*float32(x) + 1}, []int{}...)}, out)
	}
}

// TestEveryItemGetsItsOwnAnswerWhateverHappens throws thousands of items with
// faults, deadlines and cancellations at a pool whose runner fails in all ways.
func TestEveryItemGetsItsOwnAnswerWhateverHappens(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { throw(t, seed) })
		})
	}
}

func throw(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	h := &hostile{rand: rand.New(rand.NewPCG(seed, 3)), seen: make(map[int]bool), slots: 1 + int(seed)%4}
	p, err := pool.New(pool.Config{MaxBatch: 16, QueueItems: 20 + r.IntN(100), QueueBytes: 400 + r.IntN(4000)}, h)
	require.NoError(t, err)
	var models []*pool.Model
	for _, name := range []string{"det", "rec", "judge"} {
		m, err := p.Model(infer.Model{Name: name, Path: name, Device: []string{"cpu", "cuda:0"}[len(models)%2]}, pool.ModelOptions{})
		require.NoError(t, err)
		models = append(models, m)
		for err = errBroken; err != nil; _, err = m.Info(t.Context()) { // until it loads
			time.Sleep(time.Second)
		}
	}
	const items = 2500
	var all sync.WaitGroup
	for x := 1; x <= items; x++ {
		leave := time.Duration(0)
		if r.IntN(4) == 0 {
			leave = time.Duration(1 + r.IntN(int(200*time.Millisecond)))
		}
		m, shape, deadline := models[r.IntN(len(models))], 1+r.IntN(4)*r.IntN(4), r.IntN(2) == 0
		all.Go(func() { caller(t, m, x, shape, leave, deadline) })
		switch r.IntN(40) {
		case 0:
			time.Sleep(time.Duration(r.IntN(int(200 * time.Millisecond))))
		case 1:
			p.Flush()
			_ = p.Stats()
		}
	}
	all.Wait()
	var sum, queued uint64
	for _, d := range p.Stats().Devices {
		queued += uint64(d.Queued + d.QueuedBytes + d.Waiting + d.Running)
		for _, m := range d.Models {
			sum += m.Total.Items + m.Total.Failed + m.Total.Expired + m.Total.Left
		}
	}
	assert.EqualValues(t, items, sum, "every item is counted once")
	assert.Zero(t, queued)
	assert.Zero(t, h.torn.Load(), "a run read tensors whose caller had them back")
	assert.LessOrEqual(t, h.peak.Load(), int64(2*h.slots), "two devices")
	require.NoError(t, p.Close(t.Context()))
}

// TestClosingUnderLoadAnswersEverybody closes a pool while callers stream in.
func TestClosingUnderLoadAnswersEverybody(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			onStage(t, &fake{slots: 2, cost: linear(10*ms, ms)}, pool.Config{QueueItems: 50}, func(t *testing.T, s *stage) {
				t.Helper()
				m := s.model(t, ocr)
				r := rand.New(rand.NewPCG(seed, 4))
				var all sync.WaitGroup
				var good, refused atomic.Int64
				for x := range 500 {
					pause := time.Duration(r.IntN(int(300 * time.Millisecond)))
					all.Go(func() {
						time.Sleep(pause)
						switch out, err := m.Infer(t.Context(), number(float32(x))); {
						case err == nil:
							good.Add(1)
							assert.InDelta(t, 2*x+1, out[0].F32[0], 0)
						case errors.Is(err, infer.ErrUnavailable):
							refused.Add(1)
						}
					})
				}
				time.Sleep(150 * ms)
				require.NoError(t, s.Close(t.Context()))
				all.Wait()
				assert.EqualValues(t, 500, good.Load()+refused.Load())
				assert.Positive(t, good.Load())
				assert.Positive(t, refused.Load())
			})
		})
	}
}
