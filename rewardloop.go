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

// Config is what a Server is made from. The zero value of a field takes its default.
type Config struct {
	// File is a configuration file in YAML (docs/configuration.md). Defaults to none: the
	// Overrides alone.
	File string
	// Overrides are settings over those of File, such as "server.listen=127.0.0.1:9000".
	Overrides []string
	// Scorers are the program's own, beside those that ship. The configuration names one as
	// builtin://<name>; a name that is taken is an error of New.
	Scorers []rewards.Spec
	// Log is told what happens. Defaults to nothing being logged.
	Log *slog.Logger
	// Listening is called once, with the address at which clients are taken. Defaults to nothing.
	Listening func(net.Addr)
}

// ErrRunChild means that RunChild was not called, and that a child process of the Server would
// be the program once more.
var ErrRunChild = errors.New("rewardloop: call rewardloop.RunChild first in main, before New")

//nolint:gochecknoglobals // of the process
var asked atomic.Bool

// RunChild ends the process, with what a child process does, where a Server has started the program
// as one: Tesseract and ONNX Runtime run in child processes. Elsewhere it returns at once. Call it
// before anything else in main.
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

// New reads the configuration and builds its rewards. Nothing runs yet. The error names everything
// that is wrong with the configuration, with its lines.
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

// Run takes samples until ctx ends. Then it refuses new ones, finishes what is in flight, within
// loop.drain_timeout (30 s), and returns: nil where every sample was answered. It may be called once.
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
