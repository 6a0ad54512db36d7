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

// Concurrency returns the maximum number of requests that this process may have in flight now:
// UpstreamConfig.Concurrency, or in a fleet the share of this process.
func (g *Upstream) Concurrency() int { return g.underWay.bound() }

// ConcurrencyReason returns a description of the upstream, the processes that share its limits, and
// its rate limits.
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

// Breadth estimates how many requests one call of a scorer has in flight: a judge sends requests
// for every rubric and frame, a comparison for many pairs. With 256 requests in flight, a scorer
// whose calls have 16 requests each executes 16 calls. More calls at the same time would not be
// faster, but each of them would take longer, up to its timeout.
//
// Breadth is the mean over the latest calls. The zero value has no calls and a mean of one request
// for each call.
type Breadth struct {
	mean atomic.Uint64 // the bits of a float64; 0: no call was seen
}

// breadthFade is the weight of the latest call in the mean: 16 calls decide.
const breadthFade = 1.0 / 16

// Saw records a call that has n requests in flight.
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

// Mean returns the mean number of requests of a call, at least 1.
func (b *Breadth) Mean() float64 {
	if bits := b.mean.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return 1
}

// Calls returns how many calls use that many requests at the same time, rounded up, because the
// last requests of a call leave room.
func (b *Breadth) Calls(requests int) int { return int(math.Ceil(float64(requests)/b.Mean() - slack)) }

// Reason returns why, a reason for the number of requests, with the mean number of requests of a
// call appended if it is above 1.
func (b *Breadth) Reason(why string) string {
	if mean := b.Mean(); mean > 1 {
		return fmt.Sprintf("%s, and a call has about %.1f in flight", why, mean)
	}
	return why
}
