package pool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

var (
	errBroken = errors.New("broken")

	ocr   = infer.Model{Name: "ocr", Path: "ocr.onnx", Device: "cpu"}
	judge = infer.Model{Name: "judge", Path: "judge.onnx", Device: "cpu"}
)

// fake is an opener and the runner it opens. Its fields are set before the pool is
// used. An item holds one number x, and y = 2x+1 is the answer.
type fake struct {
	slots int
	// cost is how long a batch takes; default 10 ms.
	cost func(m infer.Model, b int) time.Duration
	// spoil changes an answer before it is given, or fails it.
	spoil func(m infer.Model, b infer.Batch, out []infer.Tensor) ([]infer.Tensor, error)
	// open, load and close come before opening, loading and closing.
	open  func(ctx context.Context, device string) error
	load  func(ctx context.Context, m infer.Model) error
	close func(ctx context.Context) error
	// unload comes before a model is unloaded, hold before a restart.
	unload func(m infer.Model) error
	hold   func(ctx context.Context) error
	info   infer.Info

	mu                   sync.Mutex
	batches              [][]string // the names of each batch, in the order they began
	running, peak        int
	opens, loads, closes int
	unloads, restarts    int
	cancelled            int
}

func (f *fake) Open(ctx context.Context, device string) (pool.Runner, error) {
	f.mu.Lock()
	f.opens++
	f.mu.Unlock()
	if f.open != nil {
		if err := f.open(ctx, device); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fake) Slots() int { return f.slots }

func (f *fake) Load(ctx context.Context, m infer.Model) (infer.Info, error) {
	f.mu.Lock()
	f.loads++
	f.mu.Unlock()
	if f.load != nil {
		if err := f.load(ctx, m); err != nil {
			return infer.Info{}, err
		}
	}
	return f.info, nil
}

func (f *fake) Unload(_ context.Context, m infer.Model) error {
	f.mu.Lock()
	f.unloads++
	f.mu.Unlock()
	if f.unload != nil {
		return f.unload(m)
	}
	return nil
}

func (f *fake) Restart(ctx context.Context) error {
	f.mu.Lock()
	f.restarts++
	f.mu.Unlock()
	if f.hold != nil {
		return f.hold(ctx)
	}
	return nil
}

func (f *fake) Run(ctx context.Context, m infer.Model, b infer.Batch) ([]infer.Tensor, error) {
	b.Began()
	f.mu.Lock()
	f.batches = append(f.batches, b.Names)
	f.running++
	f.peak = max(f.peak, f.running)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()
	d := 10 * time.Millisecond
	if f.cost != nil {
		d = f.cost(m, len(b.Names))
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		f.mu.Lock()
		f.cancelled++
		f.mu.Unlock()
		return nil, ctx.Err()
	}
	out := infer.Floats("y", make([]float32, len(b.Names)), len(b.Names), 1)
	n := len(b.Inputs[0].F32) / len(b.Names)
	for i := range b.Names {
		if n > 0 { // a language model's input holds no number x
			out.F32[i] = 2*b.Inputs[0].F32[i*n] + 1
		}
	}
	if f.spoil != nil {
		return f.spoil(m, b, []infer.Tensor{out})
	}
	return []infer.Tensor{out}, nil
}

func (f *fake) Close(ctx context.Context) error {
	f.mu.Lock()
	f.closes++
	f.mu.Unlock()
	if f.close != nil {
		return f.close(ctx)
	}
	return nil
}

// ran are the batches so far.
func (f *fake) ran() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([][]string(nil), f.batches...)
}

// sizes are the batches' sizes so far.
func (f *fake) sizes() []int {
	var out []int
	for _, b := range f.ran() {
		out = append(out, len(b))
	}
	return out
}

// linear is S(b) = a + c·b.
func linear(a, c time.Duration) func(infer.Model, int) time.Duration {
	return func(_ infer.Model, b int) time.Duration { return a + c*time.Duration(b) }
}

// number makes the request of x; shape tells batch queues apart.
func number(x float32, shape ...int) infer.Request {
	if len(shape) == 0 {
		shape = []int{1}
	}
	data := make([]float32, infer.Elements(shape))
	data[0] = x
	return infer.Request{Name: fmt.Sprint(x), Inputs: []infer.Tensor{infer.Floats("x", data, shape...)}}
}

// stage is a pool on a fake in a bubble of fake time.
type stage struct {
	*pool.Pool
	fake *fake
}

// onStage runs a test on a pool in a bubble, and closes the pool.
func onStage(t *testing.T, f *fake, cfg pool.Config, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		if f.slots == 0 {
			f.slots = 1
		}
		p, err := pool.New(cfg, f)
		require.NoError(t, err)
		test(t, &stage{Pool: p, fake: f})
		require.NoError(t, p.Close(context.Background()))
	})
}

func (s *stage) model(t *testing.T, m infer.Model) *pool.Model {
	t.Helper()
	h, err := s.Model(m, pool.ModelOptions{})
	require.NoError(t, err)
	return h
}

// call is an Infer under way.
type call struct {
	done chan struct{}
	out  []infer.Tensor
	err  error
	took time.Duration
}

// begin starts an Infer on a goroutine of its own, and returns once it waits.
func begin(ctx context.Context, m *pool.Model, req infer.Request) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		start := time.Now()
		c.out, c.err = m.Infer(ctx, req)
		c.took = time.Since(start)
	}()
	synctest.Wait()
	return c
}

// many starts an Infer for each of the numbers from to to-1.
func many(ctx context.Context, m *pool.Model, from, to int) []*call {
	var out []*call
	for x := from; x < to; x++ {
		out = append(out, begin(ctx, m, number(float32(x))))
	}
	return out
}

// is expects the answer of x.
func (c *call) is(t *testing.T, x float32) {
	t.Helper()
	<-c.done
	require.NoError(t, c.err)
	require.Len(t, c.out, 1)
	assert.Equal(t, infer.Floats("y", []float32{2*x + 1}, 1), c.out[0])
}

// fails expects an error that wraps target.
func (c *call) fails(t *testing.T, target error) {
	t.Helper()
	<-c.done
	require.ErrorIs(t, c.err, target)
	assert.Nil(t, c.out)
}

func (c *call) pending() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// warm runs enough items one after the other for the batch queue to know what one costs.
func warm(t *testing.T, m *pool.Model) {
	t.Helper()
	for range 2 {
		begin(t.Context(), m, number(0)).is(t, 0)
	}
}

// blocked begins an item of another shape, which holds a slot for the length of
// a run.
func blocked(ctx context.Context, m *pool.Model) *call { return begin(ctx, m, number(0, 1, 1)) }

// total is the sum over a pool's models.
func (s *stage) total() pool.Counts {
	var sum pool.Counts
	for _, d := range s.Stats().Devices {
		for _, m := range d.Models {
			sum.Items += m.Total.Items
			sum.Failed += m.Total.Failed
			sum.Expired += m.Total.Expired
			sum.Left += m.Total.Left
			sum.Batches += m.Total.Batches
			sum.Faults += m.Total.Faults
			sum.Splits += m.Total.Splits
			sum.Retries += m.Total.Retries
		}
	}
	return sum
}
