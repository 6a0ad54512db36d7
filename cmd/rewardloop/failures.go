package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rewardloop/rewardloop/loop/failures"
)

const failuresText = `
Lists what has failed at a server and why. Failures of the same reward, component, class
and shape of message are one entry: how many samples, since when, on which workers, the
newest message in full, and the newest samples. The server remembers the 256 kinds that
happened last, until it ends.`

const failuresExample = `
rewardloop failures --url http://127.0.0.1:8080 --reward judge`

// maxAnswer bounds the list: 256 records of a few KB each.
const maxAnswer = 8 << 20

// listFailures is the command failures.
func listFailures(ctx context.Context, args []string, e env) int {
	fs := newFlags(e, "failures", failuresText, failuresExample)
	server := fs.String("url", "http://127.0.0.1:8080", "`address` of the server")
	reward := fs.String("reward", "", "only failures of the reward of this `name`; the default one is named default")
	tokenFile := fs.String("token-file", "", "`file` with the server's token")
	asJSON := fs.Bool("json", false, "print what the server answered: one JSON object")
	if code, done := parse(fs, args, e); done {
		return code
	}
	var err error
	if fs.NArg() > 0 {
		err = fmt.Errorf("unexpected %q; see --help", fs.Arg(0))
	}
	if err = errors.Join(err, checkServer(*server)); err != nil {
		return complain(e, "failures", exitUsage, err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var answer struct {
		Total    uint64             `json:"total"`
		Failures []failures.Failure `json:"failures"`
	}
	token, err := tokenOf(*tokenFile)
	if err == nil {
		err = ask(ctx, *server, "/v1/failures", token, func(body io.Reader) error {
			return json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&answer)
		})
	}
	if err != nil {
		return complain(e, "failures", exitFailure, err)
	}
	if *reward != "" {
		answer.Failures = slices.DeleteFunc(answer.Failures, func(f failures.Failure) bool { return f.Reward != *reward })
	}
	if *asJSON {
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", " ")
		if err := enc.Encode(answer); err != nil {
			return complain(e, "failures", exitFailure, err)
		}
		return exitOK
	}
	printFailures(e.stdout, answer.Failures)
	return exitOK
}

func printFailures(w io.Writer, list []failures.Failure) {
	if len(list) == 0 {
		fmt.Fprintln(w, "nothing has failed")
		return
	}
	for i, f := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%d %s, reward %s, %s: %s\n", f.Count, plural(f.Count, "sample", "samples"), f.Reward,
			cmp.Or(f.Component, "the sample as a whole"), f.Class)
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(f.Message, "\n", "\n  "))
		fmt.Fprintf(w, "  from %s to %s", f.First.Local().Format(time.DateTime), f.Last.Local().Format(time.DateTime))
		if len(f.Workers) > 0 {
			fmt.Fprintf(w, ", on %s", strings.Join(f.Workers, ", "))
		}
		if f.Scored > 0 {
			fmt.Fprintf(w, ", %d scored without the component", f.Scored)
		}
		fmt.Fprintln(w)
		for _, s := range f.Samples {
			fmt.Fprintf(w, "  %s  run %s, %s step %d, sample %s, %s after %d %s\n", s.At.Local().Format(time.TimeOnly), s.Run, s.Split, s.Step, s.ID,
				s.Outcome, s.Attempts, plural(uint64(max(s.Attempts, 0)), "attempt", "attempts"))
		}
	}
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
