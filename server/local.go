package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"
)

// trusted marks requests that came through a router's own listener.
type trusted struct{}

// ServeRouter serves the reward router on a listener of its own, and nothing else.
// It is for reward functions in Python on this machine, which write
// "http://" + reward_router_address into their requests and can add neither a token
// nor a certificate: key is the password of the address, "any:key@127.0.0.1:port".
// The listener must be of the loopback. Stop ends it.
func (s *Server) ServeRouter(ln net.Listener, key string) error {
	if tcp, ok := ln.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() || key == "" {
		return errors.New("server: the reward router's own listener must be of the loopback, and have a key")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.local != nil {
		return errors.New("server: ServeRouter is called once, before Stop")
	}
	s.local = &http.Server{
		Handler:           s.routerAlone(&token{sha256.Sum256([]byte(key))}),
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

// routerAlone lets requests of the router's paths with the key through.
func (s *Server) routerAlone(key *token) http.Handler {
	paths := append(routerPaths(), "/v1/models")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var f *fault
		_, password, ok := r.BasicAuth()
		switch {
		case !ok || !key.matches(password):
			f = &fault{status: http.StatusUnauthorized, class: "unauthorized", message: "ask the address that reward functions get as reward_router_address"}
		case !slices.Contains(paths, r.URL.Path):
			f = &fault{status: http.StatusNotFound, class: "not_found", message: "only the reward router is here"}
		default:
			s.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), trusted{}, true)))
			return
		}
		a := f.openAI()
		w.Header().Set("Content-Type", a.contentType)
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) // a client that is gone needs none
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
// has looked at its key.
func isTrusted(r *http.Request) bool { return r.Context().Value(trusted{}) != nil }
