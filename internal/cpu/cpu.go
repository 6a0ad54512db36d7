// Package cpu shares the CPUs of the process among what scorers compute in Go: as many
// computations run at a time as there are CPUs, and the tenants take turns by weight. A flood
// of one tenant's texts then delays another's by the computations that run, not by those that
// wait.
package cpu

import (
	"context"
	"runtime"
	"sync"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/rewards"
)

// all is the gate of the process: an executor for each CPU that it may use.
var all = sync.OnceValue(func() *fair.Gate { return fair.NewGate(runtime.GOMAXPROCS(0)) }) //nolint:gochecknoglobals // there is one process

type key struct{}

// With returns a context whose computations wait at a gate of their own. It is for tests in
// fake time, which may not wait for one another.
func With(ctx context.Context, g *fair.Gate) context.Context {
	return context.WithValue(ctx, key{}, g)
}

// Take waits for a CPU. The caller calls done when it has computed. It must not wait for
// anything meanwhile but memory to decode a picture into. The error has its blame.
func Take(ctx context.Context) (done func(), err error) {
	g, _ := ctx.Value(key{}).(*fair.Gate)
	if g == nil {
		g = all()
	}
	turn, err := g.Acquire(ctx, fair.Tenant(rewards.TenantOf(ctx)))
	if err != nil {
		return nil, rewards.Ended(ctx, false, rewards.BlameReward, err)
	}
	return turn.Release, nil
}

// Start is Take for a scorer that only computes: the time of its component starts with the
// CPU, and it computes with the context that is returned.
func Start(ctx context.Context) (work context.Context, done func(), err error) {
	release, err := Take(ctx)
	if err != nil {
		return ctx, nil, err
	}
	work, cancel := rewards.Start(ctx)
	return work, func() {
		cancel()
		release()
	}, nil
}
