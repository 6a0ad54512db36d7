package fair_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// BenchmarkGate is what a gate costs a call for which an executor is free.
func BenchmarkGate(b *testing.B) {
	g := fair.NewGate(2)
	t := fair.Tenant{Profile: "default", Run: "run-2024-05-17", Weight: 1}
	b.ReportAllocs()
	for b.Loop() {
		turn, err := g.Acquire(b.Context(), t)
		if err != nil {
			b.Fatal(err)
		}
		turn.Release()
	}
}

// BenchmarkQueue is one call's way through a queue in which calls of so many tenants wait.
func BenchmarkQueue(b *testing.B) {
	for _, tenants := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint("tenants=", tenants), func(b *testing.B) {
			q, now := fair.NewQueue[int](), time.Now()
			all := make([]fair.Tenant, tenants)
			for i := range all {
				all[i] = fair.Tenant{Profile: "default", Run: fmt.Sprint("run ", i), Weight: float64(1 + i%3)}
				q.Push(all[i], i, now)
			}
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				c := q.First(1, now)
				q.Take(c, now)
				q.Begin(c, now)
				q.Push(all[c.Value], c.Value, now)
				q.End(c, now.Add(time.Millisecond))
			}
		})
	}
}
