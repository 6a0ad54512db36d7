package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// link is one websocket connection. Text runs on its reader goroutine.
type link struct {
	c       *Client
	conn    *wsconn.Conn
	greeted chan struct{}     // closed at the welcome
	refused chan error        // capacity 1: the server's complaint before a welcome
	ended   chan struct{}     // closed when Run has returned
	credit  wire.CreditTotals // guarded by c.mu
	sent    wire.CreditTotals // guarded by c.mu
	over    bool              // the server had no room for the latest; guarded by c.mu

	draining bool      // the server takes no more samples; guarded by c.mu
	useful   bool      // it took some, or could have for a while; guarded by c.mu
	resumed  bool      // the server knew the session; guarded by c.mu
	since    time.Time // immutable
}

// connect dials, says hello and waits for the welcome, all within DialTimeout.
func (c *Client) connect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	conn, err := wsconn.Dial(ctx, c.cfg.URL, wsconn.DialConfig{
		Config: wsconn.Config{TextBytes: wire.MaxServerControlBytes}, Subprotocol: protocol, Header: c.header(), TLS: c.cfg.TLS,
		HandshakeTimeout: c.cfg.DialTimeout,
	})
	if err != nil {
		return nil, hint(err)
	}
	l := &link{c: c, conn: conn, greeted: make(chan struct{}), refused: make(chan error, 1), ended: make(chan struct{}), since: time.Now()}
	c.wg.Go(func() { // the reader; ends with the connection
		defer close(l.ended)
		_ = conn.Run(c.ctx, l) // why it ended matters to nobody: it is dialled again
	})
	hello := &wire.Hello{
		Run: c.cfg.Run, Client: c.cfg.Client, Lane: c.cfg.Lane, Reward: c.cfg.Reward, OnSampleFailure: c.cfg.OnSampleFailure,
	}
	c.mu.Lock()
	if c.welcome.Session != "" {
		hello.Resume = &wire.Resume{Session: c.welcome.Session, Got: c.seq}
	}
	c.mu.Unlock()
	b, err := wire.EncodeControl(hello)
	if err == nil {
		err = conn.Send(b)
	}
	if err == nil {
		select {
		case <-l.greeted:
			return l, nil
		case err = <-l.refused:
		case <-l.ended:
			err = errors.New("the server closed the connection without a welcome")
		case <-ctx.Done():
			err = fmt.Errorf("no welcome within %v", c.cfg.DialTimeout)
		}
	}
	return nil, errors.Join(err, conn.Close(wsconn.CloseNormal, ""))
}

// hint adds what to do to an error of dialling.
func hint(err error) error {
	if he, ok := errors.AsType[*wsconn.HandshakeError](err); ok {
		switch he.Status {
		case 401, 403:
			return fmt.Errorf("%w; give the server's token with TokenFile", err)
		case 404:
			return fmt.Errorf("%w; is this the address of a reward loop?", err)
		}
		return err
	}
	return fmt.Errorf("%w; is `rewardloop serve` running there?", err)
}

// run keeps the client connected until it is closed or the connection cannot be had again.
func (c *Client) run(l *link) {
	var o outage
	for {
		c.send(l)
		c.mu.Lock()
		c.link = nil
		fresh := l.useful || !l.draining || o.until.IsZero()
		c.mu.Unlock()
		if c.ctx.Err() != nil {
			return
		}
		if fresh {
			o = outage{until: time.Now().Add(c.cfg.ReconnectFor)}
		}
		var err error
		if l, err = c.redial(&o, fresh); err != nil {
			if c.ctx.Err() == nil {
				c.fail(fmt.Errorf("%w: %w", ErrLost, err))
			}
			return
		}
	}
}

// outage is a time without a server that takes samples. One that is draining still
// when it is dialled again does not end it.
type outage struct {
	until time.Time // then it is given up
	tries int
}

// errDrains is an outage that ended with a server that could be reached.
var errDrains = errors.New("the server is draining, and no other has come in its place")

// redial connects again, with growing pauses, for as long as ReconnectFor.
func (c *Client) redial(o *outage, fresh bool) (*link, error) {
	if !fresh && time.Now().After(o.until) {
		return nil, errDrains
	}
	for {
		select {
		case <-time.After(pause(o.tries)):
		case <-c.ctx.Done():
			return nil, context.Cause(c.ctx)
		}
		o.tries++
		l, err := c.connect(c.ctx)
		if err == nil {
			return l, nil
		}
		if time.Now().After(o.until) {
			return nil, err
		}
	}
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
		if err := l.conn.SendBinary(c.ctx, f.msg.Buffers()...); err != nil {
			_ = l.conn.Close(wsconn.CloseGoingAway, "") // a half-sent sample: the next connection sends it whole
			<-l.ended
			return
		}
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
	if l.over || l.draining || (!within && c.inFlight() > 0) {
		return nil
	}
	c.queue[0] = nil
	c.queue = c.queue[1:]
	l.sent.Samples++
	l.sent.Bytes += size
	return f
}

// inFlight is how many samples were sent over the live link and have no result. The
// caller holds mu.
func (c *Client) inFlight() int { return len(c.calls) - len(c.queue) }

// idle reports whether nothing keeps the client at a draining server: what it has of
// ours it has answered. Questions can be answered only there, but not if a sample waits.
func (c *Client) idle(l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.draining || c.inFlight() > 0 || (len(c.queue) == 0 && c.asking()) {
		return false
	}
	if l.resumed && time.Since(l.since) < lateResults {
		return false // looked at again at the next tick
	}
	c.confirm()
	return true
}

// lateResults is how long a draining server that knew the session is listened to in any
// case: the results that it still has come right behind its welcome.
const lateResults = time.Second

// Binary implements wsconn.Handler: the server sends none.
func (l *link) Binary(io.Reader) error {
	return &wsconn.CloseError{Code: wsconn.CloseUnsupported, Reason: "a server sends no binary messages"}
}

// Text implements wsconn.Handler.
func (l *link) Text(msg []byte) error {
	if bytes.HasPrefix(msg, []byte(`{"type":"ack",`)) {
		return nil // a sample is kept until its result, acknowledged or not
	}
	v, err := wire.DecodeControl(msg)
	if err != nil && l.c.garbled(msg, err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the server sent what is no message of %s: %w", protocol, err)
	}
	c := l.c
	switch m := v.(type) {
	case *wire.Welcome:
		select {
		case <-l.greeted:
			return fmt.Errorf("the server sent a second welcome, which %s has not", protocol)
		default:
			l.greet(m)
		}
	case *wire.Credit:
		c.mu.Lock()
		l.credit.Samples, l.credit.Bytes = max(l.credit.Samples, m.Samples), max(l.credit.Bytes, m.Bytes)
		l.over = false
		c.mu.Unlock()
		c.stir()
	case *wire.Result:
		l.result(m)
	case *wire.Draining:
		c.mu.Lock()
		l.drains()
		c.mu.Unlock()
	case *wire.Rewards:
		c.rewards(m)
	case *wire.Error:
		l.complaint(m)
	}
	return nil
}

// greet takes the new connection into use and queues again what has no result: what
// a resumed server has in flight it attaches, what it has answered it answers again.
func (l *link) greet(w *wire.Welcome) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.Resumed {
		c.seq, c.pending = 0, 0
	}
	c.welcome, c.link, l.credit, l.resumed = *w, l, w.Credit, w.Resumed
	again := make([]*Future, 0, len(c.calls))
	waiting := make(map[string]bool, len(c.queue))
	for _, f := range c.queue {
		waiting[f.ID] = true
	}
	for id, f := range c.calls {
		if !waiting[id] {
			again = append(again, f)
		}
	}
	slices.SortFunc(again, func(a, b *Future) int { return int(a.msg.Size() - b.msg.Size()) })
	c.queue = append(again, c.queue...)
	c.restate(l, w.Resumed)
	c.askAgain(l)
	close(l.greeted)
	c.stir()
}

// result takes a result. A refusal for want of credit, or because the server is draining,
// is none: the sample is sent again.
func (l *link) result(r *wire.Result) {
	if r.Outcome == rewards.Rejected && len(r.Errors) > 0 {
		switch class := r.Errors[0].Class; class {
		case rewards.OverCredit, rewards.Draining:
			if l.again(r, class) {
				return
			}
		}
	}
	l.c.resolve(r)
}

// again queues a sample once more that the server did not take. One that came beyond the
// credit waits for the next credit or result: a server that resumes a session counts what
// it still has in flight of it, and the client cannot know all of that. One that came to a
// draining server waits for the next connection.
func (l *link) again(r *wire.Result, class rewards.Class) bool {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if class == rewards.Draining {
		defer l.drains()
	}
	f := c.calls[r.ID]
	if f == nil || c.link != l {
		return class == rewards.Draining && f != nil // the client is being closed
	}
	c.note(r.Seq)
	l.over = l.over || class == rewards.OverCredit
	if slices.Contains(c.queue, f) {
		return true
	}
	l.sent.Samples-- // it was not booked
	l.sent.Bytes -= f.msg.Size()
	c.queue = slices.Insert(c.queue, 0, f)
	return true
}

// drains notes that the server takes no more samples. The caller holds c.mu.
func (l *link) drains() {
	if !l.draining {
		l.draining = true
		l.useful = l.useful || time.Since(l.since) > proven
	}
	l.c.stir()
}

// proven is how long a server takes samples before its draining begins a new outage,
// even if it was sent none: more than the longest pause between two dials.
const proven = 5 * time.Second

// resolve hands a result to its Future, once.
func (c *Client) resolve(r *wire.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		c.link.over = false
	}
	c.note(r.Seq)
	f := c.calls[r.ID]
	if f == nil {
		return // answered before: a repeat after a lost connection
	}
	if c.link != nil {
		c.link.useful = true
	}
	delete(c.calls, r.ID)
	c.settled(f.step)
	if i := slices.Index(c.queue, f); i >= 0 { // answered by the resumed session before it was sent again
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	f.res = r
	if c.results != nil {
		select {
		case c.results <- r:
		default: // nobody reads; the Future has it
		}
	}
	close(f.done)
	if c.pending >= c.cfg.ConfirmEvery {
		c.confirm()
	}
	if len(c.queue) > 0 || c.link != nil && c.link.draining {
		c.stir()
	}
}

// note counts a numbered result, to be confirmed. The caller holds mu.
func (c *Client) note(seq uint64) {
	if seq > c.seq {
		c.seq = seq
		c.pending++
	}
}

// confirm lets the server forget the results that came. The caller holds mu.
func (c *Client) confirm() {
	if c.pending == 0 || c.link == nil {
		return
	}
	b, err := wire.EncodeControl(&wire.Got{Seq: c.seq})
	if err == nil {
		err = c.link.conn.Send(b)
	}
	if err == nil {
		c.pending = 0
	}
}

// complaint takes a message of type error: before the welcome it is the refusal of
// the hello, with an id it ends that sample, with a number that question.
func (l *link) complaint(m *wire.Error) {
	err := fmt.Errorf("%w: %s", m.Code, m.Message)
	select {
	case <-l.greeted:
	default:
		select {
		case l.refused <- err:
		default:
		}
		return
	}
	if m.ID != "" {
		l.result(&wire.Result{
			Type: "result", ID: m.ID, Outcome: rewards.Rejected,
			Errors: []rewards.TermError{{Class: m.Code, Message: m.Message}},
		})
		return
	}
	if m.Req != 0 {
		l.c.refused(m.Req, err)
		return
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.problem(err)
}
