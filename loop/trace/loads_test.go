package trace_test

import (
	"math/rand/v2"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// policies are all simulated schedules under one signature.
func policies() map[string]func(g, r []float64, servers int) (sim.Schedule, error) {
	return map[string]func(g, r []float64, servers int) (sim.Schedule, error){
		"ideal queue":         sim.IdealQueue,
		"batch after rollout": sim.BatchAfterRollout,
		"random blind": func(g, r []float64, servers int) (sim.Schedule, error) {
			return blind(g, r, servers, 17)
		},
	}
}

// blind is what verl does.
func blind(g, r []float64, servers int, seed uint64) (sim.Schedule, error) {
	return sim.Dispatch(g, r, sim.DispatchConfig{Servers: servers, Policy: sim.PolicyRandomBlind, Seed: seed})
}

// load draws up to 60 samples whose times are multiples of 1/64 s below 2¹⁰, so
// that all sums are exact and schedules may be compared without a tolerance.
func load(rng *rand.Rand) (g, r []float64, servers int) {
	n := 1 + rng.IntN(60)
	for range n {
		g = append(g, float64(rng.IntN(1<<12))/64)
		r = append(r, float64(rng.IntN(1<<rng.IntN(12)))/64)
	}
	return g, r, 1 << rng.IntN(5)
}
