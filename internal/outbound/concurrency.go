package outbound

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Upstream and Breadth say how many calls of a scorer are executed at a time.
var (
	_ rewards.Concurrent          = (*Upstream)(nil)
	_ rewards.ConcurrencyReasoner = (*Upstream)(nil)
)

// Concurrency is how many requests this process may have in flight now: UpstreamConfig's
// Concurrency, or of a fleet this process's share of it.
func (g *Upstream) Concurrency() int { return g.underWay.bound() }

// ConcurrencyReason names the upstream, whom it shares its limits with, and the rates that
// hold besides.
func (g *Upstream) ConcurrencyReason() string {
	why := rewards.Count(g.cfg.Concurrency, "request") + " at a time to " + g.cfg.Name
	if m := g.member.Load(); m != nil {
		processes, _ := m.figures(time.Now())
		why = fmt.Sprintf("its share of %s, for %s together", why, rewards.Count(max(processes, 1), "process"))
		if processes < 2 {
			why = "its share of " + rewards.Count(g.cfg.Concurrency, "request") + " at a time to " + g.cfg.Name
		}
	}
	if rates := g.cfg.rates(); rates != "" {
		why += ", and at most " + rates
	}
	return why
}

// Breadth is how many requests one call of a scorer has in flight: that of a judge asks
// about every rubric and frame, that of a comparison about many pairs. Of 256 requests at
// a time a scorer whose calls have 16 each executes 16 calls. More would not be faster, but
// each of them would take longer, up to its timeout.
//
// It is the mean over the latest calls. The zero value knows of none, and counts one
// request a call.
type Breadth struct {
	mean atomic.Uint64 // the bits of a float64; 0: no call was seen
}

// breadthFade is the weight of the latest call in the mean: 16 calls decide.
const breadthFade = 1.0 / 16

// Saw notes a call that has n requests in flight.
func (b *Breadth) Saw(n int) {
	for {
		bits := b.mean.Load()
		mean := float64(max(n, 1))
		if bits != 0 {
			old := math.Float64frombits(bits)
			mean = old + (mean-old)*breadthFade
		}
		if b.mean.CompareAndSwap(bits, math.Float64bits(mean)) {
			return
		}
	}
}

// Mean is the number of requests of a call, 1 or more.
func (b *Breadth) Mean() float64 {
	if bits := b.mean.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return 1
}

// Calls is how many calls requests at a time are enough for, rounded up: a call's last
// requests leave room.
func (b *Breadth) Calls(requests int) int { return int(math.Ceil(float64(requests)/b.Mean() - slack)) }

// Reason adds to why there are so many requests how many of them a call has.
func (b *Breadth) Reason(why string) string {
	if mean := b.Mean(); mean > 1 {
		return fmt.Sprintf("%s, and a call has about %.1f in flight", why, mean)
	}
	return why
}
