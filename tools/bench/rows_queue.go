package main

import (
	"context"
	"fmt"
)

// The issue's lines.
const (
	lineIdle   = "100 profiles × 100 workers idle: ≤ 5 % of a core at the broker and ≤ 5 % at the gateway"
	lineLeases = "100 workers × 256 running: the broker's CPU for leases stated"
)

// The size of the fleet.
const (
	queueWorkers  = 100
	queueProfiles = 100
	queuePlaces   = 256
)

// overQueue is what it costs to bring tickets about where there are none, and to keep those that
// are with workers.
func overQueue() Suite {
	idle := fmt.Sprintf("idle%dx%d", queueProfiles, queueWorkers)
	leases := fmt.Sprintf("leases%dx%d", queueWorkers, queuePlaces)
	beside := []string{"fleet_cores", "foreign_cores"}
	return Suite{
		Name: "queue", Apart: true,
		About: fmt.Sprintf("Processes of their own: nats-server, the program rewardloop as a gateway without workers, and in the bench %d workers with a connection each, of which the "+
			"others cannot tell that they share a process. Figures are cores that a process kept busy. idle: each worker serves %d profiles with %d places, announces itself once a second, "+
			"and nobody sends anything; it counts from 42 s after all have joined, when every queue has been asked for its first ticket. leases: %d workers hold %d samples each that take "+
			"longer than the measurement; the figure is what the broker computes more than with the same workers idle; a lease is extended when it is a third of 15 s old, and each "+
			"whole second that is as long after. fleet_cores is what the bench itself computed, foreign_cores everybody else.",
			queueWorkers, queueProfiles, queuePlaces, queueWorkers, queuePlaces),
		Experiments: []Experiment{
			{
				Name:  idle,
				Setup: func(ctx context.Context, o Options) (Trial, error) { return newIdleTrial(ctx, o) },
				Rows: []Row{
					{Name: "broker", Issue: lineIdle, Unit: "cores", Value: reading("broker_cores"), Target: atMost(0.05), Beside: beside},
					{Name: "gateway", Issue: lineIdle, Unit: "cores", Value: reading("gateway_cores"), Target: atMost(0.05)},
				},
			},
			{
				Name:  leases,
				Setup: func(ctx context.Context, o Options) (Trial, error) { return newLeaseTrial(ctx, o) },
				Rows: []Row{{
					Name: "broker", Issue: lineLeases, Unit: "cores", Value: difference("running_cores", "idle_cores"),
					Beside: append([]string{"running_cores", "idle_cores", "extensions_per_s"}, beside...),
				}},
			},
		},
	}
}
