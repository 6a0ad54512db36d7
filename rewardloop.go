package rewardloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

// Config is the configuration of a Server. The zero value of a field takes its default.
type Config struct {
	// File is a configuration file in YAML (docs/configuration.md). The default is no file: only
	// the Overrides apply.
	File string
	// Overrides are settings that take precedence over those of File, such as
	// "server.listen=127.0.0.1:9000".
	Overrides []string
	// Scorers are the program's own scorers, in addition to those that rewardloop contains. The
	// configuration refers to them as builtin://<name>. New returns an error if a name is already
	// in use.
	Scorers []rewards.Spec
	// Log receives the log records. The default discards them.
	Log *slog.Logger
	// Listening is called once, with the address at which the server accepts clients. The default
	// is no call.
	Listening func(net.Addr)
}

// ErrRunChild means that RunChild was not called. Without RunChild a child process of the Server
// would run the whole program again.
var ErrRunChild = errors.New("rewardloop: call rewardloop.RunChild first in main, before New")

//nolint:gochecknoglobals // of the process
var asked atomic.Bool

// RunChild must be called before anything else in main. If a Server has started the program as a
// child process, RunChild does the work of the child and exits the process; otherwise RunChild
// returns immediately. The child processes run Tesseract and ONNX Runtime.
func RunChild() {
	if code, child := subprocess.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	asked.Store(true)
}

// Server is a gateway with its workers, in this process.
type Server struct {
	node      *node.Node
	listening func(net.Addr)
}

// New reads the configuration and builds its rewards, and starts nothing. The error lists
// everything that is wrong with the configuration, with the lines of the file. Without a previous
// call of RunChild the error is ErrRunChild.
func New(cfg Config) (*Server, error) {
	if !asked.Load() {
		return nil, ErrRunChild
	}
	read := func() (*config.Config, error) { return config.Load(cfg.File, cfg.Overrides, os.LookupEnv) }
	c, err := read()
	if err != nil {
		return nil, err
	}
	n, err := node.New(node.Options{Config: c, Load: read, Log: cfg.Log, Scorers: cfg.Scorers, Version: "embedded"})
	if err != nil {
		return nil, err
	}
	return &Server{node: n, listening: cfg.Listening}, nil
}

// Run accepts samples until ctx ends. Then Run refuses new samples, waits at most
// loop.drain_timeout (30 s) for the samples in flight, and returns nil if every sample has its
// result. Run may be called once.
func (s *Server) Run(ctx context.Context) error {
	defer s.node.Stop()
	if err := s.node.Start(ctx); err != nil {
		return err
	}
	addr, err := s.node.Listen(ctx)
	if err != nil {
		return fmt.Errorf("rewardloop: %w", err)
	}
	if s.listening != nil {
		s.listening(addr)
	}
	<-ctx.Done()
	return s.node.Drain(context.WithoutCancel(ctx))
}
