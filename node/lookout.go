package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// lookEvery is how often a process looks whether an engine or a service is back to which
// nobody could connect. A sample would tell as well, but there may be none.
const lookEvery = 2 * time.Second

// lackEvery is how often a function is called again that lacked a module: somebody may have
// installed it. A call costs what a sample does.
const lackEvery = 10 * time.Second

// lookout looks at the engines and services of the configuration: at all of them once, so
// that one that is not there is known before the first sample comes, and then at those that
// are down. It calls the functions of users with known samples, for the same reason.
type lookout struct {
	cancel  context.CancelFunc
	looking sync.WaitGroup
}

// lookOut begins to look. stopLooking ends it.
func (p *parts) lookOut(ctx context.Context) {
	ctx, p.lookout.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if p.scorers.Engines.asks() {
		p.lookout.looking.Go(func() { p.lookAtServers(ctx) })
	}
	if p.calls {
		p.lookout.looking.Go(func() { p.callFunctions(ctx) })
	}
}

// lookAtServers looks at engines and services until ctx ends.
func (p *parts) lookAtServers(ctx context.Context) {
	for _, f := range p.scorers.Engines.Look(ctx, false) {
		if f.Err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "an engine or a reward service of the configuration failed its check",
				"dependency", f.Upstream, "endpoint", f.Endpoint, "optional", Optional(p.managers, f.Upstream), "error", f.Err)
		}
	}
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			p.scorers.Engines.Look(ctx, true) // the breakers say what it has found
		case <-ctx.Done():
			return
		}
	}
}

// callFunctions calls the functions of users with known samples, those of different rewards at
// the same time, and then again those that lack a module, until none does or ctx ends.
func (p *parts) callFunctions(ctx context.Context) {
	var calls sync.WaitGroup
	served := p.served()
	for _, name := range sortedKeys(served) {
		if name == "" || name == selfTestProfile {
			continue // the default one, which is there by its name as well, and one without functions
		}
		calls.Go(func() {
			tried := served[name].TryKnown(ctx)
			for _, t := range tried {
				if t.Err != nil && ctx.Err() == nil {
					p.log.WarnContext(ctx, "a reward function failed to score the test sample",
						"reward", name, "component", t.Component, "kind", t.Kind, "optional", t.Optional, "means", Means(t), "error", t.Err)
				}
			}
			for lacks(tried) && rest(ctx, lackEvery) {
				tried = served[name].TryKnown(ctx) // the workers say what it has found
			}
		})
	}
	calls.Wait()
}

// Optional reports whether the samples of every reward that uses a dependency have a score without
// it. A dependency that no reward uses is not optional, because functions in Python may use it
// through the reward router.
func Optional(managers map[string]*rewards.Manager, dependency string) (optional bool) {
	for _, m := range managers {
		asked, needed := m.Needs(dependency)
		if needed {
			return false
		}
		optional = optional || asked
	}
	return optional
}

// Means describes the consequence of a known sample without a score, and the remedy.
func Means(t rewards.Tried) string {
	if t.Lacks != "" {
		return fmt.Sprintf("install the module %s for the interpreter that pool.python.interpreter names", t.Lacks)
	}
	return "samples are scored nevertheless; if the function does not accept such a sample, write probe: with the kinds that the function accepts " +
		"(image, video, text), or probe: false, in its entry"
}

// lacks reports whether a function lacks a module.
func lacks(tried []rewards.Tried) bool {
	for _, t := range tried {
		if t.Lacks != "" {
			return true
		}
	}
	return false
}

// rest waits, and reports whether ctx still lives.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stopLooking may be called without lookOut.
func (p *parts) stopLooking() {
	if p.lookout.cancel != nil {
		p.lookout.cancel()
	}
	p.lookout.looking.Wait()
}

// Look checks the servers of all engines and services, or, with downOnly, only those that are down.
// Look takes at most 2 s.
func (e *Engines) Look(ctx context.Context, downOnly bool) []outbound.Finding {
	return e.transport.Look(ctx, downOnly)
}
