package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// gateways knows which gateways live from what they announce.
type gateways struct {
	nc   *nats.Conn
	gone time.Duration

	mu    sync.Mutex
	heard map[string]time.Time // guarded by mu
	since time.Time            // when this process began to listen, or could again; guarded by mu
}

func listen(nc *nats.Conn, gone time.Duration) (*gateways, error) {
	g := &gateways{nc: nc, gone: gone, heard: map[string]time.Time{}, since: time.Now()}
	if _, err := nc.Subscribe(gatewaySubject, g.hear); err != nil { // ends with the connection
		return nil, fmt.Errorf("queue: announcements of gateways: %w", err)
	}
	return g, nc.Flush()
}

// again is told that the connection was lost and is back.
func (g *gateways) again() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since = time.Now()
}

func (g *gateways) hear(msg *nats.Msg) {
	var info gatewayInfo
	if foreign(msg, gatewaySubject) || json.Unmarshal(msg.Data, &info) != nil || info.ID == "" {
		return // another release's word
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard[info.ID] = now
	for id, at := range g.heard { // a handful
		if now.Sub(at) > time.Minute {
			delete(g.heard, id)
		}
	}
}

// alive reports whether a gateway has been heard of late. One that could not have been
// heard, because this process was not listening, counts as alive.
func (g *gateways) alive(id string) bool {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	partitioned := !g.nc.IsConnected() || now.Sub(g.since) < g.gone
	return partitioned || now.Sub(g.heard[id]) < g.gone
}

// Member is the side of a process that has workers and no gateway.
type Member struct {
	*bus

	gateways *gateways
}

// Join connects to a NATS server that gateways use.
func Join(ctx context.Context, cfg Config) (_ *Member, err error) {
	cfg = cfg.WithDefaults()
	if len(cfg.URLs) == 0 {
		return nil, errors.New("queue: a worker needs the address of NATS: nats://host:port of a gateway's nats_listen, or of nats-server")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Member{}
	back := make(chan struct{}) // closed when gateways is set
	if m.bus, err = openBus(ctx, cfg, workerInbox, func() {
		if <-back; m.gateways != nil {
			m.gateways.again()
		}
	}); err != nil {
		return nil, err
	}
	m.gateways, err = listen(m.nc, cfg.Gone)
	close(back)
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// NewSource connects a worker to its queues of NATS. A gateway creates these queues when the worker
// announces them.
func (m *Member) NewSource(worker string, queues []string) (*Source, error) {
	return newSource(m.bus, worker, queues)
}

// Alive reports whether a gateway has announced itself recently, or could not have been received.
func (m *Member) Alive(gateway string) bool { return m.gateways.alive(gateway) }

// Connected reports whether the process is connected to NATS.
func (m *Member) Connected() bool { return m.nc.IsConnected() }

// Fleet returns the state that all processes share for limits and breakers. It must be closed
// before the Member.
func (m *Member) Fleet(ctx context.Context) (*Fleet, error) { return m.openFleet(ctx, false) }

// Close ends the connection. All Sources must be closed before.
func (m *Member) Close() { m.close() }
