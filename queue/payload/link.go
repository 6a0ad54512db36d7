package payload

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/wire"
)

// link is one connection to a gateway. The connection's goroutine reads it.
type link struct {
	c          *Client
	connection *connection
	conn       *wsconn.Conn
	useful     atomic.Bool   // it has answered something
	over       chan struct{} // closed when it has ended and is no longer the connection's

	// Owned by the reader.
	welcomed bool
	patience *time.Timer // for the welcome
	refused  error       // the gateway will not speak with us

	mu    sync.Mutex
	ended bool             // guarded by mu
	calls map[uint64]*call // guarded by mu
	gots  []uint64         // payloads that have arrived, not told yet; guarded by mu
}

func newLink(l *connection, conn *wsconn.Conn) *link {
	return &link{c: l.c, connection: l, conn: conn, calls: map[uint64]*call{}, over: make(chan struct{})}
}

// hello says who this is and what it wants of the gateway.
func (k *link) hello() *wire.ClaimHello {
	m := &wire.ClaimHello{Protocol: wire.ClaimVersion, Version: k.c.opt.Version, Session: k.c.session}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	m.UpTo = k.c.serial
	for n := range k.c.wanted {
		m.Wanted = append(m.Wanted, n)
	}
	return m
}

// run says hello and reads until the connection ends. All calls have an answer then.
func (k *link) run() error {
	ctx, cancel := context.WithCancel(k.c.ctx)
	defer cancel()
	k.patience = time.AfterFunc(k.c.cfg.DialTimeout, cancel)
	k.send(k.hello())
	err := k.conn.Run(ctx, k)
	k.patience.Stop()
	if k.refused != nil {
		err = k.refused
	}
	k.mu.Lock()
	left := k.calls
	k.calls, k.ended = nil, true
	k.mu.Unlock()
	k.connection.down(k)
	close(k.over)
	lost := fmt.Errorf("%w: %w", errLost, err)
	if k.c.ctx.Err() != nil {
		lost = errClosed
	}
	for _, x := range left {
		x.releaseDrafts()
		x.err = lost
		close(x.done)
	}
	return err
}

func (k *link) send(v any) {
	b, err := wire.EncodeClaim(v)
	if err != nil {
		k.c.log.Error("a message to a gateway could not be encoded and was not sent", "error", err)
		return
	}
	_ = k.conn.Send(b) // a connection that does not take it is at its end
}

// bye says that nobody comes back.
func (k *link) bye() { k.send(&wire.ClaimBye{}) }

// got says that a payload has arrived. Those that come while the writer is busy are told in
// one message.
func (k *link) got(n uint64) {
	k.mu.Lock()
	k.gots = append(k.gots, n)
	first := len(k.gots) == 1
	k.mu.Unlock()
	if first {
		_ = k.conn.SendLater(func() []byte {
			k.mu.Lock()
			ns := k.gots
			k.gots = nil
			k.mu.Unlock()
			b, _ := wire.EncodeClaim(&wire.ClaimConfirm{N: ns})
			return b
		})
	}
}

// await waits until a connection that does not work any more is out of the way.
func (k *link) await(ctx context.Context) {
	select {
	case <-k.over:
	case <-ctx.Done():
	}
}

// drop says that nobody wants a claim any more.
func (k *link) drop(n uint64) { k.send(&wire.ClaimDrop{N: []uint64{n}}) }

// ask sends a question and notes that it waits for an answer.
func (k *link) ask(n uint64, b []byte, limit int64) (*call, error) {
	x := &call{done: make(chan struct{}), limit: limit}
	k.mu.Lock()
	ended := k.ended
	if !ended {
		k.calls[n] = x
	}
	k.mu.Unlock()
	if ended {
		return nil, errLost
	}
	if err := k.conn.Send(b); err != nil {
		k.abandon(n, x)
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	return x, nil
}

// claim asks for a payload and waits until it is here.
func (k *link) claim(ctx context.Context, ask wire.ClaimAsk, limit int64) (*call, error) {
	b, err := wire.EncodeClaim(&ask)
	if err != nil {
		return nil, err
	}
	x, err := k.ask(ask.N, b, max(limit, 1))
	if err != nil {
		return nil, err
	}
	stall := time.NewTicker(k.c.cfg.StallTimeout)
	defer stall.Stop()
	for moved := int64(0); ; {
		select {
		case <-x.done:
			return x, x.err
		case <-ctx.Done():
			k.abandon(ask.N, x)
			return nil, context.Cause(ctx)
		case <-stall.C:
			if now := x.moved.Load(); now != moved {
				moved = now
				continue
			}
			k.abandon(ask.N, x)
			return nil, fmt.Errorf("%w: no message for %s", errStalled, k.c.cfg.StallTimeout)
		}
	}
}

// finish sends a result and waits for the answer.
func (k *link) finish(ctx context.Context, n uint64, b []byte) error {
	x, err := k.ask(n, b, 0)
	if err != nil {
		return err
	}
	select {
	case <-x.done:
		return x.err
	case <-ctx.Done():
		k.abandon(n, x)
		return context.Cause(ctx)
	}
}

// abandon ends a call that nobody waits for any more.
func (k *link) abandon(n uint64, x *call) {
	k.mu.Lock()
	busy := x.busy
	x.dropped = true
	mine := k.calls[n] == x
	delete(k.calls, n)
	k.mu.Unlock()
	switch {
	case busy: // the reader gives the drafts back
	case mine:
		x.releaseDrafts()
	default: // it was complete
		<-x.done
		x.releaseDrafts()
	}
}

// take lends the reader a call; nil: nobody waits for it.
func (k *link) take(n uint64) *call {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.calls[n]
	if x != nil {
		x.busy = true
	}
	return x
}

// giveBack ends what take began. With done the call has its answer.
func (k *link) giveBack(n uint64, x *call, done bool) {
	k.mu.Lock()
	x.busy = false
	dropped := x.dropped
	if done {
		delete(k.calls, n)
	}
	k.mu.Unlock()
	switch {
	case dropped:
		x.releaseDrafts()
	case done:
		k.useful.Store(true)
		close(x.done)
	}
}

// answer ends a call with an error, or with nil.
func (k *link) answer(n uint64, err error) {
	if x := k.take(n); x != nil {
		if err == nil && x.limit > 0 {
			err = fmt.Errorf("%w: ok in answer to a claim", errRefused)
		}
		x.releaseDrafts()
		x.err = err
		k.giveBack(n, x, true)
	}
}

// violation ends the connection to a gateway that breaks the rules.
func violation(format string, args ...any) error {
	return &wsconn.CloseError{Code: wsconn.ClosePolicy, Reason: fmt.Sprintf(format, args...)}
}

// Text implements wsconn.Handler.
func (k *link) Text(msg []byte) error {
	v, err := wire.DecodeClaim(msg)
	if errors.Is(err, wire.ErrUnknownType) {
		return nil // a later release's
	}
	if err != nil {
		return violation("%v", err)
	}
	switch m := v.(type) {
	case *wire.ClaimWelcome:
		return k.welcome(m)
	case *wire.ClaimPayload:
		return k.payload(m)
	case *wire.ClaimOK:
		k.answer(m.N, nil)
	case *wire.ClaimRefused:
		if m.N == 0 {
			k.refused = refusal(m)
			return violation("refused")
		}
		k.answer(m.N, refusal(m))
	default:
		return violation("%T is a message that only workers send", v)
	}
	return nil
}

// welcome makes the connection the connection's.
func (k *link) welcome(m *wire.ClaimWelcome) error {
	switch {
	case k.welcomed:
		return violation("a second welcome")
	case m.Protocol != wire.ClaimVersion:
		k.refused = fmt.Errorf("%w: %w", errRefused, otherProtocol("the gateway", m.Version, m.Protocol, "this worker", k.c.opt.Version))
		return violation("%v", k.refused)
	}
	k.patience.Stop()
	k.welcomed = true
	k.connection.up(k)
	return nil
}

// otherProtocol says that the two sides are of releases that do not understand each other.
func otherProtocol(peer, peerVersion string, protocol int, here, version string) error {
	return fmt.Errorf("%s (release %.64s) uses protocol %d of %s, %s (release %s) uses protocol %d: install the same release on both sides",
		peer, cmp.Or(peerVersion, "unknown"), protocol, wire.ClaimProtocol, here, cmp.Or(version, "unknown"), wire.ClaimVersion)
}

// payload makes room for what is announced.
func (k *link) payload(m *wire.ClaimPayload) error {
	x := k.take(m.N)
	if x == nil {
		return nil // dropped meanwhile
	}
	var size int64
	for _, f := range m.Frames {
		if size += f.Sum.Len; f.Sum.Len > k.c.opt.Limits.MessageBytes || size > x.limit {
			x.err = fmt.Errorf("%w: payload of more bytes than its ticket's %d, or a frame above %d", errRefused, x.limit, k.c.opt.Limits.MessageBytes)
			k.giveBack(m.N, x, true)
			return nil
		}
	}
	if x.payload != nil {
		k.giveBack(m.N, x, false)
		return violation("claim %d is announced twice", m.N)
	}
	x.payload = m
	x.drafts = make([]*wire.Draft, len(m.Frames))
	for i, f := range m.Frames {
		x.drafts[i] = k.c.opt.Buffers.Draft(int(f.Sum.Len))
	}
	x.moved.Add(1)
	k.giveBack(m.N, x, x.full()) // a group may have nobody left
	return nil
}

// Binary implements wsconn.Handler: a chunk goes from the socket into the frame's buffer.
func (k *link) Binary(r io.Reader) error {
	var head [wire.ClaimChunkHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return violation("a chunk without the number of a claim")
		}
		return err
	}
	n := binary.LittleEndian.Uint64(head[:])
	x := k.take(n)
	if x == nil {
		return nil // dropped meanwhile; the rest is read and forgotten
	}
	moved, err := x.fill(r)
	x.moved.Add(int64(moved))
	k.c.metrics.bytes.Add(float64(moved))
	k.giveBack(n, x, err == nil && x.full())
	return err
}
