package wsconn

import (
	"context"
	"fmt"
	"sync"
	"unicode/utf8"
)

// outbox is what waits to be written. Everybody fills it, the writer empties it.
type outbox struct {
	wake chan struct{} // capacity 1: something was added

	mu       sync.Mutex
	texts    []text
	spare    []text // the slice the writer is done with
	bytes    int64  // of texts, those being written included
	binaries []*binary
	pong     *string
	closing  *CloseError // the close frame to send after the texts
	stopped  bool        // write nothing more
	err      error       // the connection has failed
}

// text is one call of Send or SendLater.
type text struct {
	data  []byte
	later func() []byte // where there is no data yet
}

// binary is one call of SendBinary.
type binary struct {
	parts [][]byte
	done  chan error // capacity 1
}

// batch is what the writer takes at a time.
type batch struct {
	pong    *string
	texts   []text
	bytes   int64
	binary  *binary
	closing *CloseError
	stopped bool
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Send queues a text message; data must not change afterwards. Send never blocks: if more than
// OutboxBytes would wait for the peer, Send returns an error and the connection ends.
func (c *Conn) Send(data []byte) error { return c.queue(text{data: data}) }

// SendLater queues a text message that data returns when the message is written, so that the
// message can include everything that has happened meanwhile, and a slow peer gets one message
// instead of many. The writer calls data, which must not block, and may return nil to send nothing.
// Otherwise SendLater behaves like Send.
func (c *Conn) SendLater(data func() []byte) error { return c.queue(text{later: data}) }

func (c *Conn) queue(t text) error {
	n := int64(len(t.data))
	if n > c.cfg.OutboxBytes {
		return fmt.Errorf("%w: a message of %d bytes does not fit into the send queue of %d bytes", errTooBig, n, c.cfg.OutboxBytes)
	}
	c.out.mu.Lock()
	err := c.out.refused()
	full := err == nil && c.out.bytes+n > c.cfg.OutboxBytes
	if err == nil && !full {
		c.out.texts = append(c.out.texts, t)
		c.out.bytes += n
	}
	c.out.mu.Unlock()
	switch {
	case err != nil:
		return err
	case full:
		err = fmt.Errorf("%w: more than %d bytes wait to be sent", errSlowPeer, c.cfg.OutboxBytes)
		c.fail(err)
		return err
	}
	c.out.signal()
	return nil
}

// SendBinary sends one binary message made of parts, and returns when it is written and parts are
// no longer used. If ctx ends before the message was begun, the message is withdrawn. Otherwise
// SendBinary waits for its end, at most WriteTimeout for each fragment, because half a message
// would end the connection. Run must be running.
func (c *Conn) SendBinary(ctx context.Context, parts ...[]byte) error {
	b := &binary{parts: parts, done: make(chan error, 1)}
	c.out.mu.Lock()
	err := c.out.refused()
	if err == nil {
		c.out.binaries = append(c.out.binaries, b)
	}
	c.out.mu.Unlock()
	if err != nil {
		return err
	}
	c.out.signal()
	select {
	case err := <-b.done:
		return err
	case <-ctx.Done():
	}
	if c.out.withdraw(b) {
		return fmt.Errorf("waiting to send: %w", context.Cause(ctx))
	}
	return <-b.done
}

// withdraw removes a binary message that the writer has not taken.
func (o *outbox) withdraw(b *binary) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, q := range o.binaries {
		if q == b {
			o.binaries = append(o.binaries[:i:i], o.binaries[i+1:]...)
			return true
		}
	}
	return false
}

// Queued returns the number of bytes of texts that wait to be written.
func (c *Conn) Queued() int64 {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.bytes
}

func (o *outbox) setPong(data string) {
	o.mu.Lock()
	o.pong = &data
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) takePong() *string {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pong
	o.pong = nil
	return p
}

// setClose queues the close frame behind the texts. Binary messages not yet begun
// are refused.
func (o *outbox) setClose(code int, reason string) {
	o.mu.Lock()
	o.closing = &CloseError{Code: code, Reason: clip(reason)}
	o.refuseBinaries(errClosed)
	o.mu.Unlock()
	o.signal()
}

// stop lets the writer end without writing what is queued.
func (o *outbox) stop() {
	o.mu.Lock()
	o.stopped = true
	o.refuseBinaries(ErrPeerClosed)
	o.mu.Unlock()
	o.signal()
}

// shut refuses everything from now on.
func (o *outbox) shut(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
	o.texts, o.bytes = nil, 0
	o.refuseBinaries(err)
}

func (o *outbox) refuseBinaries(err error) {
	for _, b := range o.binaries {
		b.done <- err
	}
	o.binaries = nil
}

// refused returns why nothing more is taken, or nil. The caller holds mu.
func (o *outbox) refused() error {
	switch {
	case o.err != nil:
		return o.err
	case o.closing != nil:
		return errClosed
	case o.stopped:
		return ErrPeerClosed
	}
	return nil
}

// take returns what to write next: texts before a binary message, the close frame
// last.
func (o *outbox) take() batch {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := batch{pong: o.pong, texts: o.texts, bytes: o.bytes, stopped: o.stopped}
	o.pong, o.texts, o.spare = nil, o.spare, nil
	if len(b.texts) == 0 {
		if len(o.binaries) > 0 {
			b.binary = o.binaries[0]
			o.binaries = o.binaries[1:]
		} else {
			b.closing = o.closing
		}
	}
	return b
}

// wrote gives the room of texts back.
func (o *outbox) wrote(b batch) {
	clear(b.texts)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = b.texts[:0]
	o.bytes = max(0, o.bytes-b.bytes)
}

// refuse answers a binary message that was taken and not begun.
func (b *batch) refuse(err error) {
	if b.binary != nil {
		b.binary.done <- err
	}
}

// clip shortens a reason to what fits a close frame, at a rune's border.
func clip(reason string) string {
	const most = 123
	if len(reason) <= most {
		return reason
	}
	reason = reason[:most]
	for !utf8.ValidString(reason) {
		reason = reason[:len(reason)-1]
	}
	return reason
}
