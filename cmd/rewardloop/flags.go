package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
)

// These are the flags that several commands have.

func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print the output as one JSON document")
}

// maxConfig is how much of standard input is read as a configuration, in bytes: one more than
// config takes, which says that it is too large.
const maxConfig = 1<<20 + 1

// settings are a configuration as the command line names it: a file, by -c or as an argument,
// and overrides.
type settings struct {
	e         *env
	file      string
	overrides []string
	flags     map[string]string // the flag that stands behind an override, by its text
	text      []byte            // of standard input, which can be read once; a reload takes the same
}

// configFlags adds -c; arguments are the file and overrides.
func configFlags(e *env, cmd *cobra.Command) *settings {
	s := &settings{e: e, flags: map[string]string{}}
	cmd.Flags().StringVarP(&s.file, "config", "c", "", "configuration `file` (YAML); - reads standard input; default: overrides only")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml") // the flag is there
	cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	cmd.Args = func(_ *cobra.Command, args []string) error { return s.take(args) }
	return s
}

// take tells the file from the overrides.
func (s *settings) take(args []string) error {
	for _, a := range args {
		if !isConfigFile(a) {
			s.overrides = append(s.overrides, a)
			continue
		}
		if s.file != "" {
			return fmt.Errorf("unexpected %q: the configuration is %s", a, s.file)
		}
		s.file = a
	}
	return nil
}

// isConfigFile says whether an argument names a file and is no override.
func isConfigFile(arg string) bool {
	switch {
	case strings.ContainsAny(arg, "=") || strings.HasPrefix(arg, "~"):
		return false
	case arg == "-", strings.HasSuffix(arg, ".yaml"), strings.HasSuffix(arg, ".yml"):
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

// set adds the override of a flag that was given.
func (s *settings) set(flag, key, value string) {
	if value == "" {
		return
	}
	override := "++" + key + "=" + value
	s.overrides, s.flags[override] = append(s.overrides, override), "--"+flag
}

// given says whether the command line names any configuration.
func (s *settings) given() bool { return s.file != "" || len(s.overrides) > 0 }

// read reads the configuration. The Config beside an error has what could be read.
func (s *settings) read() (cfg *config.Config, err error) {
	if s.file != "-" {
		cfg, err = config.Load(s.file, s.overrides, s.e.getenv)
	} else {
		if s.text == nil {
			if s.text, err = io.ReadAll(io.LimitReader(s.e.stdin, maxConfig)); err != nil {
				return nil, fmt.Errorf("configuration: standard input: %w", err)
			}
		}
		cfg, err = config.Parse("standard input", s.text, s.overrides, s.e.getenv)
	}
	if cfg != nil && s.e.secrets == nil { // a reload comes from another goroutine
		s.e.secrets = cfg.Secrets
	}
	return cfg, s.named(err)
}

// named has the faults of overrides that stand for flags name those.
func (s *settings) named(err error) error {
	faults, _ := errors.AsType[config.FaultsError](err)
	for i, f := range faults {
		if flag := s.flags[f.Place.Override]; flag != "" {
			faults[i].Place = config.Place{File: flag}
		}
	}
	return err
}

// load reads a configuration and checks it as it will run: by a process that scores samples
// if the configuration says so, or as a worker.
func (s *settings) load(ctx context.Context, worker bool) (*config.Config, error) {
	cfg, err := s.read()
	err = node.Check(ctx, cfg, err, worker || scores(cfg))
	if faults, ok := errors.AsType[config.FaultsError](err); ok && worker { // others may have what this machine lacks
		err = faults.Beside()
	}
	if err != nil {
		return nil, err
	}
	return cfg, nil
}

// scores reports whether a process of this configuration scores samples itself: what is not
// on this machine then may be on that of the workers.
func scores(cfg *config.Config) bool { return cfg != nil && cfg.NumWorkers > 0 }

// tiedFlag is the flag of commands that a program starts for itself. A program that is killed
// runs no code of its own, but the system closes its end of the pipe.
func tiedFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("until-stdin-closes", false, "stop when standard input is closed, e.g. because the parent process ended")
}

// errTied refuses two readers of standard input.
var errTied = errors.New("-c - and --until-stdin-closes both read standard input: write the configuration to a file")

// untilClosed ends ctx when stdin does. The process outlives its standard error, which goes
// the same way: otherwise the first line of its log afterwards would end it, by SIGPIPE.
func untilClosed(ctx context.Context, stdin io.Reader, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cut := context.WithCancel(ctx)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // and not Ignore, which children would inherit
	go func() {                                             // ends with standard input, or with the process
		_, _ = io.Copy(io.Discard, stdin) // whatever ends it: nobody is there any more
		log.WarnContext(ctx, "the program that started this process ended and closed standard input; this process stops")
		cut()
	}()
	return ctx, cut
}

// logFlags are the flags of every command that logs.
type logFlags struct{ level, format string }

func addLogFlags(cmd *cobra.Command) *logFlags {
	f := new(logFlags)
	cmd.Flags().StringVar(&f.level, "log-level", "info", "log `level`: debug, info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", "text", "log `format`: text or json")
	_ = cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return f
}

func (f *logFlags) logger(e *env) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", f.level)
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: e.secrets.Attr}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(e.stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(e.stderr, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", f.format)
}

// interruptible ends a context at the first SIGINT or SIGTERM; the next one ends the process.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// interrupted is err, or that a signal ended the command; also says what became of its work.
func interrupted(ctx context.Context, err error, also string) error {
	if err != nil && ctx.Err() != nil {
		return errors.New(strings.TrimSuffix("interrupted; "+also, "; "))
	}
	return err
}

// serverFlags name a server that runs.
type serverFlags struct{ address, tokenFile, token string }

const defaultServer = "http://127.0.0.1:8080"

func addServerFlags(e *env, cmd *cobra.Command) *serverFlags {
	f := new(serverFlags)
	cmd.Flags().StringVar(&f.address, "server", defaultServer, "`address` of the server")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "`file` with the token of the server; default: the file named by REWARDLOOP_TOKEN_FILE, else the token in REWARDLOOP_TOKEN")
	cmd.PreRunE = func(*cobra.Command, []string) error { return f.check(e) }
	return f
}

// check completes the address and reads the token.
func (f *serverFlags) check(e *env) (err error) {
	if f.address, err = checkServer(f.address); err != nil {
		return wrong(err)
	}
	named, _ := e.getenv("REWARDLOOP_TOKEN_FILE")
	if file := cmp.Or(f.tokenFile, named); file != "" {
		if f.token, err = tokenOf(file); err != nil {
			return failed(err)
		}
		return nil
	}
	f.token, _ = e.getenv("REWARDLOOP_TOKEN")
	return nil
}
