package loop

import "container/heap"

// backlog is the queue of a run: a heap for each profile, so that samples which no live
// worker can score do not stand before others.
type backlog struct {
	n     int
	heaps []*profileQueue // in the order in which their profiles came; hardly ever two
}

// profileQueue is the samples of one profile.
type profileQueue struct {
	profile string
	queue   runQueue
}

// Len is how many samples wait.
func (b *backlog) Len() int { return b.n }

func (b *backlog) of(profile string) *profileQueue {
	for _, q := range b.heaps {
		if q.profile == profile {
			return q
		}
	}
	q := &profileQueue{profile: profile}
	b.heaps = append(b.heaps, q)
	return q
}

func (b *backlog) add(e *entry) {
	heap.Push(&b.of(e.profile).queue, e)
	b.n++
}

func (b *backlog) remove(e *entry) {
	if e.heapIndex >= 0 {
		heap.Remove(&b.of(e.profile).queue, e.heapIndex)
		b.n--
	}
}

// reorder is called when the order of what waits has changed.
func (b *backlog) reorder() {
	for _, q := range b.heaps {
		heap.Init(&q.queue)
	}
}

// first is the sample that is next among those of profiles that may go; nil: there is none.
func (b *backlog) first(may func(profile string) bool) *entry {
	var best *entry
	for _, q := range b.heaps {
		if len(q.queue) == 0 || !may(q.profile) {
			continue
		}
		if e := q.queue[0]; best == nil || e.before(best) {
			best = e
		}
	}
	return best
}
