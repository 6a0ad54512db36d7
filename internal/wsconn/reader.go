package wsconn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

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
		m.err = errClosed
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
		return errNotUTF8
	}
	return h.Text(msg)
}

// closeFor begins the close handshake that an error of the handler asks for.
func (c *Conn) closeFor(err error) {
	code, reason := closeInternal, err.Error()
	var ce *CloseError
	switch {
	case errors.As(err, &ce):
		code, reason = ce.Code, ce.Reason
	case errors.Is(err, errNotUTF8):
		code = closeNotUTF8
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
		m.err = fmt.Errorf("%w: the limit is %d bytes", errTooBig, m.most)
		m.c.startClose(closeTooBig, m.err.Error(), m.err)
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
	if errors.Is(m.err, errTooBig) {
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
			return fmt.Errorf("%w: not complete after %s", errSlowMessage, c.cfg.MessageTimeout)
		}
		return fmt.Errorf("%w: no message for %s", ErrSilentPeer, c.cfg.ReadTimeout)
	}
	return fmt.Errorf("%w: %w", errLost, err)
}
