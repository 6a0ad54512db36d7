package payload

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/wire"
)

// Indices of a gate's connections.
const (
	smallConnection = iota
	bulkConnection
	connections
)

type gateKey struct{ gateway, url string }

// gate is a gateway as the client sees it. Its fields are guarded by the client's mutex.
type gate struct {
	key         gateKey
	connections [connections]*connection
	open        map[openKey]*open
}

// anyLink returns a connection to the gateway, nil if there is none.
func (g *gate) anyLink() *link {
	for _, l := range g.connections {
		if l != nil && l.link != nil {
			return l.link
		}
	}
	return nil
}

// forgetIfIdle removes a gate that nothing is left of. The caller holds mu.
func (c *Client) forgetIfIdle(g *gate) {
	if g.connections == [connections]*connection{} && len(g.open) == 0 {
		delete(c.gates, g.key)
	}
}

// connection is one connection to a gateway, or the endeavour to have one. Its goroutine dials, reads,
// and ends when nobody waits and nothing is open. Its fields are guarded by the client's mutex.
type connection struct {
	c    *Client
	gate *gate
	kind int

	link     *link
	waiters  map[*waiter]struct{}
	changed  chan struct{} // closed when something below or link has changed
	tries    int           // attempts that have failed
	failures int           // of them since a connection was good for something
	err      error         // of the last one
	gone     bool          // the gateway has not been heard of, either
	foreign  bool          // it speaks another protocol, which no further attempt changes
}

// waiter is a claim or a result that needs the connection.
type waiter struct {
	credential
	err error // the gateway does not know its token
}

// credential is what opens a connection.
type credential struct {
	attempt wire.AttemptKey
	token   string
}

// announce wakes everybody who waits for the connection. The caller holds mu.
func (l *connection) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// link returns a connection to the ticket's gateway. It waits for one that is being made for
// as long as patience says; where attempts have failed before only for the one under way.
func (c *Client) link(ctx context.Context, t wire.Ticket, kind int, patience time.Duration) (*link, error) {
	if t.Claim == "" {
		return nil, fmt.Errorf("%w: the ticket has no address", wire.ErrUnreachable)
	}
	if c.opt.Secure && !strings.HasPrefix(t.Claim, "wss://") {
		return nil, fmt.Errorf("%w: the address %.100q has no TLS, which this worker's queue.tls_ca requires: set server.tls_cert at the gateway", wire.ErrUnreachable, t.Claim)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	l := c.connectionTo(c.gateTo(t), kind)
	if l.link != nil {
		return l.link, nil
	}
	w := &waiter{credential: credential{t.Key(), t.Token}}
	l.waiters[w] = struct{}{}
	defer delete(l.waiters, w)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	known, seen := l.failures > 0 && patience != forEver, l.tries
	for {
		changed := l.changed
		c.mu.Unlock()
		var ended error
		select {
		case <-changed:
		case <-limit.C:
			ended = fmt.Errorf("%w within %s", wire.ErrUnreachable, patience)
		case <-ctx.Done():
			ended = context.Cause(ctx)
		}
		c.mu.Lock()
		switch {
		case c.closed:
			return nil, errClosed
		case w.err != nil:
			return nil, w.err
		case l.link != nil:
			return l.link, nil
		case l.gone && l.tries > seen:
			return nil, fmt.Errorf("%w: gateway %s has not announced itself and cannot be reached: %w", wire.ErrGone, t.Gateway, l.err)
		case ended != nil && l.err != nil:
			return nil, fmt.Errorf("%w: %w", ended, l.err)
		case ended != nil:
			return nil, ended
		case (known || l.foreign) && l.tries > seen:
			return nil, fmt.Errorf("%w: %w", wire.ErrUnreachable, l.err)
		}
	}
}

// gateTo returns the ticket's gateway. The caller holds mu.
func (c *Client) gateTo(t wire.Ticket) *gate {
	key := gateKey{t.Gateway, t.Claim}
	g := c.gates[key]
	if g == nil {
		g = &gate{key: key, open: map[openKey]*open{}}
		c.gates[key] = g
	}
	return g
}

// connectionTo returns the connection, which it starts if it is not there. The caller holds mu.
func (c *Client) connectionTo(g *gate, kind int) *connection {
	l := g.connections[kind]
	if l == nil {
		l = &connection{c: c, gate: g, kind: kind, waiters: map[*waiter]struct{}{}, changed: make(chan struct{})}
		g.connections[kind] = l
		c.tasks.Go(l.run)
	}
	return l
}

// run is the connection's goroutine.
func (l *connection) run() {
	for {
		cred, ok := l.next()
		if !ok {
			return
		}
		if !l.pause() {
			continue // the client is closed
		}
		err := l.connect(cred)
		if l.c.ctx.Err() == nil && err != nil {
			l.c.seldom.warn("link", "connection to a gateway failed or ended", "gateway", l.gate.key.gateway, "url", l.gate.key.url, "error", err)
		}
	}
}

// next returns what to connect with. Without anything to do the connection ends.
func (l *connection) next() (credential, bool) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if !l.c.closed {
		for w := range l.waiters {
			if w.err == nil {
				return w.credential, true
			}
		}
		if l.kind == smallConnection && !l.gone {
			for _, o := range l.gate.open {
				if !o.useless {
					return credential{o.key.attempt, o.token}, true
				}
			}
		}
	}
	l.gate.connections[l.kind] = nil
	l.c.forgetIfIdle(l.gate)
	return credential{}, false
}

// pause waits between attempts: not at all, then longer and longer. It returns false if the
// client was closed meanwhile.
func (l *connection) pause() bool {
	l.c.mu.Lock()
	failures := l.failures
	l.c.mu.Unlock()
	if failures == 0 {
		return l.c.ctx.Err() == nil
	}
	d := l.c.cfg.BackoffMax
	if shift := failures - 1; shift < 16 {
		d = min(d, l.c.cfg.BackoffMin<<shift)
	}
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.c.ctx.Done():
		return false
	}
}

// connect dials and reads until the connection ends, and returns why.
func (l *connection) connect(cred credential) error {
	k, err := l.dial(cred)
	if err == nil {
		err = k.run()
	}
	ok := k != nil && k.welcomed
	if ok {
		l.c.metrics.dials.WithLabelValues("ok").Inc()
	} else {
		l.c.metrics.dials.WithLabelValues("failed").Inc()
	}
	gone := !ok && l.c.opt.Alive != nil && !l.c.opt.Alive(l.gate.key.gateway)
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.link, l.err, l.gone, l.foreign = nil, err, gone, k != nil && k.refused != nil || errors.Is(err, wsconn.ErrProtocol)
	switch refused := l.turnedAway(err); {
	case refused != nil:
		l.failures = 0
		l.useless(cred, refused)
	case ok && k.useful.Load():
		l.failures = 0
	default:
		l.failures++
	}
	if !ok {
		l.tries++
	}
	l.announce()
	return err
}

// turnedAway returns what a gateway that does not know the token makes of its ticket: one of
// another life of the gateway, whose sample is gone.
func (l *connection) turnedAway(err error) error {
	var refused *wsconn.HandshakeError
	if !errors.As(err, &refused) {
		return nil
	}
	switch refused.Status {
	case http.StatusUnauthorized:
		return fmt.Errorf("%w: %w: %s", wire.ErrGone, ErrToken, refused.Body)
	case http.StatusGone:
		return fmt.Errorf("%w: %s", wire.ErrGone, refused.Body)
	}
	return nil
}

// useless notes that a credential opens nothing. The caller holds mu.
func (l *connection) useless(cred credential, err error) {
	for w := range l.waiters {
		if w.credential == cred {
			w.err = err
		}
	}
	for _, o := range l.gate.open {
		if o.key.attempt == cred.attempt && o.token == cred.token {
			o.useless = true
		}
	}
}

// dial opens the websocket.
func (l *connection) dial(cred credential) (*link, error) {
	attempt, err := json.Marshal(cred.attempt)
	if err != nil {
		return nil, err
	}
	conn, err := wsconn.Dial(l.c.ctx, l.gate.key.url, wsconn.DialConfig{
		Config:      l.c.cfg.conn(wire.MaxServerControlBytes, wire.ClaimChunkHead+wire.MaxClaimChunk),
		Subprotocol: wire.ClaimProtocol, Version: l.c.opt.Version,
		Header: http.Header{
			"Authorization": {"Bearer " + cred.token},
			attemptHeader:   {base64.RawURLEncoding.EncodeToString(attempt)},
		},
		TLS: l.c.opt.TLS, HandshakeTimeout: l.c.cfg.DialTimeout,
	})
	if err != nil {
		return nil, err
	}
	return newLink(l, conn), nil
}

// up makes the connection the connection's.
func (l *connection) up(k *link) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.link = k
	l.announce()
}

// down takes a connection that has ended from the connection.
func (l *connection) down(k *link) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.link == k {
		l.link = nil
	}
}

// forEver is a patience that only the context ends.
const forEver = time.Duration(1<<63 - 1)
