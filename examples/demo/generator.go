package demo

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Plan contains the simulated GPU and the finish time of each sample. It behaves like a FlowGRPO
// rollout: whole prompt groups are assigned to the GPUs in turn, a GPU makes one picture after
// another, and no two pictures take the same time.
type Plan struct {
	// GPU[i] is the GPU that makes sample i.
	GPU []int
	// Finished[i] is the finish time of sample i as a share of the rollout, 0…1. The maximum is
	// exactly 1.
	Finished []float64
	gpus     int
}

// NewPlan draws a plan from a seed for samples with the given prompt groups. The same seed results
// in the same plan.
func NewPlan(uids []string, gpus int, seed uint64) Plan {
	p := Plan{GPU: make([]int, len(uids)), Finished: make([]float64, len(uids)), gpus: gpus}
	draw := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a simulation, not a secret
	speed, clock := make([]float64, gpus), make([]float64, gpus)
	for i := range speed {
		speed[i] = 0.95 + 0.1*draw.Float64()
	}
	dealt := map[string]int{}
	for i, uid := range uids {
		if _, ok := dealt[uid]; !ok {
			dealt[uid] = len(dealt) % gpus
		}
		gpu := dealt[uid]
		clock[gpu] += speed[gpu] * (0.7 + 0.6*draw.Float64()) // a picture, in units of the mean
		p.GPU[i], p.Finished[i] = gpu, clock[gpu]
	}
	for last, i := slices.Max(clock), 0; i < len(p.Finished); i++ {
		p.Finished[i] /= last
	}
	return p
}

// Play runs the simulated rollout: finished is called for each sample at its time after start, from
// one goroutine per GPU. Play returns when the last sample is finished, or with the first error of
// finished or of ctx.
func (p Plan) Play(ctx context.Context, start time.Time, length time.Duration, finished func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for gpu := range p.gpus {
		g.Go(func() error {
			timer := time.NewTimer(0)
			defer timer.Stop()
			for i := range p.GPU {
				if p.GPU[i] != gpu {
					continue
				}
				timer.Reset(time.Until(start.Add(time.Duration(p.Finished[i] * float64(length)))))
				select {
				case <-timer.C:
				case <-ctx.Done():
					return ctx.Err()
				}
				if err := finished(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
