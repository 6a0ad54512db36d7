package wsconn

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gorilla/websocket"
)

// Upgrade answers a websocket handshake. The caller must have checked the token before, because a
// refusal after the upgrade costs a connection. If Upgrade returns an error, the response with the
// reason has been written.
func Upgrade(w http.ResponseWriter, r *http.Request, cfg UpgradeConfig) (*Conn, error) {
	cfg.Config = cfg.WithDefaults()
	refuse := func(status int, err error) (*Conn, error) {
		http.Error(w, err.Error(), status)
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return refuse(http.StatusInternalServerError, fmt.Errorf("upgrade: %w", err))
	}
	if !websocket.IsWebSocketUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		return refuse(http.StatusUpgradeRequired, fmt.Errorf("%w: this address accepts only websocket connections", errHandshake))
	}
	if err := checkOrigin(r); err != nil {
		return refuse(http.StatusForbidden, err)
	}
	offered := websocket.Subprotocols(r)
	if !slices.ContainsFunc(cfg.Subprotocols, func(p string) bool { return slices.Contains(offered, p) }) {
		w.Header()[protocolHeader] = cfg.Subprotocols
		return refuse(http.StatusBadRequest, mismatch(offered, r.UserAgent(), cfg))
	}
	up := websocket.Upgrader{
		HandshakeTimeout: cfg.WriteTimeout,
		ReadBufferSize:   readBuffer,
		WriteBufferSize:  serverWriteBuffer,
		WriteBufferPool:  &serverBuffers,
		Subprotocols:     cfg.Subprotocols,
		CheckOrigin:      func(*http.Request) bool { return true }, // done above, with an answer that says why
		Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
			http.Error(w, reason.Error(), status)
		},
	}
	h := &hijacker{ResponseWriter: w}
	ws, err := up.Upgrade(h, r, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errHandshake, err)
	}
	return newConn(ws, h.sock, cfg.Config, true), nil
}

// protocolHeader has what a client offers, and in a refusal what this server speaks.
const protocolHeader = "Sec-Websocket-Protocol"

// mismatch names protocol and release of both sides, in less than the KiB of a refusal that
// clients read.
func mismatch(offered []string, agent string, cfg UpgradeConfig) error {
	offers := "names no protocol"
	if len(offered) > 0 {
		offers = fmt.Sprintf("uses %.100q", strings.Join(offered, ", "))
	}
	if agent != "" {
		agent = fmt.Sprintf(" (%.100q)", agent)
	}
	return fmt.Errorf("%w: the client%s %s, this server (%s) uses %q: install the same release on both sides",
		ErrProtocol, agent, offers, product(cfg.Version), strings.Join(cfg.Subprotocols, ", "))
}

// product is a release as the header User-Agent names it.
func product(version string) string { return "rewardloop/" + cmp.Or(version, "unknown") }

// checkOrigin lets requests through that name no origin (programs) or the request's own
// host.
func checkOrigin(r *http.Request) error {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	u, err := url.Parse(origins[0])
	if err == nil && len(origins) == 1 && u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return nil
	}
	return fmt.Errorf("%w: %q, this host is %q", errOrigin, origins, r.Host)
}

// hijacker puts our socket under the connection that gorilla takes over.
type hijacker struct {
	http.ResponseWriter

	sock *socket
}

// Hijack takes over the connection of the request.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	var conn net.Conn
	conn, h.sock = wrap(raw)
	return conn, rw, nil
}
