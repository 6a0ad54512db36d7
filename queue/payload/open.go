package payload

import "github.com/rewardloop/rewardloop/wire"

// open is a claim whose payload has arrived and whose result has not been taken: what a connection
// is dialled for again when it breaks, so that the gateway sees that the worker lives.
type open struct {
	gate    *gate
	key     openKey
	token   string
	n       uint64
	frames  int  // not released yet; guarded by Client.mu
	useless bool // the gateway does not know the token; guarded by Client.mu
}

// keep notes an open claim and says that its payload has arrived.
func (c *Client) keep(l *link, t wire.Ticket, worker string, n uint64, frames []*wire.Frame) {
	c.mu.Lock()
	o := &open{gate: c.gateTo(t), key: openKey{t.Key(), worker}, token: t.Token, n: n, frames: len(frames)}
	if old := o.gate.open[o.key]; old != nil { // the worker has the ticket once more
		delete(c.wanted, old.n)
	}
	o.gate.open[o.key] = o
	if !c.closed {
		c.connectionTo(o.gate, smallConnection) // it has the result, and shows that the worker lives
	}
	c.mu.Unlock()
	for _, f := range frames {
		f.OnRelease(func() { c.released(o) })
	}
	l.got(n)
}

// released is called for each frame of a claim when its last reference is gone. A claim
// without a result has been given up then.
func (c *Client) released(o *open) {
	c.mu.Lock()
	o.frames--
	givenUp := o.frames == 0 && c.shut(o)
	l := o.gate.anyLink()
	c.mu.Unlock()
	if givenUp && l != nil {
		l.drop(o.n)
	}
}

// finished ends an open claim whose result was taken.
func (c *Client) finished(t wire.Ticket, worker string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.gates[gateKey{t.Gateway, t.Claim}]
	if g == nil {
		return
	}
	if o := g.open[openKey{t.Key(), worker}]; o != nil {
		c.shut(o)
	}
}

// shut ends an open claim, unless it has ended. The caller holds mu.
func (c *Client) shut(o *open) bool {
	if o.gate.open[o.key] != o {
		return false
	}
	delete(o.gate.open, o.key)
	delete(c.wanted, o.n)
	c.forgetIfIdle(o.gate)
	return true
}
