package wsconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

// Handler receives the messages of a connection, one at a time, on the goroutine
// that called Run. An error ends the connection: a *CloseError with its own code,
// any other with 1011 and the error's text.
type Handler interface {
	// Text gets a whole text message, valid UTF-8; msg is reused after the return.
	Text(msg []byte) error
	// Binary gets a binary message as it arrives. What it leaves unread is read and
	// dropped. An error of r is the connection's end; returning it is enough.
	Binary(r io.Reader) error
}

// Conn is a websocket connection. Send, SendBinary and Close are safe for
// concurrent use; Run is called once.
type Conn struct {
	// Immutable.
	ws     *websocket.Conn
	sock   *socket
	cfg    Config
	server bool

	running atomic.Bool
	writing atomic.Bool   // the writer is at work on a binary message
	ended   chan struct{} // closed when Run has returned
	failed  chan struct{} // closed by the first fail

	out outbox

	// Owned by the reader.
	text []byte

	mu    sync.Mutex
	cause error // why the connection ends; the first one stays
	err   error // set by fail: the socket is closed
}

func newConn(ws *websocket.Conn, sock *socket, cfg Config, server bool) *Conn {
	c := &Conn{ws: ws, sock: sock, cfg: cfg, server: server, ended: make(chan struct{}), failed: make(chan struct{})}
	c.out.wake = make(chan struct{}, 1)
	ws.SetPingHandler(func(data string) error {
		// One answer is kept, the latest, so that a flood of pings costs nothing
		// but its reading (RFC 6455, 5.5.3).
		c.out.setPong(data)
		return nil
	})
	return c
}

// Subprotocol returns the sub-protocol both sides agreed on.
func (c *Conn) Subprotocol() string { return c.ws.Subprotocol() }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.ws.RemoteAddr() }

// Run reads until the connection ends and returns why, never nil: ErrClosed after
// Close, the handler's error, the context's error, or one of the sentinels. When it returns
// the socket is closed and the writer has ended.
func (c *Conn) Run(ctx context.Context, h Handler) error {
	if !c.running.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer close(c.ended)
	c.sock.start(c.cfg.ReadTimeout)
	stop := context.AfterFunc(ctx, func() {
		c.startClose(CloseGoingAway, "going away", context.Cause(ctx))
	})
	defer stop()
	writerDone := make(chan struct{})
	go func() { // the writer; ends when the connection has failed or the close frame is out
		defer close(writerDone)
		if err := c.writeLoop(); err != nil {
			c.fail(err)
		}
	}()
	err := c.readLoop(h)
	if errors.Is(err, ErrPeerClosed) {
		// What is queued is for nobody; the answer to the close frame is not.
		c.out.stop()
		c.sock.closing(time.Now().Add(c.cfg.CloseTimeout))
		_ = c.sock.SetWriteDeadline(time.Now().Add(c.cfg.CloseTimeout))
		<-writerDone
	}
	c.fail(err)
	<-writerDone
	return c.why()
}

// Close ends the connection: texts queued so far are sent, then the close frame, and
// the peer's is waited for, all within CloseTimeout. Then the socket is closed in any
// case; a handler that is still busy is waited for as long again. A handler must not
// call Close; it returns a *CloseError instead. Further calls wait for the same end.
func (c *Conn) Close(code int, reason string) error {
	c.startClose(code, reason, ErrClosed)
	if !c.running.Load() {
		c.fail(ErrClosed)
		return nil
	}
	timer := time.NewTimer(c.cfg.CloseTimeout)
	defer timer.Stop()
	select {
	case <-c.ended:
		return nil
	case <-timer.C:
	}
	c.fail(ErrClosed)
	select {
	case <-c.ended:
		return nil
	case <-time.After(c.cfg.CloseTimeout):
		return fmt.Errorf("%w, but its handler has not returned", ErrClosed)
	}
}

// startClose begins the close handshake; only the first call counts.
func (c *Conn) startClose(code int, reason string, cause error) {
	c.mu.Lock()
	first := c.cause == nil
	if first {
		c.cause = cause
	}
	c.mu.Unlock()
	if !first {
		return
	}
	c.sock.closing(time.Now().Add(c.cfg.CloseTimeout))
	c.out.setClose(code, reason)
}

// isClosing reports whether the close handshake has begun.
func (c *Conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause != nil
}

// fail closes the socket; the first error stays.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if c.cause == nil {
		c.cause = err
	}
	c.err = c.cause
	c.out.shut(c.cause)
	close(c.failed)
	c.sock.abort()
}

func (c *Conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// readLoop hands messages to h until the connection ends.
func (c *Conn) readLoop(h Handler) error {
	for {
		kind, r, err := c.ws.NextReader()
		if err != nil {
			return c.readError(err)
		}
		c.sock.message(time.Now().Add(c.cfg.MessageTimeout))
		m := &message{c: c, r: r, most: c.cfg.MessageBytes}
		if kind == websocket.TextMessage {
			m.most = c.cfg.TextBytes
		}
		m.left = m.most
		if !c.isClosing() {
			if kind == websocket.TextMessage {
				err = c.readText(h, m)
			} else {
				err = h.Binary(m)
			}
			if err != nil && (m.err == nil || errors.Is(m.err, io.EOF)) {
				c.closeFor(err)
			}
		}
		if err := m.drain(); err != nil {
			return err
		}
		m.err = ErrClosed
		c.sock.message(time.Time{})
	}
}

// readText reads a whole text message and hands it on.
func (c *Conn) readText(h Handler, m *message) error {
	if c.text == nil {
		c.text = make([]byte, 0, 4096)
	}
	msg := c.text[:0]
	for {
		n, err := m.Read(msg[len(msg):cap(msg)])
		msg = msg[:len(msg)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(msg) == cap(msg) {
			msg = append(msg, 0)[:len(msg)]
		}
	}
	if cap(msg) <= 64<<10 {
		c.text = msg // a rare big text is not kept
	}
	if !utf8.Valid(msg) {
		return ErrNotUTF8
	}
	return h.Text(msg)
}

// closeFor begins the close handshake that an error of the handler asks for.
func (c *Conn) closeFor(err error) {
	code, reason := CloseInternal, err.Error()
	var ce *CloseError
	switch {
	case errors.As(err, &ce):
		code, reason = ce.Code, ce.Reason
	case errors.Is(err, ErrNotUTF8):
		code = CloseNotUTF8
	}
	c.startClose(code, reason, err)
}

// message is one incoming message as the handler sees it.
type message struct {
	c    *Conn
	r    io.Reader
	most int64 // the limit
	left int64 // bytes until the limit
	err  error // the first error, io.EOF included
}

// Read reads on. A message beyond its limit begins the close handshake.
func (m *message) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	// One byte more than allowed, to tell the end from too much.
	if int64(len(p)) > m.left+1 {
		p = p[:m.left+1]
	}
	n, err := m.r.Read(p)
	m.left -= int64(n)
	switch {
	case m.left < 0:
		m.err = fmt.Errorf("%w: the limit is %d bytes", ErrTooBig, m.most)
		m.c.startClose(CloseTooBig, m.err.Error(), m.err)
		return 0, m.err
	case errors.Is(err, io.EOF):
		m.err = io.EOF
		return n, io.EOF
	case err != nil:
		m.err = m.c.readError(err)
		return n, m.err
	}
	return n, nil
}

// drain reads to the end of the message, of one beyond its limit too: the peer sees
// the close frame only if its bytes are taken meanwhile. The close handshake bounds it.
func (m *message) drain() error {
	_, err := io.Copy(io.Discard, m)
	if errors.Is(m.err, ErrTooBig) {
		if _, err = io.Copy(io.Discard, m.r); err != nil {
			return m.c.readError(err)
		}
	}
	return err
}

// readError names the reason why reading failed.
func (c *Conn) readError(err error) error {
	var closed *websocket.CloseError
	var netErr net.Error
	switch {
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
		return fmt.Errorf("%w: %w", ErrPeerClosed, &CloseError{Code: closed.Code, Reason: closed.Text})
	case errors.As(err, &netErr) && netErr.Timeout():
		if c.sock.overdue() {
			return fmt.Errorf("%w: not complete after %s", ErrSlowMessage, c.cfg.MessageTimeout)
		}
		return fmt.Errorf("%w: nothing came for %s", ErrSilentPeer, c.cfg.ReadTimeout)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
