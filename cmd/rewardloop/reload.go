package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/server"
)

const reloadText = `
Has a server read its configuration anew: the file and the overrides that it was
started with. What can change while samples are scored holds from then on:
weight, timeout and retries of components, concurrency of rewards, and of
engines base_urls, key_file, concurrency, requests_per_minute,
tokens_per_minute, timeout and attempts. Samples that a worker has are scored as
they began; the field config of a result says by which configuration. Everything
else that is written otherwise is named and needs a restart. Where anything is
wrong with the configuration, all of it is said, and nothing changes.

SIGHUP to a process does the same, and the log says what came of it. Workers of
other processes have configurations of their own: send them SIGHUP, too. Until a
gateway and a worker have the same weights, the worker gets no samples of that
reward.

The exit code is 1 where something needs a restart, or the server refused.`

func reloadCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reload", GroupID: groupServer, Args: nothingElse,
		Short: "have a server read its configuration anew",
		Long:  reloadText, Example: "rewardloop reload --server http://127.0.0.1:8080",
	}
	from, asJSON := addServerFlags(e, cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		var done server.Reloaded
		err := from.ask(ctx, http.MethodPost, "/v1/reload", func(body io.Reader) error {
			return json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&done)
		})
		if err != nil {
			return failed(interrupted(ctx, err, ""))
		}
		if *asJSON {
			err = e.json(done)
		} else {
			printReloaded(e.stdout, done)
		}
		if err == nil && len(done.Restart) > 0 {
			err = failed(nil)
		}
		return err
	}
	return cmd
}

func printReloaded(w io.Writer, done server.Reloaded) {
	for _, key := range done.Applied {
		fmt.Fprintf(w, "%s: applied\n", key)
	}
	for _, key := range done.Restart {
		fmt.Fprintf(w, "%s: needs a restart\n", key)
	}
	if len(done.Applied)+len(done.Restart) == 0 {
		fmt.Fprintln(w, "nothing is written otherwise than it is")
	}
}
