package outbound

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rewardloop/rewardloop/rewards"
)

// Switch is an upstream that can be replaced by another one while it is in use. Calls in flight
// finish with the old upstream.
type Switch struct{ now atomic.Pointer[Upstream] }

var (
	_ Doer                        = (*Switch)(nil)
	_ rewards.Reliant             = (*Switch)(nil)
	_ rewards.ConcurrencyReasoner = (*Switch)(nil)
)

// NewSwitch returns a Switch that uses g.
func NewSwitch(g *Upstream) *Switch {
	s := &Switch{}
	s.now.Store(g)
	return s
}

// Do implements Doer.
func (s *Switch) Do(ctx context.Context, c *Call) (*Answer, error) { return s.now.Load().Do(ctx, c) }

// Dependency implements rewards.Reliant.
func (s *Switch) Dependency() rewards.Dependency { return s.now.Load().Dependency() }

// Concurrency implements rewards.Concurrent.
func (s *Switch) Concurrency() int { return s.now.Load().Concurrency() }

// ConcurrencyReason implements rewards.ConcurrencyReasoner.
func (s *Switch) ConcurrencyReason() string { return s.now.Load().ConcurrencyReason() }

// Spent calls Upstream.Spent.
func (s *Switch) Spent(tokens, booked int) { s.now.Load().Spent(tokens, booked) }

// Replace creates an upstream with another configuration, as Transport.Upstream does, and makes s
// use it for later calls. Limits and breakers of the new upstream start from zero. Replace fails
// and changes nothing if cfg is invalid or if another user shares the old upstream, and therefore
// its limits.
func (t *Transport) Replace(s *Switch, cfg UpstreamConfig) error {
	cfg = cfg.WithDefaults()
	if err := errors.Join(cfg.Validate(), t.checkLiterals(cfg)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := s.now.Load()
	switch {
	case t.closed:
		return errors.New("outbound: the transport is closed")
	case old.users > 1:
		return fmt.Errorf("outbound: upstream %s: another entry of the configuration uses the same servers and shares their limits", cfg.Name)
	}
	id := cfg.identity()
	if g := t.upstreams[id]; g != nil && g != old {
		return fmt.Errorf("outbound: upstream %s: upstream %s has these servers and this key file already", cfg.Name, g.cfg.Name)
	}
	g, err := newUpstream(cfg, t)
	if err != nil {
		return err
	}
	delete(t.upstreams, old.id)
	t.quit(old)
	t.upstreams[id] = g
	g.users = 1
	t.enlist(g)
	s.now.Store(g)
	return nil
}
