package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/server"
)

const enginesText = `
Lists the servers of engines that a process with workers has started
(reward_model.rollout.name: vllm, sglang or transformers): of each the state,
since when, how often it was started, the questions that it has now and has had,
why its last command ended, and the file that it writes.

starting  its command runs and does not answer the first question yet
ready     it answers
paused    its command has ended; it is started again after a pause
silent    it does not answer any more and is being ended
unable    it lacks a feature that its judges need of it, and is not started again
stopped   its process ends, or has no workers

Exits with 1 if a server is not ready. With --wait it waits until all are.`

// waitEvery is how often --wait asks.
const waitEvery = time.Second

func enginesCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "engines", GroupID: groupServer, Args: nothingElse,
		Short: "list the servers of engines that a process has started",
		Long:  enginesText, Example: "rewardloop engines --server http://127.0.0.1:8080\nrewardloop engines --wait --server http://127.0.0.1:8080",
	}
	at, asJSON := addServerFlags(e, cmd), jsonFlag(cmd)
	wait := cmd.Flags().Bool("wait", false, "wait until all servers are ready, or one is unable")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		list, err := enginesOf(ctx, e, at, *wait)
		if err != nil {
			return failed(interrupted(ctx, err, ""))
		}
		if *asJSON {
			err = e.json(list)
		} else {
			printEngines(e, list.Servers)
		}
		if err == nil && countState(list.Servers, "ready") < len(list.Servers) {
			err = failed(nil)
		}
		return err
	}
	return cmd
}

// engineList is what GET /v1/engines answers.
type engineList struct {
	Servers []server.EngineServer `json:"servers"`
}

// enginesOf asks for the servers, with wait until all are ready or one never will be.
func enginesOf(ctx context.Context, e *env, at *serverFlags, wait bool) (list engineList, err error) {
	for last := ""; ; {
		list = engineList{Servers: []server.EngineServer{}}
		if err := at.get(ctx, "/v1/engines", &list, 0); err != nil {
			return list, err
		}
		ready := countState(list.Servers, "ready")
		if !wait || ready == len(list.Servers) || countState(list.Servers, "unable") > 0 {
			return list, nil
		}
		if now := fmt.Sprintf("%d of %d servers are ready", ready, len(list.Servers)); now != last {
			fmt.Fprintln(e.stderr, now)
			last = now
		}
		select {
		case <-time.After(waitEvery):
		case <-ctx.Done():
			return list, ctx.Err()
		}
	}
}

// countState counts the servers that are in a state.
func countState(servers []server.EngineServer, state string) (n int) {
	for _, s := range servers {
		if s.State == state {
			n++
		}
	}
	return n
}

func printEngines(e *env, servers []server.EngineServer) {
	if len(servers) == 0 {
		fmt.Fprintln(e.stdout, "this process has started no engine: an engine is started where reward_model.rollout.name is vllm, sglang or transformers, by processes with workers")
		return
	}
	t := newTable(e, "server", "kind", "state", "for", "starts", "asked", "in flight", "failed", "url")
	for _, s := range servers {
		t.row(
			s.Name, s.Kind, s.State, time.Since(s.Since).Round(time.Second).String(), strconv.Itoa(s.Starts),
			strconv.FormatInt(s.Requests, 10), strconv.Itoa(s.InFlight), strconv.FormatInt(s.Failures, 10), s.URL,
		)
	}
	t.print()
	for _, s := range servers {
		if s.Why != "" {
			fmt.Fprintf(e.stdout, "\n%s, last: %s\n  log: %s\n", s.Name, strings.TrimSpace(s.Why), s.Log)
		}
	}
}
