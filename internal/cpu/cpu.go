// Package cpu limits the number of concurrent computations of scorers in Go to the number of CPUs,
// and shares the CPUs among tenants by weight. If one tenant has many texts, another tenant waits
// only for the running computations, not for the waiting ones.
package cpu

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/rewards"
)

// all is the gate of the process: an executor for each CPU that it may use.
var all = sync.OnceValue(func() *fair.Gate { return fair.NewGate(runtime.GOMAXPROCS(0)) }) //nolint:gochecknoglobals // there is one process

type key struct{}

// With returns a context whose computations wait at the gate g. It is for tests with fake time,
// which must not wait for one another.
func With(ctx context.Context, g *fair.Gate) context.Context {
	return context.WithValue(ctx, key{}, g)
}

// slice is how long a computation has its CPU before it lets another tenant have it.
const slice = 2 * time.Millisecond

// held is a CPU that a computation has.
type held struct {
	gate   *fair.Gate
	tenant fair.Tenant
	turn   fair.Turn // the zero value while it has none
	since  time.Time
}

var _ rewards.Turn = (*held)(nil)

func (h *held) take(ctx context.Context) (err error) {
	h.turn, err = h.gate.Acquire(ctx, h.tenant)
	h.since = time.Now()
	return err
}

func (h *held) release() {
	h.turn.Release()
	h.turn = fair.Turn{}
}

// Pause implements rewards.Turn.
func (h *held) Pause() (resume func(ctx context.Context) error) {
	h.release()
	return h.take
}

// Yield implements rewards.Turn.
func (h *held) Yield(ctx context.Context) error {
	if time.Since(h.since) < slice {
		return nil
	}
	if h.since = time.Now(); !h.turn.Overtaken() {
		return nil
	}
	return h.Pause()(ctx)
}

// Take waits for a CPU. The caller computes with the context work, and calls done at the end.
// Meanwhile the caller must wait only inside rewards.Aside, for pixels and for the memory to decode
// them. The error has a blame.
func Take(ctx context.Context) (work context.Context, done func(), err error) {
	h := &held{tenant: fair.Tenant(rewards.TenantOf(ctx))}
	if h.gate, _ = ctx.Value(key{}).(*fair.Gate); h.gate == nil {
		h.gate = all()
	}
	if err := h.take(ctx); err != nil {
		return ctx, nil, rewards.Ended(ctx, false, rewards.BlameReward, err)
	}
	return rewards.WithTurn(ctx, h), h.release, nil
}

// Start is like Take for a scorer that only computes: the time limit of its component also starts
// when the CPU is available.
func Start(ctx context.Context) (work context.Context, done func(), err error) {
	work, release, err := Take(ctx)
	if err != nil {
		return ctx, nil, err
	}
	work, cancel := rewards.Start(work)
	return work, func() {
		cancel()
		release()
	}, nil
}
