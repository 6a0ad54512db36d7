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
Reloads the configuration of a server: the file and the overrides with which the
server was started. These keys change without a restart: weight, timeout and
retries of components, concurrency of rewards, and base_urls, key_file,
concurrency, requests_per_minute, tokens_per_minute, timeout and attempts of
engines. Samples that a worker already has are scored with the previous
configuration; the field config of a result identifies the configuration. reload
lists every other changed key as one that needs a restart. If the configuration
is wrong, reload prints every fault, and the server keeps the previous
configuration.

SIGHUP to a process has the same effect, and the process logs the outcome.
Workers in other processes have their own configurations: send SIGHUP to these
processes as well. A worker gets no samples of a reward while the worker's
weights differ from the gateway's.

The exit code is 1 if a key needs a restart or the server refused the reload.`

func reloadCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reload", GroupID: groupServer, Args: nothingElse,
		Short: "reload the configuration of a server",
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
