package wsconn

import (
	"errors"
	"fmt"
	"net/http"
)

// The reasons why a connection ends or is refused. Run, Send and SendBinary return errors that wrap
// one of them.
var (
	// errClosed: Close was called, or the handler or context ended the connection.
	errClosed = errors.New("connection closed")
	// ErrPeerClosed means that the peer sent a close frame; the error also wraps a *CloseError with
	// its code.
	ErrPeerClosed = errors.New("closed by the peer")
	// errSlowPeer: the peer does not read what is sent to it.
	errSlowPeer = errors.New("peer reads too slowly")
	// ErrSilentPeer means that no data, not even a pong, arrived within ReadTimeout.
	ErrSilentPeer = errors.New("no message and no pong came from the peer within the read timeout")
	// errSlowMessage: a message was not complete within MessageTimeout.
	errSlowMessage = errors.New("message took too long")
	// errTooBig: a message beyond MessageBytes or TextBytes.
	errTooBig = errors.New("message too big")
	// errNotUTF8: a text message that is not UTF-8.
	errNotUTF8 = errors.New("text message is not UTF-8")
	// errLost: the connection broke without a close frame, or the peer broke the protocol.
	errLost = errors.New("connection lost")
	// errBusy: Run was called twice.
	errBusy = errors.New("connection is already running")

	// ErrProtocol means that the two sides have no common subprotocol. Another attempt does not
	// change this.
	ErrProtocol = errors.New("no common websocket sub-protocol")
	// errOrigin: the request comes from a page of another host.
	errOrigin = errors.New("origin not allowed")
	// errHandshake: the request is not a websocket handshake, or the server refused it.
	errHandshake = errors.New("websocket handshake failed")
)

// The close codes of RFC 6455 that this project uses.
const (
	CloseNormal      = 1000
	CloseGoingAway   = 1001
	closeProtocol    = 1002
	CloseUnsupported = 1003
	closeNotUTF8     = 1007
	ClosePolicy      = 1008
	closeTooBig      = 1009
	closeInternal    = 1011
)

// CloseError is a close frame: a received one, wrapped together with ErrPeerClosed, or one that a
// handler returns to be sent.
type CloseError struct {
	Code   int
	Reason string
}

// Error returns code and reason.
func (e *CloseError) Error() string { return fmt.Sprintf("close %d %s", e.Code, e.Reason) }

// HandshakeError is the response of a server that refused the upgrade.
type HandshakeError struct {
	Status int
	Header http.Header
	// Body is the beginning of the response body, at most 1 KiB.
	Body string
}

// Error returns the status and the body.
func (e *HandshakeError) Error() string {
	return fmt.Sprintf("%v: status %d: %s", errHandshake, e.Status, e.Body)
}

// Unwrap returns the error of a failed handshake.
func (e *HandshakeError) Unwrap() error { return errHandshake }
