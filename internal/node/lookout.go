package node

import (
	"context"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

// lookEvery is how often a process looks whether an engine or a service is back to which
// nobody could connect. A sample would tell as well, but there may be none.
const lookEvery = 2 * time.Second

// lookout looks at the engines and services of the configuration: at all of them once, so
// that one that is not there is known before the first sample comes, and then at those that
// are down.
type lookout struct {
	cancel  context.CancelFunc
	looking sync.WaitGroup
}

// lookOut begins to look. stopLooking ends it.
func (p *parts) lookOut(ctx context.Context) {
	if !p.scorers.Engines.asks() {
		return
	}
	ctx, p.lookout.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.lookout.looking.Go(func() {
		for _, f := range p.scorers.Engines.Look(ctx, false) {
			if f.Err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "an engine or a service that the configuration names does not answer as it should",
					"dependency", f.Group, "endpoint", f.Endpoint, "error", f.Err)
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
	})
}

// stopLooking may be called without lookOut.
func (p *parts) stopLooking() {
	if p.lookout.cancel != nil {
		p.lookout.cancel()
	}
	p.lookout.looking.Wait()
}

// Look asks the servers of all engines and services whether they are there, or of those only
// that are down. It takes 2 s at most.
func (e *Engines) Look(ctx context.Context, downOnly bool) []outbound.Finding {
	return e.transport.Look(ctx, downOnly)
}
