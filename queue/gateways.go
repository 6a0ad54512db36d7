package queue

import (
	"encoding/json"
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
