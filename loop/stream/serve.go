package stream

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

// Gateway handles the messages of clients. The goroutines of the connections call its methods
// without holding any mutex. The errors wrap the rewards.Class that is sent to the client.
type Gateway interface {
	// Hello opens or resumes the session that a client requests, and attaches it to the connection
	// (Flow.Attach).
	Hello(h wire.Hello, c Conn) (*Session, error)
	// Left reports the end of a connection on which Hello has succeeded (Flow.Detach).
	Left(s *Session, c Conn)
	// Receive reads one sample, accounts for it (Flow.Spend), and accepts it. An error that
	// identifies the sample, a *wire.FrameError or an error with the method SampleID() string,
	// rejects this sample; an error without a class is an error of the socket.
	Receive(s *Session, r io.Reader) error
	// Message handles a control message other than hello and fetch.
	Message(s *Session, msg any) error
	// Rewards waits for a chunk of a step's rewards. If both results are nil, the gateway has
	// stopped and ends the connection; the client repeats the request on its next connection.
	Rewards(ctx context.Context, s *Session, t *wire.Fetch) (*wire.Rewards, error)
	// Phase handles a phase that a client's run has begun, and returns when the actions of the
	// phase are done. The error describes the actions that failed.
	Phase(ctx context.Context, s *Session, name string) error
	// Refused counts a sample or another message that was answered with an error.
	Refused(class rewards.Class, sample bool)
}

// Socket is a connection that passes its messages to a handler until the connection ends.
type Socket interface {
	Conn
	Run(ctx context.Context, h wsconn.Handler) error
}

var _ Socket = (*wsconn.Conn)(nil)

// helloTimeout bounds the wait for a client's first message.
const helloTimeout = 10 * time.Second

// handler takes the messages of one connection; its methods are called by the connection's
// one reader goroutine.
type handler struct {
	gateway Gateway
	conn    Conn
	session *Session // nil until hello
	greeted chan struct{}
	fetches fetches
}

// Serve runs the stream protocol on a connection until the connection ends. Serve returns nil if
// the client closed the connection normally. A client must send hello within 10 s.
func Serve(ctx context.Context, g Gateway, c Socket) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &handler{gateway: g, conn: c, greeted: make(chan struct{}), fetches: fetches{gateway: g, conn: c, ctx: ctx}}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer h.fetches.running.Wait()
	wg.Go(func() { // closes a connection that never says hello
		t := time.NewTimer(helloTimeout)
		defer t.Stop()
		select {
		case <-h.greeted:
		case <-ctx.Done():
		case <-t.C:
			_ = c.Close(wsconn.ClosePolicy, "no hello within 10 s") // the reader sees it
		}
	})
	defer cancel()
	err := c.Run(ctx, h)
	if h.session != nil {
		g.Left(h.session, c)
	}
	return err
}

// Text handles a control message.
func (h *handler) Text(msg []byte) error {
	v, err := wire.DecodeControl(msg)
	if err != nil {
		return h.complain(err)
	}
	if hello, ok := v.(*wire.Hello); ok {
		return h.hello(*hello)
	}
	name, ofClient := wire.ControlName(v)
	switch {
	case h.session == nil:
		return h.complain(fmt.Errorf("%w: the first message is %s, want hello", rewards.Malformed, name))
	case !ofClient:
		return h.complain(fmt.Errorf("%w: %s is not a client's message", rewards.Malformed, name))
	}
	if question, ok := v.(*wire.Fetch); ok {
		return h.fetches.fetch(h.session, question)
	}
	if phase, ok := v.(*wire.Phase); ok {
		return h.fetches.phase(h.session, phase)
	}
	if err := h.gateway.Message(h.session, v); err != nil {
		return h.complain(err)
	}
	return nil
}

// complain answers a bad message on its own; the connection lives.
func (h *handler) complain(err error) error {
	h.gateway.Refused(rewards.ClassOf(err), false)
	b, encErr := wire.EncodeControl(&wire.Error{Code: rewards.ClassOf(err), Message: rewards.MessageOf(err)})
	if encErr != nil {
		return encErr
	}
	return h.conn.Send(b)
}

// hello opens or resumes a session.
func (h *handler) hello(msg wire.Hello) error {
	if h.session != nil {
		return h.complain(fmt.Errorf("%w: a second hello on this connection", rewards.Malformed))
	}
	s, err := h.gateway.Hello(msg, h.conn)
	if err != nil {
		if lost := h.complain(err); lost != nil {
			return lost
		}
		return &wsconn.CloseError{Code: wsconn.ClosePolicy, Reason: "hello refused: " + string(rewards.ClassOf(err))}
	}
	h.session = s
	close(h.greeted)
	return nil
}

// Binary takes one sample from the socket.
func (h *handler) Binary(r io.Reader) error {
	if h.session == nil {
		return h.complain(fmt.Errorf("%w: a sample before hello", rewards.Malformed))
	}
	if err := h.gateway.Receive(h.session, r); err != nil {
		return h.reject(err)
	}
	return nil
}

// reject answers a bad sample by its id, or the message if the id is unknown. An
// error of the socket itself ends the connection.
func (h *handler) reject(err error) error {
	class := rewards.ClassOf(err)
	if class == rewards.Internal || class == rewards.Timeout || class == rewards.Cancelled {
		return err
	}
	id := sampleOf(err)
	if id == "" {
		return h.complain(err)
	}
	h.gateway.Refused(class, true)
	h.session.Send(&wire.Result{
		Type: "result", ID: id, Outcome: rewards.Rejected, ExtraInfo: map[string]any{"rewardloop/valid": false},
		Errors: []rewards.ComponentError{{Class: class, Message: Reason(err)}},
	})
	return nil
}

// Reason returns the reason of a sample's error, without the class and the id, which are in
// separate fields.
func Reason(err error) string {
	var frame *wire.FrameError
	if errors.As(err, &frame) && frame.Err != nil {
		return frame.Err.Error()
	}
	var refusal interface{ Reason() string }
	if errors.As(err, &refusal) {
		return refusal.Reason()
	}
	return rewards.MessageOf(err)
}

// sampleOf is the id of the sample that an error is about, if it names one.
func sampleOf(err error) string {
	if frame, ok := errors.AsType[*wire.FrameError](err); ok {
		return frame.ID
	}
	var named interface{ SampleID() string }
	if errors.As(err, &named) {
		return named.SampleID()
	}
	return ""
}
