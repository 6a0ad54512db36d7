package sim

import "slices"

// TrainerBound returns a number of seconds per step (TrainerRun.PerStep) that no reward pool of
// this speed can beat with this trainer, with any policy. Policy, Stragglers, Failures and backup
// requests are ignored, because they only add time.
//
// With T the rollout, L, U, O log-probabilities, update and other, M mini-batches of u = U/M, S the
// pool's speed, and F* as in LowerBound over the releases of the mode (all at T, or at the gᵢ):
//
//	batch, streaming   T' + U + O,  T' = max(F*, T+L)
//	the pipelines      max_m [ max(C*_m, T+L) + (M−m+1)·u ] + O
//	one step off       the larger of the means of T+L+U+O and Σr/S, which is also
//	                   the period of a long run
//
// where C*_m is a bound on the time at which the groups of the first m mini-batches are scored: F*
// of those rows if the order is by index; in order of completion, the m·P/M-th smallest of the
// groups' own bounds max (gᵢ + rᵢ/s), the least work of so many groups over S, and for the last
// mini-batch F*. For a device that scores batches, a single r is that of a batch of one, and r in
// sums is its part of a full batch.
func TrainerBound(cfg TrainerConfig) (float64, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return 0, err
	}
	m, _ := modeOf(cfg.Mode)
	sum, busy, work := 0.0, 0.0, 0.0
	_, total := rate(cfg.Pool.speeds())
	for k := range cfg.G {
		s := cfg.stepLoad(k, m)
		own := s.rollout + cfg.LogProb + cfg.Update + cfg.Other
		busy += own
		for _, w := range s.work {
			work += w
		}
		if !m.oneStepOff {
			sum += max(own, s.end(cfg, m)+cfg.Other)
		}
	}
	if m.oneStepOff {
		sum = max(busy, work/total)
	}
	return sum / float64(len(cfg.G)), nil
}

// stepLoad is what one step asks of the pool.
type stepLoad struct {
	g, alone, work []float64
	rollout        float64
	fastest, total float64
}

func (c TrainerConfig) stepLoad(k int, m mode) stepLoad {
	s := stepLoad{g: c.G[k], alone: c.R[k], work: c.R[k], rollout: slices.Max(c.G[k])}
	s.fastest, s.total = rate(c.Pool.speeds())
	if !m.streaming {
		s.g = slices.Repeat([]float64{s.rollout}, len(s.g))
	}
	if b := c.Pool.Batch; b.Max > 0 {
		s.alone = slices.Repeat([]float64{b.Seconds(1)}, len(s.g))
		s.work = slices.Repeat([]float64{1 / b.Rate()}, len(s.g))
	}
	return s
}

// end bounds the end of the last update.
func (s stepLoad) end(c TrainerConfig, m mode) float64 {
	ready, all := s.rollout+c.LogProb, s.bound(byRelease(s.g))
	if !m.pipeline {
		return max(ready, all) + c.Update
	}
	groups, end := len(s.g)/c.Group, 0.0
	alone, work := s.groups(c.Group)
	for n := 1; n <= c.MiniBatches; n++ {
		some := n * groups / c.MiniBatches
		var scored float64
		switch {
		case n == c.MiniBatches:
			scored = all
		case c.Order == orderIndex:
			order := byRelease(s.g)
			scored = s.bound(slices.DeleteFunc(order, func(i int) bool { return i >= some*c.Group }))
		default:
			least := 0.0
			for _, w := range work[:some] {
				least += w
			}
			scored = max(alone[some-1], slices.Min(s.g)+least/s.total)
		}
		end = max(end, max(ready, scored)+float64(c.MiniBatches-n+1)*c.Update/float64(c.MiniBatches))
	}
	return end
}

func (s stepLoad) bound(order []int) float64 {
	return bound(s.g, s.alone, s.work, order, s.fastest, s.total)
}

// groups returns the groups' own bounds and their work, each in ascending order.
func (s stepLoad) groups(size int) (alone, work []float64) {
	for i := range s.g {
		if i%size == 0 {
			alone, work = append(alone, 0), append(work, 0)
		}
		last := len(alone) - 1
		alone[last] = max(alone[last], s.g[i]+s.alone[i]/s.fastest)
		work[last] += s.work[i]
	}
	slices.Sort(alone)
	slices.Sort(work)
	return alone, work
}
