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

	"github.com/gorilla/websocket"
)

// Handler receives the messages of a connection, one at a time, on the goroutine that called Run.
// An error ends the connection: a *CloseError with its own code, any other error with 1011 and the
// error's text.
type Handler interface {
	// Text receives a complete text message, which is valid UTF-8; msg is reused after Text
	// returns.
	Text(msg []byte) error
	// Binary receives a binary message as it arrives. The bytes that Binary does not read are
	// discarded. An error of r means the end of the connection; Binary can simply return it.
	Binary(r io.Reader) error
}

// Conn is a websocket connection. Send, SendBinary and Close are safe for concurrent use; Run is
// called once.
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

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.ws.RemoteAddr() }

// Run reads until the connection ends and returns the reason, which is never nil: an error after
// Close, the handler's error, the cancellation cause of ctx, or another error of this package. When
// Run returns, the socket is closed and the writer has ended.
func (c *Conn) Run(ctx context.Context, h Handler) error {
	if !c.running.CompareAndSwap(false, true) {
		return errBusy
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

// Close ends the connection: the queued texts are sent, then the close frame, and the peer's close
// frame is awaited, all within CloseTimeout. Then the socket is closed in any case; Close waits up
// to CloseTimeout again for a handler that is still busy. A handler must not call Close, but
// returns a *CloseError instead. Further calls wait for the same end.
func (c *Conn) Close(code int, reason string) error {
	c.startClose(code, reason, errClosed)
	if !c.running.Load() {
		c.fail(errClosed)
		return nil
	}
	timer := time.NewTimer(c.cfg.CloseTimeout)
	defer timer.Stop()
	select {
	case <-c.ended:
		return nil
	case <-timer.C:
	}
	c.fail(errClosed)
	select {
	case <-c.ended:
		return nil
	case <-time.After(c.cfg.CloseTimeout):
		return fmt.Errorf("%w, but its handler has not returned", errClosed)
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
