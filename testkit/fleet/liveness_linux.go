package fleet

import (
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/testkit/liveness"
)

// freshPerSecond is how fast the client of Lives sends: faster than its samples can be scored.
const freshPerSecond = 2000

// Lives ends a test of faults: after the last fault, the samples of a new client must all be
// scored, once and correctly, within liveness.Bound. r is how long the last fault may have an
// effect. The test fails after liveness.Watchdog times the bound.
func (f *Fleet) Lives(r time.Duration, gateways ...*Process) {
	f.t.Helper()
	f.lives++
	bound := liveness.Bound(f.alone(liveness.Samples), r)
	run := f.Load(Load{
		Run: fmt.Sprintf("fresh%d", f.lives), Samples: liveness.Samples, Bytes: 16 << 10, PerSecond: freshPerSecond,
		Limit: liveness.Watchdog * bound,
	}, gateways...)
	p := run.Wait()
	f.t.Logf("a fresh client, bound %v: %v", bound, p)
	p.Check(f.t)
}

// alone is how long so many samples take that begin together, where the processes that run
// score nothing else.
func (f *Fleet) alone(samples int) time.Duration {
	places := 0
	for _, p := range f.processes {
		select {
		case <-p.exited:
		default:
			places += p.workers * f.cfg.Places
		}
	}
	mean := (f.cfg.ScoreLeast + f.cfg.ScoreMost) / 2
	return time.Duration(samples)*mean/time.Duration(max(places, 1)) + f.cfg.ScoreMost
}
