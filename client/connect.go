package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// path is where a gateway has its websocket.
const path = "/v1/stream"

// gateways are the URLs of a list with commas between.
func gateways(list string) []string {
	urls := strings.Split(list, ",")
	for i, url := range urls {
		url = strings.TrimSpace(url)
		if scheme, rest, ok := strings.Cut(url, "://"); ok && !strings.Contains(rest, "/") {
			url = scheme + "://" + rest + path
		}
		urls[i] = url
	}
	return urls
}

// several reports whether there is another gateway to go to.
func (c *Client) several() bool { return len(c.urls) > 1 }

// first makes the first connection. Where nobody takes the client it fails at once; once a
// server has said that it is being stopped, its successor is waited for.
func (c *Client) first(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	var why error // of the latest dials that nothing cut short
	stopping := false
	for round := 0; ; round++ {
		l, err := c.reach(ctx, round)
		if err == nil {
			return l, nil
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		if stopping = stopping || errors.Is(err, errStopping) || errors.Is(err, rewards.Draining); !stopping {
			return nil, why
		}
		select {
		case <-time.After(pause(round)):
		case <-ctx.Done():
			return nil, fmt.Errorf("no other server accepted the connection within %v: %w", c.cfg.DialTimeout, why)
		}
	}
}

// firstTry is how long one of several gateways may take for its welcome, when it is dialled
// for the first time in a row; then twice as long each time, up to DialTimeout.
const firstTry = 2 * time.Second

// reach dials the gateways, each once, until one welcomes the client.
func (c *Client) reach(ctx context.Context, round int) (*link, error) {
	limit := c.cfg.DialTimeout
	if c.several() {
		limit = min(limit, firstTry<<min(round, 6))
	}
	var all error
	for i := range c.urls {
		at := (c.at + i) % len(c.urls)
		l, err := c.connect(ctx, c.urls[at], limit)
		if err == nil {
			c.at = at
			return l, nil
		}
		err = fmt.Errorf("%s: %w", c.urls[at], err)
		if all != nil {
			err = fmt.Errorf("%w; %w", all, err)
		}
		if all = err; ctx.Err() != nil {
			break
		}
	}
	return nil, all
}

// connect dials a gateway, says hello and waits for the welcome, all within the limit. It
// resumes the session only where it is that gateway's: another one may know the run from
// earlier, with samples of the same ids.
func (c *Client) connect(ctx context.Context, url string, limit time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	cfg := wsconn.Config{TextBytes: wire.MaxServerControlBytes, ReadTimeout: c.cfg.Silence}
	if c.several() {
		cfg.CloseTimeout = time.Second
	}
	conn, err := wsconn.Dial(ctx, url, wsconn.DialConfig{
		Config: cfg, Subprotocol: wire.Protocol, Version: release(), Header: c.header(), TLS: c.cfg.TLS, HandshakeTimeout: limit,
	})
	if err != nil {
		return nil, hint(err)
	}
	l := &link{c: c, url: url, conn: conn, greeted: make(chan struct{}), refused: make(chan error, 1), ended: make(chan struct{}), since: time.Now()}
	c.wg.Go(func() { // the reader; ends with the connection
		defer close(l.ended)
		l.why = conn.Run(c.ctx, l)
	})
	hello := &wire.Hello{
		Run: c.cfg.Run, Client: c.cfg.Client, Lane: c.cfg.Lane, Reward: c.cfg.Reward, OnSampleFailure: c.cfg.OnSampleFailure,
	}
	c.mu.Lock()
	if c.welcome.Session != "" && c.home == url {
		hello.Resume = &wire.Resume{Session: c.welcome.Session, Confirmed: c.seq}
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
			err = fmt.Errorf("no welcome within %v", limit)
		}
	}
	return nil, errors.Join(err, conn.Close(wsconn.CloseNormal, ""))
}

// release is that of this module in the program that it is linked into.
func release() string {
	const module = "github.com/rewardloop/rewardloop"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return m.Version
		}
	}
	return ""
}

// errStopping is a server that takes no clients at the moment, and says when to ask again.
var errStopping = errors.New("the server is shutting down or accepts no more clients now")

// hint adds what to do to an error of dialling.
func hint(err error) error {
	if errors.Is(err, wsconn.ErrProtocol) {
		return err // it says what to do
	}
	if he, ok := errors.AsType[*wsconn.HandshakeError](err); ok {
		switch he.Status {
		case 401, 403:
			return fmt.Errorf("%w; set TokenFile to the file with the server's token", err)
		case 404:
			return fmt.Errorf("%w; check that this is the address of a rewardloop server", err)
		case http.StatusServiceUnavailable:
			if he.Header.Get("Retry-After") != "" {
				return fmt.Errorf("%w; %w", err, errStopping)
			}
		}
		return err
	}
	return fmt.Errorf("%w; check that `rewardloop serve` is running there", err)
}

// run keeps the client connected until it is closed or the connection cannot be had again.
func (c *Client) run(l *link) {
	var o outage
	for {
		c.send(l)
		c.mu.Lock()
		c.link = nil
		fresh := l.useful || !l.draining || o.until.IsZero()
		stay := !l.draining && (l.useful || time.Since(l.since) > proven)
		c.mu.Unlock()
		if c.ctx.Err() != nil {
			return
		}
		if !stay || errors.Is(l.why, wsconn.ErrSilentPeer) {
			c.at = (c.at + 1) % len(c.urls) // else it may have been the network alone
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
var errDrains = errors.New("the server is draining, and no other server has accepted the connection")

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
		l, err := c.reach(c.ctx, o.tries)
		o.tries++
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
