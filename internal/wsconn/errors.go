package wsconn

import (
	"errors"
	"fmt"
	"net/http"
)

// How a connection ends or is refused. Run, Send and SendBinary return errors that
// wrap one of them.
var (
	// ErrClosed: Close was called, or the handler or context ended the connection.
	ErrClosed = errors.New("connection closed")
	// ErrPeerClosed: the peer sent a close frame; a *CloseError has its code.
	ErrPeerClosed = errors.New("closed by the peer")
	// ErrSlowPeer: the peer does not read what is sent to it.
	ErrSlowPeer = errors.New("peer reads too slowly")
	// ErrSilentPeer: nothing, not even a pong, came within ReadTimeout.
	ErrSilentPeer = errors.New("peer is silent")
	// ErrSlowMessage: a message was not complete within MessageTimeout.
	ErrSlowMessage = errors.New("message took too long")
	// ErrTooBig: a message beyond MessageBytes or TextBytes.
	ErrTooBig = errors.New("message too big")
	// ErrNotUTF8: a text message that is not UTF-8.
	ErrNotUTF8 = errors.New("text message is not UTF-8")
	// ErrLost: the connection broke without a close frame, or the peer broke the protocol.
	ErrLost = errors.New("connection lost")
	// ErrBusy: Run was called twice.
	ErrBusy = errors.New("connection is already running")

	// ErrSubprotocol: the two sides share no sub-protocol.
	ErrSubprotocol = errors.New("no common websocket sub-protocol")
	// ErrOrigin: the request comes from a page of another host.
	ErrOrigin = errors.New("origin not allowed")
	// ErrHandshake: the request is not a websocket handshake, or the server refused it.
	ErrHandshake = errors.New("websocket handshake failed")
)

// The close codes of RFC 6455 that this project uses.
const (
	CloseNormal      = 1000
	CloseGoingAway   = 1001
	CloseProtocol    = 1002
	CloseUnsupported = 1003
	CloseNotUTF8     = 1007
	ClosePolicy      = 1008
	CloseTooBig      = 1009
	CloseInternal    = 1011
)

// CloseError is a close frame: one that came, wrapped with ErrPeerClosed, or one
// that a handler wants sent, when it returns it.
type CloseError struct {
	Code   int
	Reason string
}

// Error returns code and reason.
func (e *CloseError) Error() string { return fmt.Sprintf("close %d %s", e.Code, e.Reason) }

// HandshakeError is the answer of a server that refused the upgrade. It wraps
// ErrHandshake.
type HandshakeError struct {
	Status int
	Header http.Header
	// Body is the beginning of the answer, at most 1 KiB.
	Body string
}

// Error returns the status and the body.
func (e *HandshakeError) Error() string {
	return fmt.Sprintf("%v: status %d: %s", ErrHandshake, e.Status, e.Body)
}

// Unwrap returns ErrHandshake.
func (e *HandshakeError) Unwrap() error { return ErrHandshake }
