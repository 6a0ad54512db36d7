package client

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Binary implements wsconn.Handler: the server sends none.
func (l *link) Binary(io.Reader) error {
	return &wsconn.CloseError{Code: wsconn.CloseUnsupported, Reason: "the server sent a binary message, want text messages only"}
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
		return fmt.Errorf("the server sent a message that %s does not define: %w", wire.Protocol, err)
	}
	c := l.c
	switch m := v.(type) {
	case *wire.Welcome:
		select {
		case <-l.greeted:
			return fmt.Errorf("the server sent a second welcome; %s allows one for each connection", wire.Protocol)
		default:
		}
		if m.Protocol != wire.Protocol {
			err := fmt.Errorf("the server uses the protocol %.100q, this client (rewardloop/%s) uses %q: install the same release on both sides", m.Protocol, release(), wire.Protocol)
			select {
			case l.refused <- err:
			default:
			}
			return err
		}
		l.greet(m)
	case *wire.Credit:
		c.mu.Lock()
		l.credit.Samples, l.credit.Bytes = max(l.credit.Samples, m.Samples), max(l.credit.Bytes, m.Bytes)
		l.over, l.wanted = false, 0
		c.mu.Unlock()
		c.stir()
	case *wire.Reclaim:
		c.mu.Lock()
		l.yield()
		c.mu.Unlock()
	case *wire.Result:
		l.result(m)
	case *wire.Draining:
		c.mu.Lock()
		l.drains()
		c.mu.Unlock()
	case *wire.Rewards:
		c.rewards(m)
	case *wire.Phased:
		c.phased(m)
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
	c.welcome, c.home, c.link, l.credit, l.resumed = *w, l.url, l, w.Credit, w.Resumed
	again := make([]*Future, 0, len(c.calls))
	waiting := make(map[string]bool, len(c.queue))
	for _, f := range c.queue {
		waiting[f.ID] = true
	}
	for id, f := range c.calls {
		switch {
		case f.taken && !w.Resumed:
			c.takeBack(f) // who had it is gone
		case !waiting[id]:
			again = append(again, f)
		}
	}
	slices.SortFunc(again, func(a, b *Future) int { return cmp.Compare(a.msg.Size(), b.msg.Size()) })
	c.queue = append(again, c.queue...)
	c.restate(l, w.Resumed)
	c.askAgain(l)
	c.sayPhase(l)
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
	if f.taken {
		c.takeBack(f)
		return true
	}
	c.queue = slices.Insert(c.queue, 0, f)
	if class == rewards.OverCredit {
		l.wanted = 0
		l.want()
	}
	return true
}

// drains notes that the server takes no more samples. The caller holds c.mu.
func (l *link) drains() {
	if !l.draining {
		l.draining, l.drained = true, time.Now()
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
	c.settle(f, r)
	if c.pending >= confirmEvery {
		c.confirm()
	}
}

// note counts a numbered result, to be confirmed. The caller holds mu.
func (c *Client) note(seq uint64) {
	if seq > c.seq {
		c.seq = seq
		c.pending++
	}
}

// confirmEvery is how many results come between two confirmations, at most.
const confirmEvery = 64

// confirm lets the server forget the results that came. It must not overtake a sample that
// is sent again and was answered meanwhile: the server would take it for a new one. The
// caller holds mu.
func (c *Client) confirm() {
	if c.pending == 0 || c.link == nil || c.sending != nil && c.calls[c.sending.ID] != c.sending {
		return
	}
	b, err := wire.EncodeControl(&wire.Confirm{Seq: c.seq})
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
			Errors: []rewards.ComponentError{{Class: m.Code, Message: m.Message}},
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

// problem keeps a complaint. The caller holds mu.
func (c *Client) problem(err error) {
	c.problems = append(c.problems, err)
	if len(c.problems) > maxProblems {
		c.problems = c.problems[1:]
	}
}

// maxProblems is how many complaints are kept.
const maxProblems = 16
