// Command rewardloop is the reward loop in one binary: the server, the offline
// scorer, the demo, and what looks after them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/internal/redact"
	"github.com/rewardloop/rewardloop/internal/slot"
)

// version is set by the linker.
var version string

// Exit codes, the same for every command.
const (
	exitOK      = 0
	exitFailure = 1 // it ran, and something did not succeed
	exitUsage   = 2 // it was asked wrongly, or the configuration is wrong
)

func main() {
	// A child that runs Tesseract or models is this same binary; it must not do anything else.
	if code, child := slot.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
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

// command is one subcommand.
type command struct {
	name, summary string
	run           func(ctx context.Context, args []string, e env) int
}

func commands() []command {
	return []command{
		{"serve", "run the gateway, its workers and their scorers in this process", serve},
		{"worker", "score what gateways on other machines hold", worker},
		{"score", "score a file of samples with the same rewards, offline", score},
		{"demo", "show the main job on real pictures, measured", demonstrate},
		{"plan", "say how many workers, GPUs or calls make the reward free", plan},
		{"trace", "measure a recorded step, and draw it", trace},
		{"failures", "list what has failed at a server, and why", listFailures},
		{"reload", "have a server read its configuration anew, and say what holds now", reload},
		{"devices", "list the cards of this machine, and which model has which", devices},
		{"doctor", "check what this machine has and what is missing", doctor},
		{"scorers", "list the rewards that ship, with their options", scorers},
		{"config", "check or print a configuration", configure},
		{"models", "bring the model files that rewards need, and check them", modelFiles},
		{"fabric", "make the keys with which gateways and workers on several machines meet", fabricCommand},
		{"version", "print the version", printVersion},
	}
}

// run finds the command and runs it.
func run(ctx context.Context, args []string, e env) int {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		usage(e.stdout)
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], e)
		}
	}
	if slices.Contains([]string{"--version", "-version", "-v", "-V"}, args[0]) {
		return printVersion(ctx, args[1:], e)
	}
	names := make([]string, 0, len(commands()))
	for _, c := range commands() {
		names = append(names, c.name)
	}
	if meant := config.DidYouMean(args[0], names); meant != "" {
		fmt.Fprintf(e.stderr, "rewardloop: no command %q%s\n", args[0], meant)
		return exitUsage
	}
	fmt.Fprintf(e.stderr, "rewardloop: no command %q\n\n", args[0])
	usage(e.stderr)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "rewardloop scores finished samples while the others are still being generated.\n\nUsage: rewardloop <command> [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-9s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\n`rewardloop <command> --help` tells the rest, with an example.\n")
}

// newFlags makes a flag set whose --help prints what the command does and an example.
func newFlags(e env, name, text, example string) *flag.FlagSet {
	fs := flag.NewFlagSet("rewardloop "+name, flag.ContinueOnError)
	fs.SetOutput(e.stderr)
	fs.Usage = func() {
		w := fs.Output()
		fmt.Fprintf(w, "%s\n\nExample:\n  %s\n", strings.TrimSpace(text), strings.ReplaceAll(strings.TrimSpace(example), "\n", "\n  "))
		has := false
		fs.VisitAll(func(*flag.Flag) { has = true })
		if has {
			fmt.Fprint(w, "\nFlags:\n")
			fs.PrintDefaults()
		}
	}
	return fs
}

// parse reads the flags; done is true if the command is to end with code.
func parse(fs *flag.FlagSet, args []string, e env) (code int, done bool) {
	if slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "-help" || a == "--help" }) {
		fs.SetOutput(e.stdout) // asked for: it is the answer, not a complaint
	}
	switch err := fs.Parse(flagsFirst(fs, args)); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK, true
	case err != nil:
		return exitUsage, true
	}
	return exitOK, false
}

// flagsFirst moves flags before the overrides, so that they may stand in any order;
// package flag stops at the first argument that is none.
func flagsFirst(fs *flag.FlagSet, args []string) []string {
	var flags, rest []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		flags = append(flags, a)
		name, _, valued := strings.Cut(strings.TrimLeft(a, "-"), "=")
		f := fs.Lookup(name)
		if f == nil || valued {
			continue
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); (!ok || !b.IsBoolFlag()) && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	return append(append(flags, "--"), rest...)
}

// complain prints an error in the form all commands share and returns the code.
func complain(e env, command string, code int, err error) int {
	fmt.Fprintf(e.stderr, "rewardloop %s: %s\n", command, e.secrets.Text(err.Error()))
	return code
}

// release returns the version that was linked in, else the one Go knows.
func release() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func printVersion(_ context.Context, args []string, e env) int {
	fs := newFlags(e, "version", "Prints the version of this binary.", "rewardloop version")
	if code, done := parse(fs, args, e); done {
		return code
	}
	fmt.Fprintln(e.stdout, release())
	return exitOK
}
