package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/rewards"
)

const failuresText = `
Lists the failures of a server and their causes. Failures with the same reward,
component, class and shape of message form one entry: the number of samples, the
time range, the workers, the newest message in full, and the newest samples. The
server keeps the 256 most recent entries in memory until the server stops.`

// failureList is what GET /v1/failures answers.
type failureList struct {
	Total    uint64             `json:"total"`
	Failures []failures.Failure `json:"failures"`
}

func failuresCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "failures", GroupID: groupServer, Args: nothingElse,
		SuggestFor: []string{"errors", "logs"},
		Short:      "list the failures of a server and their causes",
		Long:       failuresText, Example: "rewardloop failures --server http://127.0.0.1:8080 --reward judge",
	}
	server, asJSON := addServerFlags(e, cmd), jsonFlag(cmd)
	reward := cmd.Flags().String("reward", "", "only failures of the reward with this `name`; the default reward is named default")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		var answer failureList
		if err := server.get(ctx, "/v1/failures", &answer); err != nil {
			return failed(interrupted(ctx, err, ""))
		}
		if *reward != "" {
			answer.Failures = slices.DeleteFunc(answer.Failures, func(f failures.Failure) bool { return f.Reward != *reward })
		}
		if *asJSON {
			return e.json(answer)
		}
		printFailures(e.stdout, answer.Failures)
		return nil
	}
	return cmd
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
		fmt.Fprintf(w, "%s, reward %s, %s: %s\n", rewards.Count(int(f.Count), "sample"), f.Reward, //nolint:gosec // far below 2^63
			cmp.Or(f.Component, "the sample as a whole"), f.Class)
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(strings.TrimSpace(f.Message), "\n", "\n  "))
		fmt.Fprintf(w, "  from %s to %s", f.First.Local().Format(time.DateTime), f.Last.Local().Format(time.DateTime))
		if len(f.Workers) > 0 {
			fmt.Fprintf(w, ", on %s", strings.Join(f.Workers, ", "))
		}
		if f.Scored > 0 {
			fmt.Fprintf(w, ", %d scored without the component", f.Scored)
		}
		fmt.Fprintln(w)
		for _, s := range f.Samples {
			fmt.Fprintf(w, "  %s  run %s, %s step %d, sample %s, %s after %s\n", s.At.Local().Format(time.TimeOnly), s.Run, s.Split, s.Step, s.ID,
				s.Outcome, rewards.Count(s.Attempts, "attempt"))
		}
	}
}
