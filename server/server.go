package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

// submitter accepts samples from inside the process.
type submitter interface {
	Submit(ctx context.Context, sub loop.Submission) (*loop.Future, error)
	// Draining reports whether new samples are refused.
	Draining() bool
}

// streamer speaks the stream protocol on a connection until it ends.
type streamer interface {
	Serve(ctx context.Context, c *wsconn.Conn) error
}

// state tells what is in flight.
type state interface {
	// Pending returns up to limit samples without a result, the oldest first, and
	// how many there are.
	Pending(limit int) ([]loop.PendingSample, int)
	// Runs returns every run with its latest steps and groups, the newest first.
	Runs(groups int) []loop.RunState
	// Breakers returns the workers that get no samples of a profile.
	Breakers() []loop.BreakerInfo
	// Progress returns how each reward fares that can be asked for.
	Progress() []loop.Progress
	// Failures returns what has failed and why, the newest first, and how many failures
	// there were.
	Failures() ([]failures.Failure, uint64)
	InFlight() int
	// Bytes returns what is held, and what is granted as credit and not yet used.
	Bytes() (held, granted int64)
}

// Loop is the part of a gateway that the server uses.
type Loop interface {
	submitter
	streamer
	state
	steps
}

// steps hands out the rewards of whole steps.
type steps interface {
	Rewards(ctx context.Context, run string, epoch uint64, t wire.Fetch) (*wire.Rewards, error)
	Step(run string, split rewards.Split, step int64) (loop.StepDetail, error)
	Trace(run string, split rewards.Split, step int64) (trace.Trace, error)
}

var _ Loop = (*loop.Manager)(nil)

// Profile describes a reward.
type Profile struct {
	// Name is the name in requests; "" is the default reward.
	Name string `json:"name"`
	// Components are the components of the reward, in the order of the configuration.
	Components []Component `json:"components"`
	// Aggregation is the rule that combines the components' values into one reward.
	Aggregation string `json:"aggregation,omitempty"`
	// Extra are the columns of reward_extra_info, as far as they are declared.
	Extra []wire.ExtraKey `json:"extra,omitempty"`
}

// Component describes one component of a reward.
type Component struct {
	// Key is the name of the component within its profile, Scorer its reward function.
	Key    string `json:"key"`
	Scorer string `json:"scorer,omitempty"`
	// Weight is the weight of the component in the aggregation.
	Weight float64 `json:"weight"`
	// Required means that a sample without a value of this component has no reward.
	Required bool `json:"required"`
}

// Options are the parameters of New and NewWorker.
type Options struct {
	Config Config
	// Loop accepts the samples. Presence returns the live workers. New requires both.
	Loop     Loop
	Presence loop.Presence
	// Profiles are the rewards, including the default reward.
	Profiles []Profile
	// Router sends the requests of the reward router to model servers: /v1/chat/completions,
	// /v1/completions, /v1/embeddings, /classify and /v1/models. Nil: these paths are answered with
	// 404.
	Router outbound.Doer
	// Engines returns the servers of engines that this process has started. Nil: the process starts
	// none.
	Engines func() []EngineServer
	// Store returns the store of results. Nil, or a nil store: results are not kept.
	Store func() *store.Store
	// Claims handles GET /v1/claim, by which workers of other processes claim samples, and
	// authorizes these requests itself. Nil: there is no such route.
	Claims http.Handler
	// Reload reads the configuration again and applies the settings that can change while the
	// process runs. After an error nothing has changed. Nil: there is no reload.
	Reload func(ctx context.Context) (Reloaded, error)
	// SelfTest scores a known picture and returns an error if the score is not the known one.
	// SelfTest must return when its context ends. Nil: readiness depends only on the workers.
	SelfTest func(ctx context.Context) error
	// Gatherer provides the metrics of /metrics. The server registers its own metrics in Metrics.
	// If both are nil, /metrics shows only the server's own metrics.
	Gatherer prometheus.Gatherer
	Metrics  prometheus.Registerer
	Log      *slog.Logger // nil: discarded
	// Version is shown on the status page and sent to clients with another protocol.
	Version string
}

// Reloaded is the result of a reload, in keys of the configuration.
type Reloaded struct {
	// Applied are the settings that are now in effect.
	Applied []string `json:"applied"`
	// Restart are the settings that need a restart of the process.
	Restart []string `json:"restart"`
}

// Server is the HTTP server of a gateway or a worker process.
type Server struct {
	// Immutable after New.
	cfg         Config
	loop        Loop
	presence    loop.Presence
	profiles    atomic.Pointer[[]Profile]
	router      outbound.Doer                               // nil: no engines
	reload      func(ctx context.Context) (Reloaded, error) // nil: there is none
	rereads     sync.Mutex                                  // held by the reload that is under way
	engines     func() []EngineServer                       // nil: none is started
	store       func() *store.Store                         // nil: no results are kept
	claims      http.Handler                                // nil: nobody claims from elsewhere
	gatherer    prometheus.Gatherer
	log         *slog.Logger
	version     string
	begun       time.Time
	tokens      *tokens // nil: nobody is asked for one
	crossOrigin *http.CrossOriginProtection
	limits      compat.Limits
	handler     http.Handler
	http        *http.Server
	metrics     *metrics

	// life is the context of flights and streams; end cancels it.
	life context.Context //nolint:containedctx // flights and streams outlive the request that began them
	end  context.CancelFunc

	bodies    budget
	decoders  chan struct{} // holds one element for each decoding under way
	join      *joiner
	selfTest  *selfTest
	admission gate // requests that wait for scores; closed by Drain
	streams   gate
	claiming  gate // connections of workers elsewhere
	// routed counts requests that wait for an engine. They are let in while the
	// server drains: the scorers of samples in flight may be who asks.
	routed gate
	conns  atomic.Int64
	// Of the page.
	overviews overviews
	viewers   atomic.Int64
	// warnings keeps the log readable while everything fails.
	warnings sparse

	mu       sync.Mutex
	listener net.Listener  // guarded by mu
	stopped  bool          // guarded by mu
	served   chan struct{} // closed when Serve has returned; nil before Start; guarded by mu
	// local is the reward router's own listener, localServed closed when it has ended;
	// nil before ServeRouter; guarded by mu.
	local       *http.Server
	localServed chan struct{}
}

// New reads the files of the configuration and returns a server. Start makes the server listen.
func New(o Options) (*Server, error) {
	var faults rewards.Faults
	if o.Loop == nil || o.Presence == nil {
		faults = append(faults, errors.New("a loop and its presence are needed"))
	}
	faults.Add(len(o.Profiles) == 0, "no profile: want at least one")
	return build(o, (*Server).routes, faults...)
}

// build makes a server with the routes of its kind.
func build(o Options, routes func(*Server) http.Handler, faults ...error) (*Server, error) {
	cfg := o.Config.WithDefaults()
	faults = append(faults, cfg.Validate())
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	tok, err := readTokens(cfg.TokenFile, o.Log)
	faults = append(faults, err)
	tlsCfg, err := tlsConfig(cfg)
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &Server{
		cfg: cfg, loop: o.Loop, presence: o.Presence, reload: o.Reload, router: o.Router, engines: o.Engines, store: o.Store, claims: o.Claims, gatherer: o.Gatherer, log: o.Log,
		version: o.Version, begun: time.Now(), tokens: tok, crossOrigin: http.NewCrossOriginProtection(),
		bodies: budget{max: cfg.BodiesBytes}, decoders: make(chan struct{}, runtime.GOMAXPROCS(0)),
		streams: gate{max: cfg.MaxStreams}, warnings: sparse{most: 10},
		limits: compat.Limits{
			Samples: cfg.BatchSamples, PickleBytes: cfg.PickleBytes, JSONBytes: cfg.JSONBytes, ComputeTimeout: min(cfg.ComputeTimeout, cfg.MaxSampleTimeout),
		},
	}
	if others := readableByOthers(cfg.TokenFile, cfg.TLSKey); len(others) > 0 {
		s.log.Warn("other users of this machine can read a secret file of the server; run chmod 600 on the file", "files", others)
	}
	reg := o.Metrics
	if s.gatherer == nil {
		own := prometheus.NewRegistry()
		s.gatherer = own
		if reg == nil {
			reg = own
		}
	}
	s.Describe(o.Profiles)
	s.life, s.end = context.WithCancel(context.Background())
	s.join = newJoiner(s.life, cfg)
	s.selfTest = newSelfTest(s.life, cfg, o.SelfTest)
	s.metrics = newMetrics(s, reg)
	s.handler = routes(s)
	s.http = &http.Server{
		Handler:           s.handler,
		TLSConfig:         tlsCfg,
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		// From the header to the end of the answer; answers get WriteTimeout when
		// they begin. Upgraded connections are not touched by either.
		WriteTimeout:   cfg.BodyTimeout + max(cfg.MaxSampleTimeout, cfg.RouterTimeout) + cfg.DiscardTimeout + 2*cfg.WriteTimeout,
		MaxHeaderBytes: 64 << 10,
		ConnState:      s.connState,
		ErrorLog:       log.New(complaints{s}, "", 0),
		BaseContext:    func(net.Listener) context.Context { return s.life },
	}
	s.http.Protocols = new(http.Protocols)
	s.http.Protocols.SetHTTP1(true) // websockets and the pickle clients speak nothing else
	return s, nil
}

// connState bounds the connections.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if s.conns.Add(1) > int64(s.cfg.MaxConns) {
			_ = c.Close() // the server sees it and reports StateClosed
		}
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}

// Start serves on ln, or listens on Config.Listen if ln is nil, until Stop. Start returns
// immediately. ctx applies only to opening the listener. Start refuses a public address without a
// token, and may be called once.
func (s *Server) Start(ctx context.Context, ln net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.served != nil {
		return errors.New("server: Start is called once, before Stop")
	}
	if ln == nil {
		var lc net.ListenConfig
		var err error
		if ln, err = lc.Listen(ctx, "tcp", s.cfg.Listen); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	if tcp, ok := ln.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && s.tokens == nil && s.loop != nil {
		_ = ln.Close()
		return fmt.Errorf("server: %w", publicWithoutToken(tcp.String(), "token_file"))
	}
	s.listener, s.served = ln, make(chan struct{})
	go func() { // ends when Stop closes the listener; Stop waits for it
		defer close(s.served)
		var err error
		if s.http.TLSConfig != nil {
			err = s.http.ServeTLS(ln, "", "")
		} else {
			err = s.http.Serve(ln)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			s.log.ErrorContext(s.life, "the listener failed", "addr", ln.Addr().String(), "error", err)
		}
	}()
	return nil
}

// Addr returns the address of the listener, or nil before Start.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Drain makes /readyz fail, refuses new samples, and returns when no request waits for scores or
// ctx ends. The error then contains the number of waiting requests. The state endpoints stay
// available. The loop drains the streams.
func (s *Server) Drain(ctx context.Context) error {
	s.admission.close()
	if err := s.admission.wait(ctx); err != nil {
		return fmt.Errorf("server: %d requests still wait for scores: %w", s.admission.count(), err)
	}
	return nil
}

// Stop stops listening, waits for requests until ctx ends, closes the remaining requests and
// cancels their samples. Stop returns when no goroutine of the server is running. The error
// contains what was closed.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	served := s.served
	s.mu.Unlock()
	s.admission.close()
	s.streams.close()
	s.routed.close()
	s.claiming.close()

	var faults []error
	if err := s.http.Shutdown(ctx); err != nil {
		faults = append(faults, fmt.Errorf("server: %d requests cut off: %w", s.admission.count(), err))
		_ = s.http.Close()
	}
	faults = append(faults, s.stopLocal(ctx))
	s.end()
	if served != nil {
		<-served
	}
	// What is left has been told to end; a bound for what does not listen.
	const grace = 10 * time.Second
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for what, wait := range map[string]func(context.Context) error{
		"requests": s.admission.wait, "streams": s.streams.wait, "routed requests": s.routed.wait, "claims": s.claiming.wait, "flights": s.join.wait, "self-test": s.selfTest.wait,
	} {
		if err := wait(last); err != nil {
			faults = append(faults, fmt.Errorf("server: %s did not end: %w", what, err))
		}
	}
	return errors.Join(faults...)
}
