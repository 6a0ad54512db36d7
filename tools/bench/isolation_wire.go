package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// rude is a connection that speaks the protocol and ends when it likes, without a farewell.
type rude struct {
	conn    *websocket.Conn
	welcome *wire.Welcome
}

// dialRude connects and waits for the welcome.
func dialRude(ctx context.Context, addr string, hello *wire.Hello) (*rude, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	d := websocket.Dialer{Subprotocols: []string{wire.Protocol}}
	conn, resp, err := d.DialContext(ctx, "ws://"+addr+"/v1/stream", nil)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	c := &rude{conn: conn}
	end, _ := ctx.Deadline()
	err = errors.Join(conn.SetReadDeadline(end), conn.SetWriteDeadline(end))
	text, e := wire.EncodeControl(hello)
	if err = errors.Join(err, e); err == nil {
		err = conn.WriteMessage(websocket.TextMessage, text)
	}
	for err == nil && c.welcome == nil {
		var m any
		if m, err = c.read(); err == nil {
			c.welcome, _ = m.(*wire.Welcome)
			if refused, ok := m.(*wire.Error); ok {
				err = fmt.Errorf("the server refuses: %w: %s", refused.Code, refused.Message)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, conn.SetReadDeadline(time.Time{})
}

// read returns the next message.
func (c *rude) read() (any, error) {
	_, text, err := c.conn.ReadMessage()
	if err != nil {
		return nil, err
	}
	return wire.DecodeControl(text)
}

// send sends a frame.
func (c *rude) send(frame []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	return c.conn.WriteMessage(websocket.BinaryMessage, frame)
}

// drop closes the socket as a process that dies does.
func (c *rude) drop() { _ = c.conn.UnderlyingConn().Close() }

// frameOf is a sample of the storm, as it is sent.
func frameOf(i int64) (id string, frame []byte, err error) {
	s := stormSample("r", i)
	m, err := wire.Encode(&s, wire.Options{})
	if err != nil {
		return "", nil, err
	}
	return s.ID, m.Bytes(), nil
}

// inLanes does something for each of stormLanes clients, and adds up what is left.
func inLanes(do func(lane int) (int, error)) (int, error) {
	var left atomic.Int64
	errs := make([]error, stormLanes)
	var wg sync.WaitGroup
	for lane := range errs {
		wg.Go(func() {
			var n int
			n, errs[lane] = do(lane)
			left.Add(int64(n))
		})
	}
	wg.Wait()
	return int(left.Load()), errors.Join(errs...)
}

// takeovers lets connections of the same run, client and lane follow one another, each with
// samples in flight when the next comes.
func takeovers(ctx context.Context, addr string, times int) (int, error) {
	var ids atomic.Int64
	return inLanes(func(lane int) (_ int, err error) {
		var before *rude
		defer func() {
			if before != nil {
				before.drop()
			}
		}()
		for range times / stormLanes {
			c, err := dialRude(ctx, addr, &wire.Hello{Run: "storm", Client: "c", Lane: lane})
			if err != nil {
				return 0, fmt.Errorf("takeover: %w", err)
			}
			if before != nil {
				before.drop() // it was closed by the server
			}
			before = c
			for range 2 {
				_, frame, err := frameOf(ids.Add(1))
				if err == nil {
					err = c.send(frame)
				}
				if err != nil {
					return 0, fmt.Errorf("takeover: %w", err)
				}
			}
			if err := pause(ctx); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
}

// resumes lets connections break with samples in flight and come back to their session.
func resumes(ctx context.Context, addr string, times int) (int, error) {
	return inLanes(func(lane int) (int, error) {
		p := &patient{run: "storm" + strconv.Itoa(lane), open: map[string][]byte{}, above: map[uint64]bool{}}
		for range times / stormLanes {
			if err := p.hop(ctx, addr, func() bool { return pause(ctx) == nil && false }); err != nil {
				return 0, fmt.Errorf("resume: %w", err)
			}
		}
		p.full = true
		end := time.Now().Add(overtime)
		err := p.hop(ctx, addr, func() bool { return sleep(ctx, 10*time.Millisecond) == nil && time.Now().Before(end) })
		return len(p.open), err
	})
}

// patient is a client that keeps its samples until it has their results.
type patient struct {
	run     string
	session string
	ids     int64
	full    bool // sends nothing new

	mu    sync.Mutex
	open  map[string][]byte // frames without a result, by id; guarded by mu
	got   uint64            // every result up to it has come; guarded by mu
	above map[uint64]bool   // results that came beyond it; guarded by mu
}

// mostOpen is how many samples without a result keep a patient from sending more.
const mostOpen = 64

// hop is one connection: it resumes the session, sends what has no result and two samples
// more, reads for as long as stay says so and something is open, and breaks.
func (p *patient) hop(ctx context.Context, addr string, stay func() bool) error {
	hello := &wire.Hello{Run: p.run}
	if p.session != "" {
		hello.Resume = &wire.Resume{Session: p.session, Confirmed: p.confirmed()}
	}
	c, err := dialRude(ctx, addr, hello)
	if err != nil {
		return err
	}
	defer c.drop()
	if !c.welcome.Resumed && p.session != "" {
		return errors.New("the server has forgotten the session")
	}
	p.session = c.welcome.Session
	frames, err := p.due()
	if err != nil {
		return err
	}
	read := make(chan struct{})
	go func() { // ends with the connection
		defer close(read)
		for {
			m, err := c.read()
			if err != nil {
				return
			}
			if res, ok := m.(*wire.Result); ok {
				p.take(res)
			}
		}
	}()
	for _, f := range frames {
		if err = c.send(f); err != nil {
			break
		}
	}
	for err == nil && stay() && p.waiting() {
		continue
	}
	c.drop()
	<-read
	return err
}

// due are the frames to send.
func (p *patient) due() ([][]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.full && len(p.open) < mostOpen {
		for range 2 {
			p.ids++
			id, frame, err := frameOf(p.ids)
			if err != nil {
				return nil, err
			}
			p.open[id] = frame
		}
	}
	var frames [][]byte
	for _, f := range p.open {
		frames = append(frames, f)
	}
	return frames, nil
}

// take notes a result; one that is rejected is no answer, and is sent again.
func (p *patient) take(res *wire.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.above[res.Seq] = true
	for p.above[p.got+1] {
		p.got++
		delete(p.above, p.got)
	}
	if res.Outcome != rewards.Rejected {
		delete(p.open, res.ID)
	}
}

func (p *patient) confirmed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got
}

func (p *patient) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open) > 0
}
