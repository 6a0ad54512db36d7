package cpu_test

import (
	"context"
	"testing"

	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/rewards"
)

// BenchmarkTake is what a CPU that is free costs a scorer that computes.
func BenchmarkTake(b *testing.B) {
	ctx, cancel := context.WithCancel(rewards.WithTenant(b.Context(), rewards.Tenant{Profile: "default", Run: "run-2024-05-17"}))
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		_, done, err := cpu.Take(ctx)
		if err != nil {
			b.Fatal(err)
		}
		done()
	}
}
