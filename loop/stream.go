package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Protocol is the websocket sub-protocol of the stream.
const Protocol = "rewardloop.v1"

// Close codes of the stream. 1001 and 1012 invite a client to come again at once.
const (
	closeGoingAway = 1001
	closePolicy    = 1008
)

// helloTimeout bounds the wait for a client's first message.
const helloTimeout = 10 * time.Second

// stream is one websocket connection; its methods are called by the connection's
// one reader goroutine.
type stream struct {
	m       *Manager
	conn    conn
	session *Session // nil until hello
	greeted chan struct{}
	ctx     context.Context //nolint:containedctx // of Serve; the takes that wait end with it
	takes   sync.WaitGroup  // goroutines that wait for rewards
	open    atomic.Int32    // how many of them
}

// Serve speaks the stream protocol on a connection until it ends. It returns nil
// when the client left in order.
func (m *Manager) Serve(ctx context.Context, c *wsconn.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st := &stream{m: m, conn: c, greeted: make(chan struct{}), ctx: ctx}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer st.takes.Wait()
	wg.Go(func() { // closes a connection that never says hello
		t := time.NewTimer(helloTimeout)
		defer t.Stop()
		select {
		case <-st.greeted:
		case <-ctx.Done():
		case <-t.C:
			_ = c.Close(closePolicy, "no hello within 10 s") // the reader sees it
		}
	})
	defer cancel()
	err := c.Run(ctx, st)
	if st.session != nil {
		m.detach(st.session, c)
	}
	return err
}

// Text handles a control message.
func (st *stream) Text(msg []byte) error {
	v, err := wire.DecodeControl(msg)
	if err != nil {
		return st.complain(err)
	}
	if hello, ok := v.(*wire.Hello); ok {
		return st.hello(*hello)
	}
	if st.session == nil {
		return st.complain(fmt.Errorf("%w: the first message must be hello, not %T", rewards.Malformed, v))
	}
	switch msg := v.(type) {
	case *wire.Got:
		st.session.confirm(msg.Seq)
	case *wire.Cancel:
		st.m.cancel(st.session, msg.IDs)
	case *wire.Step:
		if err := st.m.declare(st.session, msg); err != nil {
			return st.complain(err)
		}
	case *wire.EndOfStep:
		if err := st.m.endStep(st.session, msg); err != nil {
			return st.complain(err)
		}
	case *wire.Take:
		return st.take(msg)
	default:
		return st.complain(fmt.Errorf("%w: %T is not a client's message", rewards.Malformed, v))
	}
	return nil
}

// complain answers a bad message on its own; the connection lives.
func (st *stream) complain(err error) error {
	st.m.metrics.refused.WithLabelValues(string(rewards.ClassOf(err))).Inc()
	b, encErr := wire.EncodeControl(&wire.Error{Code: rewards.ClassOf(err), Message: err.Error()})
	if encErr != nil {
		return encErr
	}
	return st.conn.Send(b)
}

// hello opens or resumes a session.
func (st *stream) hello(h wire.Hello) error {
	if st.session != nil {
		return st.complain(fmt.Errorf("%w: hello was said before on this connection", rewards.Malformed))
	}
	s, err := st.m.attach(h, st.conn)
	if err != nil {
		if lost := st.complain(err); lost != nil {
			return lost
		}
		return &wsconn.CloseError{Code: closePolicy, Reason: "hello refused: " + string(rewards.ClassOf(err))}
	}
	st.session = s
	close(st.greeted)
	return nil
}

// checkRun refuses names that would be confused or abused.
func checkRun(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: hello needs a run", rewards.Malformed)
	case strings.HasPrefix(name, "_"):
		return fmt.Errorf("%w: run %q: names that begin with _ are the server's own", rewards.Malformed, name)
	}
	return nil
}

// Binary takes one sample from the socket.
func (st *stream) Binary(r io.Reader) error {
	if st.session == nil {
		return st.complain(fmt.Errorf("%w: a sample before hello", rewards.Malformed))
	}
	h, err := wire.ReadHeader(r, st.m.limits())
	if err != nil {
		return st.reject(err)
	}
	if err := st.m.spend(st.session, h); err != nil {
		return st.reject(err)
	}
	size, received := h.Size, time.Now()
	frame, err := h.ReadBody(r, st.m.buffers)
	if err != nil {
		st.m.released(st.session, size)
		return st.reject(err)
	}
	session := st.session
	frame.OnRelease(func() { session.m.released(session, size) })
	if err := st.m.accept(session, frame, received); err != nil {
		return st.reject(err)
	}
	return nil
}

// reject answers a bad sample by its id, or the message if the id is unknown. An
// error of the socket itself ends the connection.
func (st *stream) reject(err error) error {
	class := rewards.ClassOf(err)
	if class == rewards.Internal || class == rewards.Timeout || class == rewards.Cancelled {
		return err
	}
	id := ""
	var fe *wire.FrameError
	var re *refusal
	switch {
	case errors.As(err, &fe):
		id = fe.ID
	case errors.As(err, &re):
		id = re.id
	}
	if id == "" {
		return st.complain(err)
	}
	st.m.metrics.refused.WithLabelValues(string(class)).Inc()
	st.m.metrics.outcomes.WithLabelValues(string(rewards.Rejected)).Inc()
	st.session.send(&wire.Result{
		Type: "result", ID: id, Outcome: rewards.Rejected, ExtraInfo: map[string]any{"rewardloop/valid": false},
		Errors: []rewards.TermError{{Class: class, Message: err.Error()}},
	})
	return nil
}

// maxAnswerBytes is what goes into a connection's outbox, of 8 MiB, beside results.
const maxAnswerBytes = 6 << 20

// maxTakes bounds the questions that one connection may have open.
const maxTakes = 64

// take answers a client's question when its chunk is there.
func (st *stream) take(t *wire.Take) error {
	if st.open.Add(1) > maxTakes {
		st.open.Add(-1)
		return st.refuseTake(t, fmt.Errorf("%w: %d takes are open on this connection", rewards.Unavailable, maxTakes))
	}
	session := st.session
	st.takes.Go(func() { // ends with its wait or with the connection
		defer st.open.Add(-1)
		res, err := st.m.Rewards(st.ctx, session.run.name, session.epoch, *t)
		var b []byte
		if err == nil {
			b, err = wire.EncodeControl(res)
		}
		if len(b) > maxAnswerBytes { // one group alone is as large
			err = fmt.Errorf("%w: chunk %d has %d bytes and an answer holds %d: read it over HTTP", rewards.TooLarge, t.Chunk, len(b), maxAnswerBytes)
		}
		if errors.Is(err, ErrStopped) {
			return // Stop ends the connection, and the next gateway says what became of the step
		}
		if err != nil {
			if st.ctx.Err() == nil {
				_ = st.refuseTake(t, err) // the reader sees a connection that ends
			}
			return
		}
		_ = st.conn.Send(b) // likewise
	})
	return nil
}

// refuseTake answers a question that has no answer.
func (st *stream) refuseTake(t *wire.Take, err error) error {
	class := rewards.ClassOf(err)
	if class == rewards.Internal {
		class = rewards.Unavailable
	}
	b, encErr := wire.EncodeControl(&wire.Error{Code: class, Message: err.Error(), Req: t.Req})
	if encErr != nil {
		return encErr
	}
	return st.conn.Send(b)
}
