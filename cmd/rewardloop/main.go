// Command rewardloop is the reward loop in one binary: the server, the offline scorer, the demo,
// and the commands for their administration.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rewardloop/rewardloop/internal/redact"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/node"
)

// Exit codes, the same for every command.
const (
	exitOK      = 0
	exitFailure = 1 // it ran, and something did not succeed
	exitUsage   = 2 // it was asked wrongly, or the configuration is wrong
)

func main() {
	// A child that runs Tesseract or models is this same binary; it must not do anything else.
	if code, child := subprocess.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	adoptPython()
	e := env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.LookupEnv}
	os.Exit(run(context.Background(), os.Args[1:], e))
}

// env is what a command sees of the world.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) (string, bool)
	secrets        *redact.Words // of the configuration, once it is read
}

// exit is how a command ends that did not succeed. Every other error is one of the command line,
// after which its help is named.
type exit struct {
	code int
	err  error // nil: the command has said everything
}

func (x *exit) Error() string {
	if x.err == nil {
		return fmt.Sprintf("exit code %d", x.code)
	}
	return x.err.Error()
}

func (x *exit) Unwrap() error { return x.err }

// wrong ends a command that was asked wrongly, or whose configuration is wrong.
func wrong(err error) error { return &exit{exitUsage, err} }

// failed ends a command that ran and did not succeed; nil: it has said why.
func failed(err error) error { return &exit{exitFailure, err} }

// run finds the command, runs it and returns the exit code.
func run(ctx context.Context, args []string, e env) int {
	root := newRoot(&e)
	root.SetArgs(append([]string{}, args...)) // nil would be those of the process
	cmd, err := oneDash(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	var x *exit
	switch {
	case err == nil:
		return exitOK
	case !errors.As(err, &x):
		x = &exit{exitUsage, fmt.Errorf("%w\n`%s --help` shows the arguments and flags", err, cmd.CommandPath())}
	}
	if x.err != nil {
		fmt.Fprintf(e.stderr, "%s: %s\n", cmd.CommandPath(), e.secrets.Text(x.err.Error()))
	}
	return x.code
}

// json writes a document as every --json does.
func (e *env) json(document any) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(document); err != nil {
		return failed(err)
	}
	return nil
}

// Colours of words that say how something fares.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
)

// colour paints a text on a terminal, unless NO_COLOR is set (https://no-color.org).
func (e *env) colour(code, text string) string {
	off, _ := e.getenv("NO_COLOR")
	kind, _ := e.getenv("TERM")
	if off != "" || kind == "dumb" || !isTerminal(e.stdout) {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// commands makes the subcommands, in the order in which --help lists them.
func commands(e *env) []*cobra.Command {
	return []*cobra.Command{
		serveCommand(e), workerCommand(e), scoreCommand(e), exportCommand(e), replayCommand(e), tryCommand(e), demoCommand(e),
		statusCommand(e), enginesCommand(e), runsCommand(e), stepsCommand(e), traceCommand(e), failuresCommand(e), reloadCommand(e),
		configCommand(e), scorersCommand(e), modelsCommand(e), envCommand(e), devicesCommand(e), doctorCommand(e), planCommand(e), queueCommand(e), quickstartCommand(e),
		versionCommand(e), completionCommand(e),
	}
}
