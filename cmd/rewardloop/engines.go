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
Lists the engine servers that a process with workers started
(reward_model.rollout.name: vllm, sglang or transformers). Columns: state, time
in that state, number of starts, total requests, requests in flight, failed
requests, and URL. For a server whose command ended or that is unable, engines
also prints the reason and the log file.

starting  the command runs and has not answered the first request yet
ready     the server answers requests
asleep    the server has released its memory to a trainer
paused    the command ended; the process restarts it after a pause
silent    the server no longer answers; the process is stopping it
unable    the server lacks a feature that its judges need; no restart follows
stopped   the process is stopping, or has no workers

The exit code is 1 if a server is not ready. --wait waits until all servers are
ready.`

// waitEvery is how often --wait asks.
const waitEvery = time.Second

func enginesCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "engines", GroupID: groupServer, Args: nothingElse,
		Short: "list the engine servers that a process started",
		Long:  enginesText, Example: "rewardloop engines --server http://127.0.0.1:8080\nrewardloop engines --wait --server http://127.0.0.1:8080",
	}
	at, asJSON := addServerFlags(e, cmd), jsonFlag(cmd)
	wait := cmd.Flags().Bool("wait", false, "wait until all servers are ready, or until a server is unable")
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
