package wsconn

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gorilla/websocket"
)

// fragmentBytes is the most that is written between two looks at pongs and pings.
const fragmentBytes = 1 << 20

// writeLoop is the writer. It ends with nil when the close frame is written or the
// connection has failed.
func (c *Conn) writeLoop() error {
	ping := time.NewTicker(c.cfg.PingInterval)
	defer ping.Stop()
	for {
		b := c.out.take()
		if b.stopped {
			b.refuse(ErrPeerClosed)
			return nil
		}
		if b.pong != nil {
			if err := c.control(websocket.PongMessage, []byte(*b.pong)); err != nil {
				b.refuse(err)
				return err
			}
		}
		switch {
		case len(b.texts) > 0:
			if err := c.writeTexts(b.texts); err != nil {
				return err
			}
			c.out.wrote(b)
		case b.binary != nil:
			c.writing.Store(true)
			err := c.writeBinary(b.binary.parts, ping.C)
			c.writing.Store(false)
			b.binary.done <- err
			if err != nil {
				return err
			}
		case b.closing != nil:
			return c.control(websocket.CloseMessage, websocket.FormatCloseMessage(b.closing.Code, b.closing.Reason))
		default:
			select {
			case <-c.out.wake:
			case <-c.failed:
				return nil
			case <-ping.C:
				if err := c.control(websocket.PingMessage, nil); err != nil {
					return err
				}
			}
		}
	}
}

// control writes a ping, pong or close frame.
func (c *Conn) control(kind int, data []byte) error {
	return c.writeError(c.ws.WriteControl(kind, data, time.Now().Add(c.cfg.WriteTimeout)))
}

// writeTexts writes a burst of texts in as few system calls as possible. A text
// beyond the write buffer is written past the cork and needs what is before it out.
func (c *Conn) writeTexts(texts []text) error {
	burst := len(texts) > 1
	for _, t := range texts {
		data := t.data
		if t.later != nil {
			if data = t.later(); data == nil {
				continue
			}
		}
		by := time.Now().Add(c.cfg.WriteTimeout)
		switch big := len(data) > serverWriteBuffer; {
		case big && burst:
			if err := c.sock.uncork(by); err != nil {
				return c.writeError(err)
			}
		case burst:
			c.sock.cork()
		}
		_ = c.ws.SetWriteDeadline(by) // never fails: it sets a field
		if err := c.ws.WriteMessage(websocket.TextMessage, data); err != nil {
			return c.writeError(err)
		}
	}
	if burst {
		return c.writeError(c.sock.uncork(time.Now().Add(c.cfg.WriteTimeout)))
	}
	return nil
}

// writeBinary writes one binary message. A server's single part of up to one
// fragment goes out in one call without a copy. Anything else goes through the
// message writer, with pongs and pings in between.
func (c *Conn) writeBinary(parts [][]byte, ping <-chan time.Time) error {
	deadline := func() { _ = c.ws.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout)) } // sets a field
	deadline()
	if c.server && len(parts) == 1 && len(parts[0]) <= fragmentBytes {
		return c.writeError(c.ws.WriteMessage(websocket.BinaryMessage, parts[0]))
	}
	w, err := c.ws.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return c.writeError(err)
	}
	for _, p := range parts {
		for len(p) > 0 {
			n := min(len(p), fragmentBytes)
			deadline()
			if _, err := w.Write(p[:n]); err != nil {
				return c.writeError(err)
			}
			if p = p[n:]; len(p) > 0 {
				if err := c.between(ping); err != nil {
					return err
				}
			}
		}
	}
	deadline()
	return c.writeError(w.Close())
}

// between sends the pong and the ping that are due between two fragments.
func (c *Conn) between(ping <-chan time.Time) error {
	if p := c.out.takePong(); p != nil {
		if err := c.control(websocket.PongMessage, []byte(*p)); err != nil {
			return err
		}
	}
	select {
	case <-ping:
		return c.control(websocket.PingMessage, nil)
	default:
		return nil
	}
}

// writeError names the reason why writing failed.
func (c *Conn) writeError(err error) error {
	var netErr net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, websocket.ErrCloseSent):
		return fmt.Errorf("%w: the websocket is closing, and its close frame was sent", errClosed)
	case errors.As(err, &netErr) && netErr.Timeout():
		return fmt.Errorf("%w: a write took longer than %s", errSlowPeer, c.cfg.WriteTimeout)
	}
	return fmt.Errorf("%w: %w", errLost, err)
}
