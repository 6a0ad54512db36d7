package loop_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// What keeps a deployment from ever serving a fresh client again, though no process has ended,
// is noticed by the phase that closes each history.
func TestWhatStandsStillForEverIsCaughtAfterTheLastFault(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]struct {
		source func(workers.Source, *atomic.Bool) workers.Source
		queue  func(rig.Queue, *atomic.Bool) rig.Queue
		spool  bool
		barred bool
		says   string // "": nothing is planted, and the phase passes
	}{
		"nothing": {},
		"a place that is lost with each call": {
			source: func(s workers.Source, broken *atomic.Bool) workers.Source { return &keeper{s, broken} },
			says:   "has no results",
		},
		"a wake-up that is lost": {
			source: func(s workers.Source, broken *atomic.Bool) workers.Source { return &sleeper{s, broken} },
			says:   "has no results",
		},
		"a ticket that nobody may take": {
			queue: func(e rig.Queue, broken *atomic.Bool) rig.Queue { return &avoider{e, broken} },
			says:  "has no results",
		},
		"credit that is never granted": {barred: true, says: "may not send all its samples"},
		"a disk that stays full":       {spool: true, says: "has no results"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{seed: 3, tries: map[string]int{}}
				manager, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "hash", Weight: 1, Scorer: w, Required: true}}, Timeout: componentTimeout})
				require.NoError(t, err)
				var broken atomic.Bool
				queue := memqueue.New(3, 3*time.Second)
				o := rig.Options{
					Loop:    loop.Config{SampleTimeout: 10 * time.Minute, Gateway: "g", CreditBytes: 64 << 10, MessageBytes: 16 << 10, RepublishAfter: 2 * time.Second},
					Worker:  rig.Settings{Places: 2, Heartbeat: time.Second},
					Workers: 2, Queue: queue, Source: func(id string) workers.Source { return queue.NewSource(id) },
					Profiles: map[string]*rewards.Manager{"": manager},
				}
				if plant.queue != nil {
					o.Queue = plant.queue(queue, &broken)
				}
				if plant.source != nil {
					o.Source = func(id string) workers.Source { return plant.source(queue.NewSource(id), &broken) }
				}
				if plant.spool {
					o.Spool = full{}
				}
				r := rig.New(t, o)
				time.Sleep(time.Second)
				broken.Store(true)
				err = freshServed(t, w, r, plant.barred)
				broken.Store(false)
				r.Stop()
				queue.Close()
				time.Sleep(10 * time.Second)
				if plant.says == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, plant.says)
			})
		})
	}
}

// keeper takes tickets and hands none to its worker.
type keeper struct {
	workers.Source

	broken *atomic.Bool
}

// Take implements workers.Source.
func (k *keeper) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	leases, err := k.Source.Take(ctx, queue, n)
	if k.broken.Load() {
		return nil, err
	}
	return leases, err
}

// sleeper is not woken when a ticket comes.
type sleeper struct {
	workers.Source

	broken *atomic.Bool
}

// Take implements workers.Source.
func (s *sleeper) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	for s.broken.Load() {
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	return s.Source.Take(ctx, queue, n)
}

// avoider publishes tickets that all workers are to avoid.
type avoider struct {
	rig.Queue

	broken *atomic.Bool
}

// Publish implements loop.Queue.
func (a *avoider) Publish(ctx context.Context, t wire.Ticket) error {
	if a.broken.Load() {
		t.Avoid = nil
		for _, w := range a.Workers() {
			t.Avoid = append(t.Avoid, w.ID)
		}
	}
	return a.Queue.Publish(ctx, t)
}

// full is a disk that takes nothing.
type full struct{}

func (full) Put(spool.Record) error               { return spool.ErrFull }
func (full) Later(spool.Record)                   {}
func (full) Trouble() error                       { return spool.ErrFull }
func (full) Flush() error                         { return spool.ErrFull }
func (full) Each(func(k *spool.Kept) error) error { return nil }
