package workers_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// session is a device that executes one call at a time, for 50 ms each.
type session struct{ gate *fair.Gate }

func (session) Concurrency() int { return 1 }

func (s session) Score(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
	turn, err := s.gate.Acquire(ctx, fair.Tenant(rewards.TenantOf(ctx)))
	if err != nil {
		return rewards.Score{}, err
	}
	defer turn.Release()
	return rewards.Score{Value: 1}, pause(ctx, 50*time.Millisecond)
}

// depot is a source that has tickets of some queues, 5 ms after they are asked for. The names
// of the queues are those of the profiles.
type depot struct {
	ferry

	weights map[string]float64

	mu     sync.Mutex
	shut   map[string]bool // queues without tickets; guarded by mu
	asked  map[string]int  // the most that was asked for at a time; guarded by mu
	under  map[string]int  // guarded by mu
	most   map[string]int  // of under; guarded by mu
	scored map[string]int  // guarded by mu
}

func (d *depot) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	d.mu.Lock()
	d.asked[queue] = max(d.asked[queue], n)
	shut := d.shut[queue]
	d.mu.Unlock()
	if err := pause(ctx, 5*time.Millisecond); err != nil || shut {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.under[queue]++
	d.most[queue] = max(d.most[queue], d.under[queue])
	return []workers.Lease{parcel{d, queue}}, nil
}

func (d *depot) Finish(_ context.Context, t wire.Ticket, _ *wire.Result) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scored[t.Reward]++
	d.under[t.Reward]--
	return nil
}

// counted returns what was scored since the last time, and the most samples that the worker
// had of a profile at a time.
func (d *depot) counted() (scored, most map[string]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	scored, most = d.scored, d.most
	d.scored, d.most = map[string]int{}, map[string]int{}
	return scored, most
}

// parcel is a lease of the depot's.
type parcel struct {
	*depot

	reward string
}

func (p parcel) Ticket() wire.Ticket {
	t := p.ferry.Ticket()
	t.Reward, t.Weight = p.reward, p.weights[p.reward]
	return t
}

func (p parcel) Return(time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under[p.reward]--
}

func TestOneSampleMoreOfEachProfileWaitsWhereSeveralShareAnExecutorSoThatWeightsHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &depot{
			ferry: ferry{t: t, reaches: always}, weights: map[string]float64{"light": 1, "heavy": 3}, shut: map[string]bool{},
			asked: map[string]int{}, under: map[string]int{}, most: map[string]int{}, scored: map[string]int{},
		}
		device, serves := session{fair.NewGate(1)}, map[string]workers.Profile{}
		for name := range d.weights {
			m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "reads", Weight: 1, Required: true, Scorer: device}}})
			require.NoError(t, err)
			serves[name] = workers.Profile{Manager: m, Queue: name}
		}
		w, err := workers.New(workers.Options{Config: workers.Config{ID: "w"}, Source: d, Gateway: d, Profiles: serves})
		require.NoError(t, err)
		d.shut["light"] = true
		w.Start(t.Context())
		time.Sleep(10 * time.Second)
		scored, most := d.counted()
		require.InDelta(t, 10_000/55, scored["heavy"], 2)
		assert.Equal(t, 1, most["heavy"], "alone it has no sample that waits")

		d.mu.Lock()
		d.shut["light"] = false
		d.mu.Unlock()
		time.Sleep(time.Second)
		d.counted()
		time.Sleep(time.Minute)
		scored, most = d.counted()
		assert.InEpsilon(t, 3, float64(scored["heavy"])/float64(scored["light"]), .05)
		assert.InDelta(t, 60_000/50, scored["heavy"]+scored["light"], 2, "the device is never idle")
		assert.Equal(t, map[string]int{"light": 2, "heavy": 2}, most)
		assert.Equal(t, map[string]int{"light": 1, "heavy": 1}, d.asked, "the one that waits is asked for when the other has begun")

		d.mu.Lock()
		d.shut["heavy"] = true
		d.mu.Unlock()
		time.Sleep(2 * time.Second)
		d.counted()
		time.Sleep(10 * time.Second)
		_, most = d.counted()
		assert.Equal(t, 1, most["light"], "alone again")
		w.Stop()
		require.Zero(t, d.buffers.Live())
	})
}
