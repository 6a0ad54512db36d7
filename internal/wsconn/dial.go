package wsconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Sizes of the buffers of every connection. Both sides read through 64 KiB; a server
// writes big messages past its buffer. A client must copy every byte to mask it, and
// each full buffer is one frame and one system call: with 16, 64, 256 and 1024 KiB
// BenchmarkUpload reached 980, 1440, 1680 and 1600 MB/s (medians of five, two cores).
const (
	readBuffer        = 64 << 10
	serverWriteBuffer = 64 << 10
	clientWriteBuffer = 256 << 10
)

// Write buffers are held only while a message is being written; all connections
// of a side share them.
//
//nolint:gochecknoglobals // pools are shared by nature
var serverBuffers, clientBuffers sync.Pool

// Dial connects to a ws or wss URL. ctx and HandshakeTimeout limit only the connecting. No proxy is
// used. If the server refuses, the error wraps a *HandshakeError.
func Dial(ctx context.Context, url string, cfg DialConfig) (*Conn, error) {
	cfg.Config = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("dial %s: %w", url, err)
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.HandshakeTimeout)
	defer cancel()
	var sock *socket
	stop := func() bool { return true }
	d := websocket.Dialer{
		NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			raw, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			// gorilla looks at the deadline of the context, not at its end.
			stop = context.AfterFunc(ctx, func() { _ = raw.Close() })
			var conn net.Conn
			conn, sock = wrap(raw)
			return conn, nil
		},
		TLSClientConfig: cfg.TLS,
		ReadBufferSize:  readBuffer,
		WriteBufferSize: clientWriteBuffer,
		WriteBufferPool: &clientBuffers,
	}
	if cfg.Subprotocol != "" {
		d.Subprotocols = []string{cfg.Subprotocol}
	}
	header := http.Header{"User-Agent": {product(cfg.Version)}}
	maps.Copy(header, cfg.Header)
	ws, resp, err := d.DialContext(ctx, url, header)
	if !stop() && ctx.Err() != nil {
		err = ctx.Err()
		if ws != nil {
			_ = ws.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", url, refusal(resp, err, cfg))
	}
	_ = resp.Body.Close()
	c := newConn(ws, sock, cfg.Config, false)
	if ws.Subprotocol() != cfg.Subprotocol {
		err = fmt.Errorf("%w: this side (%s) uses %q, but the server chose %q: install the same release on both sides", ErrProtocol, product(cfg.Version), cfg.Subprotocol, ws.Subprotocol())
	} else if ext := resp.Header.Values("Sec-Websocket-Extensions"); len(ext) > 0 {
		err = fmt.Errorf("%w: the server chose extensions that were not requested: %v", errHandshake, ext)
	}
	if err != nil {
		c.fail(err)
		return nil, fmt.Errorf("dial %s: %w", url, err)
	}
	return c, nil
}

// refusal turns a server's answer that is no upgrade into a HandshakeError, beside ErrProtocol
// where the server says that it speaks another sub-protocol.
func refusal(resp *http.Response, err error, cfg DialConfig) error {
	if resp == nil || !errors.Is(err, websocket.ErrBadHandshake) {
		return err
	}
	// gorilla has read the first KiB into memory.
	body, readErr := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if readErr != nil {
		return fmt.Errorf("%w: status %d", errHandshake, resp.StatusCode)
	}
	refused := &HandshakeError{Status: resp.StatusCode, Header: resp.Header, Body: strings.TrimSpace(string(body))}
	if spoken := resp.Header.Get(protocolHeader); resp.StatusCode == http.StatusBadRequest && spoken != "" {
		return fmt.Errorf("%w: this side (%s) uses %q, the server uses %.100q: %w", ErrProtocol, product(cfg.Version), cfg.Subprotocol, spoken, refused)
	}
	return refused
}
