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

// Loop is what the server needs of a gateway.
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

// Profile describes a reward that samples can be scored with.
type Profile struct {
	// Name is how requests ask for it; "" is the default one.
	Name string `json:"name"`
	// Components are its scorers, in the order of the configuration.
	Components []Component `json:"components"`
	// Aggregation is how their values become one reward.
	Aggregation string `json:"aggregation,omitempty"`
	// Extra are the columns that reward_extra_info has, as far as they are declared.
	Extra []wire.ExtraKey `json:"extra,omitempty"`
}

// Component is one scorer's part in a reward.
type Component struct {
	// Key names the component within its profile, Scorer what computes it.
	Key    string `json:"key"`
	Scorer string `json:"scorer,omitempty"`
	// Weight is its part in the aggregation.
	Weight float64 `json:"weight"`
	// Required: a sample without its value has no reward.
	Required bool `json:"required"`
}

// Options are what a Server needs from outside.
type Options struct {
	Config Config
	// Loop takes the samples, Presence knows which workers live; both are needed.
	Loop     Loop
	Presence loop.Presence
	// Profiles are the rewards, the default one among them.
	Profiles []Profile
	// Router sends what the reward router forwards to engines that serve models:
	// /v1/chat/completions, /v1/completions, /v1/embeddings, /classify and /v1/models.
	// Nil: those paths say that there is none.
	Router outbound.Doer
	// Engines lists the servers of engines that this process has started. Nil: it starts none.
	Engines func() []EngineServer
	// Store has the results that are kept; nil, or a nil store: none are.
	Store func() *store.Store
	// Claims answers GET /v1/claim, where workers of other processes claim what they score,
	// and looks at who asks itself. Nil: there are none.
	Claims http.Handler
	// Reload reads the configuration anew and applies what can change while the process runs. An
	// error says that nothing was changed, and why. Nil: there is no reload.
	Reload func(ctx context.Context) (Reloaded, error)
	// SelfTest scores a known picture and returns an error if the score is not the
	// known one. It must end with its context. Nil: readiness asks for workers alone.
	SelfTest func(ctx context.Context) error
	// Gatherer is what /metrics shows, Metrics where the server's own are
	// registered. Nil: the server's own alone, in a registry of its own.
	Gatherer prometheus.Gatherer
	Metrics  prometheus.Registerer
	Log      *slog.Logger // nil: discarded
	// Version is shown on the status page and told to clients of another protocol.
	Version string
}

// Reloaded says what a reload has done, in keys of the configuration.
type Reloaded struct {
	// Applied are settings that hold from now on.
	Applied []string `json:"applied"`
	// Restart are those that hold once the process is started again.
	Restart []string `json:"restart"`
}

// Server is the HTTP face of a gateway.
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

// New makes a server, reading the files that the configuration names. Start makes
// it listen.
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

// Start serves on ln, or listens on Config.Listen if it is nil, until Stop. It
// returns at once. ctx bounds the listening alone.
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

// Addr returns the address that is listened on; nil before Start.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Drain makes /readyz fail, refuses new samples, and returns when no request waits
// for scores any more or ctx ends; the error then says how many do. State stays
// visible, and streams are the loop's to drain.
func (s *Server) Drain(ctx context.Context) error {
	s.admission.close()
	if err := s.admission.wait(ctx); err != nil {
		return fmt.Errorf("server: %d requests still wait for scores: %w", s.admission.count(), err)
	}
	return nil
}

// Stop ends the server: it stops listening, lets requests finish until ctx ends,
// then cuts them off and cancels their samples. It returns when nothing of the
// server runs any more; the error says what was cut off.
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
