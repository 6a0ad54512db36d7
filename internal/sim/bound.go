package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrLoad is wrapped by every error about invalid release and service times.
var ErrLoad = errors.New("sim: load cannot be scheduled")

// LowerBound returns F*, a time before which no schedule can have scored all samples.
//
// g[i] is the time at which sample i leaves the generator, and r[i] the time that one server needs
// for it, both in seconds, finite and not negative. With W servers and the samples numbered in
// order of release,
//
//	F* = max( maxᵢ (gᵢ + rᵢ), maxₖ (gₖ + Σ_{j≥k} rⱼ / W) ).
//
// Proof. (a) Sample i cannot start before gᵢ and takes rᵢ on the server that finishes it, so it is
// not scored before gᵢ + rᵢ. (b) Samples k, k+1, … are all released at gₖ or later, so none of
// their work is done before gₖ; W servers do at most W seconds of work per second, so it is not all
// done before gₖ + Σ_{j≥k} rⱼ/W. Neither step makes an assumption about the policy: it may use the
// future, interrupt and move samples. ∎
//
// For one server the second component is the finish time of a first-in first-out queue, which
// therefore reaches the bound.
func LowerBound(g, r []float64, servers int) (float64, error) {
	if err := checkLoad(g, r, servers); err != nil {
		return 0, err
	}
	return bound(g, r, r, byRelease(g), 1, float64(servers)), nil
}

// LowerBoundSpeeds returns F* for servers with different speeds: server j does speeds[j] seconds of
// work per second. With S the sum of the speeds and s the largest,
//
//	F* = max( maxᵢ (gᵢ + rᵢ/s), maxₖ (gₖ + Σ_{j≥k} rⱼ / S) );
//
// the proof is the same. The bound assumes attempts that take exactly r. It also holds with
// additional random stragglers or failures, because they only add work.
func LowerBoundSpeeds(g, r, speeds []float64) (float64, error) {
	if err := checkLoad(g, r, len(speeds)); err != nil {
		return 0, err
	}
	if err := checkSpeeds(speeds); err != nil {
		return 0, err
	}
	fastest, total := rate(speeds)
	return bound(g, r, r, byRelease(g), fastest, total), nil
}

// bound is F* of the samples in order, which is that of their release: alone a
// sample takes alone/fastest seconds, and it uses work/total seconds of the pool.
func bound(g, alone, work []float64, order []int, fastest, total float64) float64 {
	end, left := 0.0, 0.0
	for _, i := range slices.Backward(order) {
		left += work[i]
		end = max(end, g[i]+alone[i]/fastest, g[i]+left/total)
	}
	return end
}

// rate returns the fastest of the speeds and their sum.
func rate(speeds []float64) (fastest, total float64) {
	for _, s := range speeds {
		total += s
	}
	return slices.Max(speeds), total
}

func checkSpeeds(speeds []float64) error {
	for i, s := range speeds {
		if !(s >= minSpeed && s <= 1/minSpeed) { // refuses NaN
			return fmt.Errorf("%w: server %d has speed %v, must be %v…%v", ErrLoad, i, s, minSpeed, 1/minSpeed)
		}
	}
	return nil
}

// minSpeed keeps r/s finite and worth a simulation.
const minSpeed = 1e-6

// byRelease lists the samples in order of release, equal ones in order of index.
func byRelease(g []float64) []int {
	order := make([]int, len(g))
	for i := range order {
		order[i] = i
	}
	if slices.IsSorted(g) {
		return order
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g[a], g[b]) })
	return order
}

func checkLoad(g, r []float64, servers int) error {
	if servers < 1 {
		return fmt.Errorf("%w: %d servers, need at least 1", ErrLoad, servers)
	}
	if len(g) != len(r) {
		return fmt.Errorf("%w: %d release times but %d service times", ErrLoad, len(g), len(r))
	}
	if len(g) == 0 {
		return fmt.Errorf("%w: no samples", ErrLoad)
	}
	for i := range g {
		if !IsTime(g[i]) || !IsTime(r[i]) {
			return fmt.Errorf("%w: sample %d is released at %v s and takes %v s; both must be finite and not negative", ErrLoad, i, g[i], r[i])
		}
	}
	return nil
}

// IsTime reports whether v is valid as a time or a duration of a step, from 0 to 1e12 s. A larger
// value (30,000 years) would be a mistake in the unit, and the sum of a million such values is
// finite.
func IsTime(v float64) bool { return v >= 0 && v <= maxTime } // false for NaN

const maxTime = 1e12
