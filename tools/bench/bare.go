package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// bareBuffer is gorilla's read and write buffer on both sides: 64 KiB take half the
// server's CPU of its default of 4 KiB; beyond 64 nothing is gained.
const bareBuffer = 64 << 10

// bare is the calibration of the transport: gorilla on both sides of a loopback
// connection and nothing else. A client writes the frame, the server reads it into a
// pooled buffer and writes a small JSON answer.
type bare struct {
	srv     *http.Server
	addr    string
	served  chan struct{} // closed when the listener has ended
	pool    sync.Pool     // *bytes.Buffer
	clients []*bareClient
	readers sync.WaitGroup
}

// bareClient is one connection. Answers come in the order of the frames.
type bareClient struct {
	conn    *websocket.Conn
	mu      sync.Mutex // one writer at a time; the order of waiting is that of writing
	waiting chan chan error
}

// newBare connects lanes clients.
func newBare(ctx context.Context, lanes int) (*bare, error) {
	b := &bare{served: make(chan struct{})}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("bare: %w", err)
	}
	b.addr = l.Addr().String()
	b.srv = &http.Server{Handler: http.HandlerFunc(b.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { // ends with Close
		defer close(b.served)
		_ = b.srv.Serve(l) // always an error: that of the end
	}()
	d := websocket.Dialer{ReadBufferSize: bareBuffer, WriteBufferSize: bareBuffer}
	for range lanes {
		conn, resp, err := d.DialContext(ctx, "ws://"+b.addr, nil)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("bare: %w", err), b.Close())
		}
		_ = resp.Body.Close()
		c := &bareClient{conn: conn, waiting: make(chan chan error, 1<<16)}
		b.clients = append(b.clients, c)
		b.readers.Go(c.read)
	}
	return b, nil
}

func (b *bare) serve(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{ReadBufferSize: bareBuffer, WriteBufferSize: bareBuffer}
	c, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	answer := []byte(`{"type":"result","id":"s000000","outcome":"scored","reward_score":1}`)
	for err == nil {
		err = b.answer(c, answer)
	}
}

func (b *bare) answer(c *websocket.Conn, answer []byte) error {
	_, r, err := c.NextReader()
	if err != nil {
		return err
	}
	buf, _ := b.pool.Get().(*bytes.Buffer)
	if buf == nil {
		buf = new(bytes.Buffer)
	}
	defer b.pool.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(r); err != nil {
		return err
	}
	return c.WriteMessage(websocket.TextMessage, answer)
}

// read hands answers to whoever waits, until the connection ends.
func (c *bareClient) read() {
	var buf bytes.Buffer
	for {
		_, r, err := c.conn.NextReader()
		if err == nil {
			buf.Reset()
			_, err = buf.ReadFrom(r)
		}
		if err != nil {
			return
		}
		(<-c.waiting) <- nil
	}
}

// send is one round trip of a frame.
func (b *bare) send(ctx context.Context, lane int, frame []byte) error {
	c := b.clients[lane]
	answered := make(chan error, 1)
	c.mu.Lock()
	c.waiting <- answered
	err := c.conn.WriteMessage(websocket.BinaryMessage, frame)
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("bare: %w", err)
	}
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return fmt.Errorf("bare: no answer: %w", ctx.Err())
	}
}

// Close ends every connection and waits for their goroutines.
func (b *bare) Close() error {
	for _, c := range b.clients {
		_ = c.conn.Close() // it is over either way
	}
	b.readers.Wait()
	err := b.srv.Close()
	<-b.served
	return err
}
