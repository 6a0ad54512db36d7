package client

import (
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/wire"
)

// link is one websocket connection: connect.go makes it, this file sends over it, and
// receive.go takes what comes, on its reader goroutine.
type link struct {
	c       *Client
	url     string // of its gateway; immutable
	conn    *wsconn.Conn
	greeted chan struct{}     // closed at the welcome
	refused chan error        // capacity 1: the server's complaint before a welcome
	why     error             // set before ended is closed
	ended   chan struct{}     // closed when Run has returned
	credit  wire.CreditTotals // guarded by c.mu
	sent    wire.CreditTotals // guarded by c.mu
	over    bool              // the server had no room for the latest; guarded by c.mu
	wanted  int64             // samples that the server knows to wait; guarded by c.mu
	yielded wire.CreditTotals // handed back; guarded by c.mu

	draining bool      // the server takes no more samples; guarded by c.mu
	drained  time.Time // since when; guarded by c.mu
	useful   bool      // it took some, or could have for a while; guarded by c.mu
	resumed  bool      // the server knew the session; guarded by c.mu
	since    time.Time // immutable
}

// send writes queued samples while there is credit, until the link ends or is left.
func (c *Client) send(l *link) {
	confirm := time.NewTicker(time.Second)
	defer confirm.Stop()
	for {
		f := c.next(l)
		if f == nil && c.idle(l) {
			_ = l.conn.Close(wsconn.CloseGoingAway, "") // bounded; it is dialled again either way
			<-l.ended
			return
		}
		if f == nil {
			select {
			case <-c.wake:
			case <-confirm.C:
				c.mu.Lock()
				l.over = false // what would end the waiting may have come before the refusal
				c.confirm()
				c.mu.Unlock()
			case <-l.ended:
				return
			case <-c.ctx.Done():
				return
			}
			continue
		}
		err := l.conn.SendBinary(c.ctx, f.msg.Buffers()...)
		c.written(l, f)
		if err != nil {
			_ = l.conn.Close(wsconn.CloseGoingAway, "") // a half-sent sample: the next connection sends it whole
			<-l.ended
			return
		}
	}
}

// written notes that a sample is no longer on its way, and says once more that it is taken
// back, if it is: what was said of it before, the server may have passed over, because it
// had not heard of it.
func (c *Client) written(l *link, f *Future) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending = nil
	if f.taken && c.calls[f.ID] == f {
		_ = l.cancel(f.ID) // an id that was encoded before
	}
}

// next takes the first queued sample that the credit allows: within both totals, or
// when nothing of this client is in flight.
func (c *Client) next(l *link) *Future {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return nil
	}
	f := c.queue[0]
	size := f.msg.Size()
	within := l.sent.Samples < l.credit.Samples && l.sent.Bytes+size <= l.credit.Bytes
	if l.draining {
		return nil
	}
	if l.over || !within {
		l.want()
	}
	if l.over || (!within && c.inFlight() > 0) {
		return nil
	}
	c.queue[0] = nil
	c.queue = c.queue[1:]
	f.sent, c.sending = true, f
	l.sent.Samples++
	l.sent.Bytes += size
	return f
}

// unused is the credit that is left. The caller holds c.mu.
func (l *link) unused() wire.CreditTotals {
	return wire.CreditTotals{Samples: max(l.credit.Samples-l.sent.Samples, 0), Bytes: max(l.credit.Bytes-l.sent.Bytes, 0)}
}

// waiting is the size of all queued samples. The caller holds mu.
func (c *Client) waiting() (bytes int64) {
	for _, f := range c.queue {
		bytes += f.msg.Size()
	}
	return bytes
}

// want says what waits beyond the credit, unless the server knows of half of it. The caller
// holds c.mu.
func (l *link) want() {
	n := int64(len(l.c.queue))
	if l.wanted > 0 && n <= 2*l.wanted {
		return
	}
	u := l.unused()
	if l.over {
		u = wire.CreditTotals{} // the server has taken it back
	}
	l.wanted = n
	_ = l.c.control(l, &wire.Want{Samples: max(n-u.Samples, 0), Bytes: max(l.c.waiting()-u.Bytes, 0)}) // or the connection ends
}

// yield hands back the credit that no queued sample needs. The caller holds c.mu.
func (l *link) yield() {
	more := max(l.unused().Bytes-l.c.waiting(), 0)
	l.sent.Bytes += more
	l.yielded.Bytes += more
	l.wanted = 0
	_ = l.c.control(l, &wire.Yield{Samples: l.yielded.Samples, Bytes: l.yielded.Bytes}) // or the connection ends
}

// inFlight is how many samples were sent over the live link and have no result. The
// caller holds mu.
func (c *Client) inFlight() int { return len(c.calls) - len(c.queue) }

// idle reports whether nothing keeps the client at a draining server: what it has of
// ours it has answered, or a sample has waited long enough that another gateway can take.
// Questions can be answered only there, but not if a sample waits.
func (c *Client) idle(l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.draining {
		return false
	}
	late := c.several() && len(c.queue) > 0 && time.Since(l.drained) > patience
	if !late && (c.inFlight() > 0 || (len(c.queue) == 0 && c.asking())) {
		return false
	}
	if l.resumed && time.Since(l.since) < lateResults {
		return false // looked at again at the next tick
	}
	c.confirm()
	return true
}

// patience is how long a sample waits for a draining server to answer the samples that it
// has, where there is another gateway: with the tick and the dial less than 5 s.
const patience = 2 * time.Second

// lateResults is how long a draining server that knew the session is listened to in any
// case: the results that it still has come right behind its welcome.
const lateResults = time.Second
