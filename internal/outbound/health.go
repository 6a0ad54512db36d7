package outbound

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

const (
	// healthTime bounds the question whether an endpoint is back. It is read from memory there.
	healthTime = 2 * time.Second
	// healthBytes bounds its answer.
	healthBytes = 1 << 20
)

// healthy finds out by UpstreamConfig.HealthPath whether an endpoint is back to which nobody could
// connect. A call would tell as well, but only when it is answered, and a judge may think for a
// minute while everybody waits. Where the endpoint failed otherwise, only a call tells.
//
// sure is false where the call itself has to find out: the endpoint failed otherwise, or has
// nothing at that path. A failure is that of the call's attempt.
func (t *try) healthy(ctx context.Context, e *endpoint) (sure bool, f *failure) {
	g := t.g
	g.mu.Lock()
	asks := g.cfg.HealthPath != "" && e.unreached
	g.mu.Unlock()
	if !asks {
		return false, nil
	}
	brief, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	question := try{g: g, call: &Call{Method: http.MethodGet, Path: g.cfg.HealthPath, MaxBytes: healthBytes}}
	_, f = question.send(brief, e)
	switch {
	case f == nil:
		g.recovered(e)
		return true, nil
	case ctx.Err() == nil && brief.Err() != nil:
		return false, &failure{
			class: rewards.Unavailable, blame: rewards.BlameDependency, cause: brief.Err(), retry: true, health: ill, unserved: true,
			text: fmt.Sprintf("%s%s did not answer within %v", e.name, g.cfg.HealthPath, healthTime),
		}
	case ctx.Err() == nil && (f.status != 0 && f.status < 500 || f.health != ill): // it answers, if not that
		return false, nil
	}
	return false, f
}

// recovered puts an endpoint that was being probed back into service.
func (g *Upstream) recovered(e *endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	e.answered, e.others.answered = now, now
	e.breaker.end(true, alive, 0, now)
	e.others.refute()
	g.announce()
	g.urge()
}
