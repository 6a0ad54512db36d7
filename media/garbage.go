package media

import (
	"runtime"
	"runtime/metrics"
)

// This file counts what decodings have given back and the garbage collector has not freed. 16 PNGs
// of 4096×4096 pixels, one after another within a budget of 512 MiB, took 2.2 GiB without it: the
// collector waits until the heap is a multiple of what lives.

// garbageRoom is how many bytes of garbage there may be beyond the budget, so that a small budget
// does not have the collector run for each picture.
const garbageRoom = 16 << 20

// garbage is bytes that nobody uses any more, by when they came. What dies while the collector
// runs may be freed by the next run only.
type garbage struct {
	young, old int64
	going      int64 // those that the collection frees that collect has begun
	collecting bool
	cycles     uint64 // collections that had ended when young and old were looked at last
	sample     [1]metrics.Sample
}

// add counts n bytes more.
func (g *garbage) add(n int64) {
	g.age()
	g.young += n
}

// bytes is how much there is.
func (g *garbage) bytes() int64 {
	g.age()
	return g.young + g.old + g.going
}

// age forgets what was freed by collections that have ended since.
func (g *garbage) age() {
	g.sample[0].Name = "/gc/cycles/total:gc-cycles"
	metrics.Read(g.sample[:])
	now := g.sample[0].Value.Uint64()
	switch now - g.cycles {
	case 0:
		return
	case 1:
		g.old, g.young = g.young, 0
	default:
		g.old, g.young = 0, 0
	}
	g.cycles = now
}

// collect starts a collection, unless one has been started, and grants what waits when it has
// ended. The caller holds mu.
func (b *budget) collect() {
	if !b.waste.collecting {
		b.waste.begin()
		go b.finish() // ends with the collection
	}
}

// collectNow is the same, and waits for it. The caller does not hold mu.
func (b *budget) collectNow() {
	b.mu.Lock()
	begun := b.waste.collecting
	if !begun {
		b.waste.begin()
	}
	b.mu.Unlock()
	if begun {
		runtime.GC() // it ages what has come since the other began
		return
	}
	b.finish()
}

// begin notes that a collection is about to free all that there is.
func (g *garbage) begin() {
	g.going += g.young + g.old
	g.young, g.old = 0, 0
	g.collecting = true
}

func (b *budget) finish() {
	runtime.GC()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waste.going, b.waste.collecting = 0, false
	b.grant()
}
