package dispatch

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Usual feeds n service times of mean 1 to the two means that a run keeps, and returns
// for how much of the time each was within 30 % of what it settles at.
func Usual(n int, draw func() float64) (usual, mean float64) {
	r := newRun("run", 1)
	var us, ms []float64
	for range n {
		d := time.Duration(draw() * float64(time.Second))
		r.Observe(d)
		r.ObservePace("w", d)
		us, ms = append(us, r.pace.usual.value), append(ms, r.mean.Seconds())
	}
	within := func(xs []float64) float64 {
		middle := slices.Sorted(slices.Values(xs))[len(xs)/2]
		k := 0
		for _, x := range xs {
			if math.Abs(x/middle-1) <= 0.3 {
				k++
			}
		}
		return float64(k) / float64(len(xs))
	}
	return within(us), within(ms)
}

// PacesOf observes n workers one after the other, and returns how many are remembered, and
// whether the first and the last are.
func PacesOf(n int) (kept int, first, last bool) {
	p := newPaces()
	for i := range n {
		p.observe(fmt.Sprint(i), time.Second)
	}
	return len(p.by), p.by["0"] != nil, p.by[fmt.Sprint(n-1)] != nil
}
