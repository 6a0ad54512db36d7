package sim

import (
	"container/heap"
	"slices"
)

// Schedule contains the times at which the samples were scored under a policy. All slices are
// indexed by sample, in the order of the input; times are seconds since the beginning of the step.
type Schedule struct {
	Released []float64
	Started  []float64
	Finished []float64
	// Server is the server that scored the sample, from 0. Servers is the number of samples that
	// can be scored at the same time: the number of servers times their batch size.
	Server  []int
	Servers int
	// Attempts are all attempts of each sample; nil if each sample had exactly one.
	Attempts [][]Attempt
	// Makespan is the maximum of Finished.
	Makespan float64
}

// Exposed returns the exposed reward time: the time from the last release to the last score.
func (s Schedule) Exposed() float64 { return s.Makespan - slices.Max(s.Released) }

// IdealQueue simulates one shared first-in first-out queue without overhead: a free server takes
// the first sample at once, and a sample starts when it is released if a server is free. g and r
// are as in LowerBound. The pull dispatch of the loop is compared with IdealQueue.
func IdealQueue(g, r []float64, servers int) (Schedule, error) {
	if err := checkLoad(g, r, servers); err != nil {
		return Schedule{}, err
	}
	s := newSchedule(g, servers)
	idle := make(idleServers, servers)
	for i := range idle {
		idle[i] = freeAt{server: i}
	}
	for _, i := range byRelease(g) {
		s.run(i, idle[0].server, max(g[i], idle[0].at), r[i])
		idle[0].at = s.Finished[i]
		heap.Fix(&idle, 0)
	}
	return s, nil
}

// BatchAfterRollout simulates scoring without streaming: nothing starts before the last sample is
// generated, then an ideal queue takes the samples in the order of the batch. Released keeps the
// true release times, so that Exposed is the whole reward phase.
func BatchAfterRollout(g, r []float64, servers int) (Schedule, error) {
	if err := checkLoad(g, r, servers); err != nil {
		return Schedule{}, err
	}
	s, err := IdealQueue(slices.Repeat([]float64{slices.Max(g)}, len(g)), r, servers)
	s.Released = slices.Clone(g)
	return s, err
}

func newSchedule(g []float64, servers int) Schedule {
	return Schedule{
		Released: slices.Clone(g),
		Started:  make([]float64, len(g)),
		Finished: make([]float64, len(g)),
		Server:   make([]int, len(g)),
		Servers:  servers,
	}
}

func (s *Schedule) run(sample, server int, start, service float64) {
	s.Server[sample] = server
	s.Started[sample] = start
	s.Finished[sample] = start + service
	s.Makespan = max(s.Makespan, s.Finished[sample])
}

// idleServers is a heap: the server that is free first, the lowest number first.
type idleServers []freeAt

type freeAt struct {
	at     float64
	server int
}

func (h idleServers) Len() int      { return len(h) }
func (h idleServers) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h idleServers) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].server < h[j].server
}

// Push and Pop complete heap.Interface; the number of servers never changes.
func (h *idleServers) Push(x any) { *h = append(*h, x.(freeAt)) }

// Pop takes the last element.
func (h *idleServers) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
