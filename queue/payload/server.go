package payload

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// attemptHeader names the attempt that the token of a request is for: base64url of the JSON
// of a wire.AttemptKey.
const attemptHeader = "Rewardloop-Attempt"

// ServerOptions configure a Server.
type ServerOptions struct {
	Config Config
	// Gateway provides the payloads and accepts the results. Its Claim must not block for long.
	Gateway workers.Gateway
	// Name is the name of the gateway in its tickets.
	Name string
	// Key is the key that signs the gateway's tickets.
	Key *Key
	// Version is the version of this program, which is sent to workers.
	Version string
	// Lost is called with the names of the workers that had open claims when their process was
	// lost; nil: no call. Lost is called from a goroutine of the server and may block.
	Lost func(workers []string)
	// Log gets problems; nil: no log. Metrics registers the metrics; nil: the metrics are not
	// exported.
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Server is the gateway's side. It is an http.Handler.
type Server struct {
	cfg     Config
	opt     ServerOptions
	log     *slog.Logger
	seldom  seldom
	metrics *serverMetrics
	ctx     context.Context //nolint:containedctx // the server's life
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // connections, and what waits for lost workers

	mu       sync.Mutex
	closed   bool
	peers    map[*peer]struct{}
	sessions map[string]*session
}

// NewServer returns a running server. The error lists all invalid options.
func NewServer(opt ServerOptions) (*Server, error) {
	cfg := opt.Config.WithDefaults()
	err := cfg.Validate()
	if opt.Gateway == nil || opt.Key == nil || opt.Name == "" {
		err = errors.Join(err, errors.New("a gateway, its name and its key are needed"))
	}
	if err != nil {
		return nil, fmt.Errorf("claim server: %w", err)
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, opt: opt, log: opt.Log, seldom: seldom{log: opt.Log}, metrics: newServerMetrics(opt.Metrics),
		peers: map[*peer]struct{}{}, sessions: map[string]*session{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// ServeHTTP handles GET /v1/claim. It returns when the connection has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status, reason, err := s.admit(r); err != nil {
		s.refuse(reason, err, "remote", r.RemoteAddr)
		http.Error(w, err.Error(), status)
		return
	}
	p, err := s.enter()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.tasks.Done()
	defer s.leave(p)
	defer p.cancel()
	p.conn, err = wsconn.Upgrade(w, r, wsconn.UpgradeConfig{
		Config: s.cfg.conn(wire.MaxClaimControlBytes, 1), Subprotocols: []string{wire.ClaimProtocol}, Version: s.opt.Version,
	})
	if errors.Is(err, wsconn.ErrProtocol) {
		s.refuse(wire.RefusedProtocol, err, "remote", r.RemoteAddr)
		return
	}
	if err != nil {
		s.seldom.warn("upgrade", "claim connection refused", "error", err, "remote", r.RemoteAddr)
		return
	}
	p.run()
}

// admit checks the token that opens a connection. One that has expired will do: a result may
// be late, and every claim is checked anew.
func (s *Server) admit(r *http.Request) (status int, reason string, err error) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		return http.StatusUnauthorized, wire.RefusedToken, fmt.Errorf("%w: the request has no token", ErrToken)
	}
	var key wire.AttemptKey
	text, err := base64.RawURLEncoding.DecodeString(r.Header.Get(attemptHeader))
	if err == nil {
		err = json.Unmarshal(text, &key)
	}
	if err != nil {
		return http.StatusBadRequest, wire.RefusedMalformed, fmt.Errorf("header %s: %w", attemptHeader, err)
	}
	if key.Gateway != s.opt.Name {
		return http.StatusGone, wire.RefusedGone, fmt.Errorf("%w: this is gateway %q, not %q", wire.ErrGone, s.opt.Name, key.Gateway)
	}
	if err := s.opt.Key.Check(token, key, time.Now()); err != nil && !errors.Is(err, errTokenExpired) {
		return http.StatusUnauthorized, wire.RefusedToken, err
	}
	return 0, "", nil
}

// refuse counts a refusal and logs it, if none of its reason was for a second.
func (s *Server) refuse(reason string, err error, args ...any) {
	s.metrics.refused.WithLabelValues(reason).Inc()
	s.seldom.warn(reason, "refused at the claim address", append([]any{"reason", reason, "error", err}, args...)...)
}

// enter makes the record of a connection.
func (s *Server) enter() (*peer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errors.New("the gateway is stopping")
	case len(s.peers) >= s.cfg.MaxConns:
		return nil, fmt.Errorf("%d connections are open, the limit is %d", len(s.peers), s.cfg.MaxConns)
	}
	p := newPeer(s)
	s.peers[p] = struct{}{}
	s.tasks.Add(1)
	s.metrics.conns.Inc()
	return p, nil
}

// join finds or makes the session that a connection belongs to.
func (s *Server) join(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[id]
	if sess == nil {
		sess = newSession(s, id)
		s.sessions[id] = sess
	}
	sess.conns++
	if sess.timer != nil && sess.timer.Stop() {
		s.tasks.Done()
	}
	sess.timer = nil
	return sess
}

// leave takes the record of a connection away. With the last one of a session it is on its
// own for Config.LostAfter.
func (s *Server) leave(p *peer) {
	s.metrics.conns.Dec()
	s.mu.Lock()
	delete(s.peers, p)
	sess := p.sess
	alone := false
	if sess != nil {
		sess.conns--
		alone = sess.conns == 0
	}
	switch {
	case !alone:
	case s.closed || p.bye:
		s.tasks.Add(1)
		s.mu.Unlock()
		s.expire(sess)
		return
	default:
		s.tasks.Add(1)
		var t *time.Timer
		t = time.AfterFunc(s.cfg.LostAfter, func() {
			s.mu.Lock()
			late := sess.timer != t // somebody came back meanwhile
			s.mu.Unlock()
			if late {
				s.tasks.Done()
				return
			}
			s.expire(sess)
		})
		sess.timer = t
	}
	s.mu.Unlock()
}

// expire ends a session that nobody came back to and tells whose claims were open.
func (s *Server) expire(sess *session) {
	defer s.tasks.Done()
	s.mu.Lock()
	if sess.conns > 0 || s.sessions[sess.id] != sess {
		s.mu.Unlock()
		return
	}
	delete(s.sessions, sess.id)
	closed := s.closed
	s.mu.Unlock()
	names := sess.end()
	if len(names) == 0 || closed {
		return
	}
	s.metrics.lost.Add(float64(len(names)))
	s.log.Warn("a worker process disconnected; its samples go to other workers", "workers", names)
	if s.opt.Lost != nil {
		s.opt.Lost(names)
	}
}

// Close ends all connections and returns when no goroutine of the server runs any more. Close does
// not report lost workers.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	peers := make([]*peer, 0, len(s.peers))
	for p := range s.peers {
		peers = append(peers, p)
	}
	sessions := make([]*session, 0, len(s.sessions))
	for _, sess := range s.sessions {
		sessions = append(sessions, sess)
		if sess.timer != nil && sess.timer.Stop() {
			s.tasks.Done()
		}
		sess.timer = nil
	}
	s.mu.Unlock()
	s.cancel()
	for _, p := range peers {
		p.cancel()
	}
	s.tasks.Wait()
	for _, sess := range sessions {
		sess.end()
	}
}
