package server

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/server/compat"
)

// trusted marks requests that came through a router's own listener.
type trusted struct{}

// ServeRouter serves the reward router, and nothing else, on its own listener. The listener is for
// reward functions in Python on this machine, which send requests to "http://" +
// reward_router_address. The functions of verl and verl-omni send no key or an arbitrary key: these
// requests are accepted if their connection is from the user that runs this process. A request with
// key, as a bearer token or as the password of HTTP basic authentication, is accepted as well.
// Requests from web pages are refused. The listener must have a loopback address. Call ServeRouter
// once; Stop closes the listener.
func (s *Server) ServeRouter(ln net.Listener, key string) error {
	if tcp, ok := ln.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() || key == "" {
		return errors.New("server: the reward router's own listener must have a loopback address and a key")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.local != nil {
		return errors.New("server: ServeRouter is called once, before Stop")
	}
	s.local = &http.Server{
		Handler: s.routerAlone([]token{{digest: sha256.Sum256([]byte(key))}}, ln.Addr().String()),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, ownUser{}, isOwnUser("/proc/net/tcp", c.RemoteAddr(), c.LocalAddr()))
		},
		ReadHeaderTimeout: s.cfg.HeaderTimeout, IdleTimeout: s.cfg.IdleTimeout, WriteTimeout: s.http.WriteTimeout,
		MaxHeaderBytes: s.http.MaxHeaderBytes, ErrorLog: s.http.ErrorLog,
	}
	s.localServed = make(chan struct{})
	go func() { // ends when Stop closes the listener; Stop waits for it
		defer close(s.localServed)
		if err := s.local.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.ErrorContext(s.life, "the reward router's listener failed", "addr", ln.Addr().String(), "error", err)
		}
	}()
	return nil
}

// ownUser marks connections of the user that runs this process.
type ownUser struct{}

// isOwnUser looks up whose socket a connection of this machine has come from, in the
// form of Linux's /proc/net/tcp: the owner is the eighth field.
func isOwnUser(table string, from, to net.Addr) bool {
	want := [2]string{socketName(from), socketName(to)}
	text, err := os.ReadFile(table)
	if err != nil || want[0] == "" {
		return false
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 7 && f[1] == want[0] && f[2] == want[1] {
			return f[7] == strconv.Itoa(os.Geteuid())
		}
	}
	return false
}

// socketName is an address of IPv4 as /proc/net/tcp has it: the four bytes as one number
// in the machine's own order.
func socketName(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.To4() == nil {
		return ""
	}
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(tcp.IP.To4()), tcp.Port)
}

// fromPage reports whether a request is that of a web page: it names where the page is
// from, or a host that is not this listener's address, which is what a page does whose
// name was made to mean this machine.
func fromPage(r *http.Request, host string) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || r.Host != host
}

// routerAlone lets requests of the router's paths through, from those who may.
func (s *Server) routerAlone(key []token, host string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var f *compat.Fault
		own, _ := r.Context().Value(ownUser{}).(bool)
		secret, _ := shownSecret(r, true)
		_, keyed := match(key, secret)
		switch {
		case fromPage(r, host):
			f = &compat.Fault{Status: http.StatusForbidden, Class: "forbidden", Message: "the reward router refuses requests from web pages"}
		case !own && !keyed:
			f = &compat.Fault{
				Status: http.StatusUnauthorized, Class: "unauthorized",
				Message: "a process of another user must send Authorization: Bearer <key>, with the key that reward functions get as reward_router_api_key",
			}
		case !routed(r.URL.Path):
			f = &compat.Fault{Status: http.StatusNotFound, Class: "not_found", Message: "this address serves only the reward router"}
		default:
			s.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), trusted{}, true)))
			return
		}
		a := openAI(f)
		w.Header().Set("Content-Type", a.ContentType)
		w.WriteHeader(a.Status)
		_, _ = w.Write(a.Body) // a client that is gone needs none
	})
}

// stopLocal ends the router's own listener and returns when it has ended.
func (s *Server) stopLocal(ctx context.Context) error {
	s.mu.Lock()
	local, served := s.local, s.localServed
	s.mu.Unlock()
	if local == nil {
		return nil
	}
	const grace = time.Second // its clients are reward functions, whose samples have ended
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if local.Shutdown(ctx) != nil {
		_ = local.Close()
	}
	<-served
	return nil
}

// isTrusted reports whether a request came through the router's own listener, which
// has looked at who asks.
func isTrusted(r *http.Request) bool { return r.Context().Value(trusted{}) != nil }
