package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// peerWork bounds the claims and results of one connection that the gateway is asked about
// at the same time; with more the reader waits.
const peerWork = 64

// peer is one connection of a worker process, at the gateway. Its reader is the goroutine of
// the request; each claim and each result has one for as long as the gateway takes; the
// pusher sends payloads.
type peer struct {
	srv    *Server
	conn   *wsconn.Conn
	ctx    context.Context //nolint:containedctx // the connection's life
	cancel context.CancelFunc
	work   chan struct{}  // a place for each request under way
	tasks  sync.WaitGroup // requests under way and the pusher
	push   pusher

	// Owned by the reader.
	sess *session // set by hello
	bye  bool     // the process ends
}

func newPeer(s *Server) *peer {
	p := &peer{srv: s, work: make(chan struct{}, peerWork)}
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	p.push = pusher{p: p, wake: make(chan struct{}, 1)}
	return p
}

// run reads until the connection ends, and returns when nothing of it runs any more but what
// the gateway still does for it.
func (p *peer) run() {
	defer p.cancel()
	p.tasks.Go(p.push.run)
	patience := time.AfterFunc(p.srv.cfg.DialTimeout, p.cancel) // hello stops it
	h := &peerReader{peer: p, patience: patience}
	err := p.conn.Run(p.ctx, h)
	patience.Stop()
	p.cancel()
	if !errors.Is(err, wsconn.ErrPeerClosed) && p.srv.ctx.Err() == nil {
		p.srv.seldom.warn("ended", "claim connection ended", "error", err, "remote", p.conn.RemoteAddr().String())
	}
	p.srv.tasks.Go(func() { // the session must not wait for what hangs
		p.tasks.Wait()
		p.push.end()
	})
}

// peerReader is the wsconn.Handler of a peer.
type peerReader struct {
	*peer

	patience *time.Timer
}

// Binary implements wsconn.Handler.
func (p *peerReader) Binary(io.Reader) error { return p.violation(errors.New("a binary message")) }

// violation ends the connection of a worker that breaks the rules.
func (p *peerReader) violation(err error) error {
	p.srv.refuse(wire.RefusedMalformed, err, "remote", p.conn.RemoteAddr().String())
	return &wsconn.CloseError{Code: wsconn.ClosePolicy, Reason: err.Error()}
}

// Text implements wsconn.Handler.
func (p *peerReader) Text(msg []byte) error {
	v, err := wire.DecodeClaim(msg)
	if errors.Is(err, wire.ErrUnknownType) && p.sess != nil {
		return nil // a later release's
	}
	if err != nil {
		return p.violation(err)
	}
	if hello, ok := v.(*wire.ClaimHello); ok != (p.sess == nil) {
		return p.violation(fmt.Errorf("%T: want hello as the first message, and only once", v))
	} else if ok {
		return p.hello(hello)
	}
	switch m := v.(type) {
	case *wire.ClaimAsk:
		return p.ask(m)
	case *wire.ClaimConfirm:
		p.sess.got(m.N)
	case *wire.ClaimDrop:
		p.sess.drop(m.N)
	case *wire.ClaimResult:
		return p.start(func() { p.finish(m) })
	case *wire.ClaimBye:
		p.bye = true
	default:
		return p.violation(fmt.Errorf("%T is a message that only gateways send", v))
	}
	return nil
}

// hello opens the connection.
func (p *peerReader) hello(m *wire.ClaimHello) error {
	if m.Protocol != wire.ClaimVersion {
		err := otherProtocol("the worker", m.Version, m.Protocol, "this gateway", p.srv.opt.Version)
		p.srv.refuse(wire.RefusedProtocol, err, "remote", p.conn.RemoteAddr().String(), "version", m.Version)
		p.send(&wire.ClaimRefused{Reason: wire.RefusedProtocol, Message: err.Error()})
		return &wsconn.CloseError{Code: wsconn.ClosePolicy, Reason: err.Error()}
	}
	p.patience.Stop()
	p.sess = p.srv.join(m.Session)
	p.sess.reconcile(m.Wanted, m.UpTo)
	p.send(&wire.ClaimWelcome{Protocol: wire.ClaimVersion, Version: p.srv.opt.Version, Gateway: p.srv.opt.Name})
	return nil
}

// start does something beside the reader, which waits while too much is under way.
func (p *peer) start(f func()) error {
	select {
	case p.work <- struct{}{}:
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	p.tasks.Go(func() {
		defer func() { <-p.work }()
		f()
	})
	return nil
}

// send queues a message. A connection that does not take it is at its end.
func (p *peer) send(v any) {
	b, err := wire.EncodeClaim(v)
	if err != nil {
		p.srv.log.Error("a message to a worker could not be encoded and was not sent", "error", err)
		return
	}
	_ = p.conn.Send(b)
}

// reject answers a claim or a result that is refused.
func (p *peer) reject(n uint64, reason string, err error, worker string) {
	p.srv.refuse(reason, err, "worker", worker)
	p.send(&wire.ClaimRefused{N: n, Reason: reason, Message: err.Error()})
}

// ask begins to answer a claim. One that is asked again because its payload has not arrived
// is answered from what the session keeps, whether or not its token has expired meanwhile.
func (p *peer) ask(m *wire.ClaimAsk) error {
	key := openKey{m.Attempt, m.Worker}
	err := p.verify(m.Attempt, m.Token)
	expired := errors.Is(err, errTokenExpired)
	if err != nil && !expired {
		p.reject(m.N, reasonOf(err), err, m.Worker)
		return nil
	}
	h, again := p.sess.begin(key, m.N, expired)
	switch {
	case again != nil:
		p.srv.metrics.resent.Inc()
		err := p.start(func() { p.deliver(m, h, again) })
		if err != nil {
			again.release()
		}
		return err
	case expired:
		p.reject(m.N, wire.RefusedExpired, err, m.Worker)
		return nil
	case h == nil:
		p.reject(m.N, wire.RefusedBusy, fmt.Errorf("%d claims of this process are open, the limit", p.srv.cfg.MaxOpen), m.Worker)
		return nil
	}
	return p.start(func() { p.grant(m, h) })
}

// verify checks the token of a claim or a result.
func (p *peer) verify(key wire.AttemptKey, token string) error {
	if key.Gateway != p.srv.opt.Name {
		return fmt.Errorf("%w: this is gateway %q, not %q", wire.ErrGone, p.srv.opt.Name, key.Gateway)
	}
	return p.srv.opt.Key.Check(token, key, time.Now())
}

// grant asks the gateway for the payload.
func (p *peer) grant(m *wire.ClaimAsk, h *held) {
	t := ticketOf(m.Attempt)
	t.Group = m.Group
	var got *payload
	var err error
	if m.Group {
		var g *wire.Group
		if g, err = p.srv.opt.Gateway.ClaimGroup(p.ctx, t, m.Worker); err == nil {
			got = payloadOfGroup(g)
		}
	} else {
		var f *wire.Frame
		var kept []rewards.ComponentResult
		if f, kept, err = p.srv.opt.Gateway.Claim(p.ctx, t, m.Worker); err == nil {
			got = payloadOf(f, kept)
		}
	}
	if err != nil {
		p.sess.refused(h)
		p.reject(m.N, reasonOf(err), err, m.Worker)
		return
	}
	p.srv.metrics.claims.Inc()
	if got = p.sess.keep(h, got); got != nil {
		p.deliver(m, h, got)
	}
}

// deliver announces a payload and has it sent. It owns the references.
func (p *peer) deliver(m *wire.ClaimAsk, h *held, got *payload) {
	announce := wire.ClaimPayload{N: m.N, Frames: got.frames, Group: got.group}
	b, err := wire.EncodeClaim(&announce)
	if err != nil { // details that JSON cannot express, or too many
		announce.Frames = make([]wire.ClaimFrame, len(got.frames))
		for i, f := range got.frames {
			announce.Frames[i] = wire.ClaimFrame{Sum: f.Sum, Partial: wire.WithoutDetails(f.Partial)}
		}
		b, err = wire.EncodeClaim(&announce)
	}
	if err != nil {
		got.release()
		p.sess.refused(h)
		p.reject(m.N, wire.RefusedFailed, fmt.Errorf("the group's components cannot be sent: %w", err), m.Worker)
		return
	}
	if p.conn.Send(b) != nil {
		got.release() // the session keeps its own for the next connection
		return
	}
	if len(got.refs) == 0 {
		return // a group that nobody is left of
	}
	p.push.add(&push{n: m.N, held: h, payload: got})
}

// finish hands a result to the gateway. A token that has expired will do: scoring may take
// longer than the token is good for.
func (p *peer) finish(m *wire.ClaimResult) {
	res := m.Result
	err := p.verify(res.Attempt, m.Token)
	if err != nil && !errors.Is(err, errTokenExpired) {
		p.reject(m.N, reasonOf(err), err, res.Worker)
		return
	}
	ctx, cancel := context.WithTimeout(p.srv.ctx, p.srv.cfg.StallTimeout)
	defer cancel()
	t := ticketOf(res.Attempt)
	t.Group = len(res.Members) > 0
	err = p.srv.opt.Gateway.Finish(ctx, t, res)
	if err == nil || errors.Is(err, wire.ErrGone) {
		p.sess.close(openKey{res.Attempt, res.Worker})
	}
	if err != nil {
		p.reject(m.N, reasonOf(err), err, res.Worker)
		return
	}
	p.srv.metrics.results.Inc()
	p.send(&wire.ClaimOK{N: m.N})
}

// reasonOf names an error for the worker.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, ErrToken):
		return wire.RefusedToken
	case errors.Is(err, wire.ErrGone):
		return wire.RefusedGone
	}
	return wire.RefusedFailed
}

// ticketOf returns as much of the attempt's ticket as the gateway needs.
func ticketOf(k wire.AttemptKey) wire.Ticket {
	return wire.Ticket{Gateway: k.Gateway, Run: k.Run, Epoch: k.Epoch, ID: k.ID, Attempt: k.Attempt}
}
