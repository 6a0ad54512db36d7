package pool_test

import (
	"context"
	"fmt"
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

// lacksOnce are the items for which there is no memory at their first run by themselves.
const lacksOnce = 37

// rig is a machine whose devices fail in all ways that hostile does. They have memory for two models
// each, and the second serves nothing at times.
type rig struct {
	*hostile

	mu   sync.Mutex
	all  []*hostileCard
	lost atomic.Int64 // runs that met a device which served nothing
}

func (r *rig) Open(_ context.Context, device string) (pool.Runner, error) {
	c := &hostileCard{hostile: r.hostile, rig: r, device: device, here: make(map[string]bool)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, c)
	return c, nil
}

// sum adds up what the devices have counted.
func (r *rig) sum(of func(*hostileCard) int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.all {
		n += of(c)
	}
	return n
}

type hostileCard struct {
	*hostile

	rig    *rig
	device string

	mu                sync.Mutex
	here              map[string]bool // guarded by mu; the models that are loaded
	restarts, unloads int             // guarded by mu
}

// fit loads a model if there is room.
func (c *hostileCard) fit(m infer.Model) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.here[m.Name] = true; len(c.here) > 2 {
		delete(c.here, m.Name)
		return fmt.Errorf("%w: %v are loaded", infer.ErrMemory, c.here)
	}
	return nil
}

func (c *hostileCard) Load(ctx context.Context, m infer.Model) (infer.Info, error) {
	select {
	case <-time.After(time.Duration(c.draw(300)) * time.Millisecond):
	case <-ctx.Done():
		return infer.Info{}, ctx.Err()
	}
	return infer.Info{Bytes: 40}, c.fit(m)
}

func (c *hostileCard) Unload(_ context.Context, m infer.Model) error {
	time.Sleep(time.Duration(c.draw(50)) * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.here, m.Name)
	c.unloads++
	return nil
}

func (c *hostileCard) Restart(context.Context) error {
	time.Sleep(time.Duration(c.draw(1000)) * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.here)
	c.restarts++
	return nil
}

func (c *hostileCard) Run(ctx context.Context, m infer.Model, b infer.Batch) ([]infer.Tensor, error) {
	if b.Began(); m.Device != c.device {
		return nil, fmt.Errorf("%s was sent to %s", m.Device, c.device)
	}
	if c.device == "cuda:1" && time.Now().Unix()%5 == 3 { // one second in five
		c.rig.lost.Add(1)
		return nil, fmt.Errorf("%w: in quarantine", infer.ErrUnavailable)
	}
	if err := c.fit(m); err != nil { // a restart has unloaded it
		return nil, err
	}
	if x := int(b.Inputs[0].F32[0]); len(b.Names) == 1 && x%lacksOnce == 0 && c.first(-x) {
		return nil, infer.ErrMemory
	}
	return c.hostile.Run(ctx, m, b)
}

// TestEveryItemGetsItsOwnAnswerOnDevicesThatAreLostAndLackMemory throws items with faults, deadlines
// and cancellations at three models on three devices, each with room for two.
func TestEveryItemGetsItsOwnAnswerOnDevicesThatAreLostAndLackMemory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { throwAtCards(t, seed) })
		})
	}
}

func throwAtCards(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	h := &rig{hostile: &hostile{rand: rand.New(rand.NewPCG(seed, 6)), seen: make(map[int]bool), slots: 1 + int(seed)%2}}
	budget := map[string]int64{"cuda:0": 100, "cuda:1": 100, "cuda:2": 100}
	p, err := pool.New(pool.Config{MaxBatch: 16, QueueItems: 20 + r.IntN(100), QueueBytes: 400 + r.IntN(4000), Memory: budget}, h)
	require.NoError(t, err)
	var models []*pool.Model
	for name, devices := range map[string][]string{"det": {"cuda:0"}, "rec": {"cuda:0"}, "judge": cards(3), "vlm": {"cuda:2", "cuda:1", "cuda:0"}} {
		m, err := p.Model(infer.Model{Name: name, Path: name, Device: "cuda"}, pool.ModelOptions{Devices: devices})
		require.NoError(t, err)
		models = append(models, m)
	}
	const items = 2000
	var all sync.WaitGroup
	var answered atomic.Int64
	for x := 1; x <= items; x++ {
		leave := time.Duration(0)
		if r.IntN(4) == 0 {
			leave = time.Duration(1 + r.IntN(int(2*time.Second)))
		}
		m, shape, deadline := models[r.IntN(len(models))], 1+r.IntN(4)*r.IntN(4), r.IntN(2) == 0
		all.Go(func() {
			defer answered.Add(1)
			caller(t, m, x, shape, leave, deadline)
		})
		switch r.IntN(20) {
		case 0:
			time.Sleep(time.Duration(r.IntN(int(2 * time.Second))))
		case 1:
			p.Flush()
			_ = p.Stats()
		}
	}
	all.Wait()
	time.Sleep(time.Minute) // what nobody waits for any more is over, too
	var counted, left, moved, evictions, restarts uint64
	for _, d := range p.Stats().Devices {
		left += uint64(d.Queued + d.QueuedBytes + d.Waiting + d.Running) //nolint:gosec // none is negative
		evictions, restarts = evictions+d.Evictions, restarts+d.Restarts
		assert.LessOrEqual(t, d.Taken, d.Budget)
		for _, m := range d.Models {
			counted += m.Total.Items + m.Total.Failed + m.Total.Expired + m.Total.Left
			moved += m.Total.Moved
		}
	}
	t.Logf("%d of %d items counted, %d moves, %d evictions, %d restarts, %d runs met a lost device", counted, items, moved, evictions, restarts, h.lost.Load())
	assert.EqualValues(t, items, answered.Load())
	assert.LessOrEqual(t, counted, uint64(items), "no item is counted twice")
	assert.GreaterOrEqual(t, counted, uint64(items*3/4), "but those that left while a model was loaded")
	assert.Zero(t, left)
	assert.Zero(t, h.torn.Load(), "a run read tensors whose caller had them back")
	assert.EqualValues(t, h.sum(func(c *hostileCard) int { return c.unloads }), evictions)
	assert.EqualValues(t, h.sum(func(c *hostileCard) int { return c.restarts }), restarts)
	for what, n := range map[string]uint64{"moves": moved, "evictions": evictions, "restarts": restarts} {
		assert.Positive(t, n, what)
	}
	require.NoError(t, p.Close(t.Context()))
}
