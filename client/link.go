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
	l := &link{c: c, conn: conn, greeted: make(chan struct{}), refused: make(chan error, 1), ended: make(chan struct{})}
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
	for {
		c.send(l)
		c.mu.Lock()
		c.link = nil
		c.mu.Unlock()
		if c.ctx.Err() != nil {
			return
		}
		var err error
		if l, err = c.redial(); err != nil {
			if c.ctx.Err() == nil {
				c.fail(fmt.Errorf("%w: %w", ErrLost, err))
			}
			return
		}
	}
}

// redial connects again, with growing pauses, for as long as ReconnectFor.
func (c *Client) redial() (*link, error) {
	give := time.Now().Add(c.cfg.ReconnectFor)
	for n := 0; ; n++ {
		select {
		case <-time.After(pause(n)):
		case <-c.ctx.Done():
			return nil, context.Cause(c.ctx)
		}
		l, err := c.connect(c.ctx)
		if err == nil {
			return l, nil
		}
		if time.Now().After(give) {
			return nil, err
		}
	}
}

// send writes queued samples while there is credit, until the link ends.
func (c *Client) send(l *link) {
	confirm := time.NewTicker(time.Second)
	defer confirm.Stop()
	for {
		f := c.next(l)
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
	if l.over || (!within && len(c.calls) > len(c.queue)) {
		return nil
	}
	c.queue[0] = nil
	c.queue = c.queue[1:]
	l.sent.Samples++
	l.sent.Bytes += size
	return f
}

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
		if m.Outcome == rewards.Rejected && len(m.Errors) > 0 && m.Errors[0].Class == rewards.OverCredit && l.again(m.ID) {
			return nil
		}
		c.resolve(m)
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
	c.welcome, c.link, l.credit = *w, l, w.Credit
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

// again queues a sample once more that came beyond the credit. A server that resumes
// a session counts what it still has in flight of it, and the client cannot know all
// of that: the sample waits for the next credit or result.
func (l *link) again(id string) bool {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.calls[id]
	if f == nil || c.link != l {
		return false
	}
	l.over = true
	l.sent.Samples-- // it was not booked
	l.sent.Bytes -= f.msg.Size()
	if !slices.Contains(c.queue, f) {
		c.queue = slices.Insert(c.queue, 0, f)
	}
	return true
}

// resolve hands a result to its Future, once.
func (c *Client) resolve(r *wire.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		c.link.over = false
	}
	if r.Seq > c.seq {
		c.seq = r.Seq
		c.pending++
	}
	f := c.calls[r.ID]
	if f == nil {
		return // answered before: a repeat after a lost connection
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
	if len(c.queue) > 0 {
		c.stir()
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
		l.c.resolve(&wire.Result{
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
