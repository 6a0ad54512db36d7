package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/wire"
)

// connect dials, says hello and waits for the welcome, all within DialTimeout.
func (c *Client) connect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	conn, err := wsconn.Dial(ctx, c.cfg.URL, wsconn.DialConfig{
		Config: wsconn.Config{TextBytes: wire.MaxServerControlBytes}, Subprotocol: wire.Protocol, Header: c.header(), TLS: c.cfg.TLS,
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
			select {
			case err = <-l.refused: // said before the end, which comes right behind it
			default:
				err = errors.New("the server closed the connection without a welcome")
			}
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

// pause is the wait before dial number n: 50 ms doubling to 2 s, with jitter.
func pause(n int) time.Duration {
	d := min(50*time.Millisecond<<min(n, 6), 2*time.Second)
	return d/2 + rand.N(d) //nolint:gosec // a pause needs no secret randomness
}

func (c *Client) header() http.Header {
	h := http.Header{}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	return h
}
