package node

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"

	"github.com/rewardloop/rewardloop/config"
)

// openRouter opens the port where functions in Python find the reward router, and
// writes its address into the configuration. The port must be known before they are
// made; it is served with the HTTP server, whatever that listens on and asks for. Its key
// lives as long as this process.
func (p *parts) openRouter() error {
	if !asksRouter(p.cfg) {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("the reward router's port: %w", err)
	}
	p.local, p.localKey = ln, rand.Text()
	cfg := *p.cfg // whoever made it may use it again
	cfg.RouterAddress, cfg.RouterKey = ln.Addr().String(), p.localKey
	p.cfg = &cfg
	return nil
}

// asksRouter reports whether a function in Python has a reward model beside it.
func asksRouter(c *config.Config) bool {
	for _, p := range c.Profiles {
		for _, t := range p.Components {
			if p.Engine != "" && t.Scorer == config.PythonScorer {
				return true
			}
		}
	}
	return false
}

// closeRouter closes a port that nobody serves yet.
func (p *parts) closeRouter() error {
	if p.local == nil {
		return nil
	}
	ln := p.local
	p.local = nil
	return ln.Close()
}
