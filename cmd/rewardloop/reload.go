package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/rewardloop/rewardloop/server"
)

const reloadText = `
Has a server read its configuration anew: the file and the overrides that it was started
with. What can change while samples are scored holds from then on: weight, timeout and
retries of components, concurrency of rewards, and of engines base_urls, key_file,
concurrency, requests_per_minute, tokens_per_minute, timeout and attempts. Samples that a
worker has are scored as they began; the field config of a result says by which
configuration. Everything else that is written otherwise is named and needs a restart.
Where anything is wrong with the configuration, all of it is said, and nothing changes.

SIGHUP to a process does the same, and the log says what came of it. Workers of other
processes have configurations of their own: send them SIGHUP, too. Until a gateway and a
worker have the same weights, the worker gets no samples of that reward.

The exit code is 1 where something needs a restart, or the server refused.`

const reloadExample = `
rewardloop reload --url http://127.0.0.1:8080`

// reload is the command reload.
func reload(ctx context.Context, args []string, e env) int {
	fs := newFlags(e, "reload", reloadText, reloadExample)
	address := fs.String("url", "http://127.0.0.1:8080", "`address` of the server")
	tokenFile := fs.String("token-file", "", "`file` with the server's token")
	if code, done := parse(fs, args, e); done {
		return code
	}
	var err error
	if fs.NArg() > 0 {
		err = fmt.Errorf("unexpected %q; see --help", fs.Arg(0))
	}
	if err = errors.Join(err, checkServer(*address)); err != nil {
		return complain(e, "reload", exitUsage, err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var done server.Reloaded
	token, err := tokenOf(*tokenFile)
	if err == nil {
		err = request(ctx, http.MethodPost, *address, "/v1/reload", token, func(body io.Reader) error {
			return json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&done)
		})
	}
	if err != nil {
		return complain(e, "reload", exitFailure, err)
	}
	for _, key := range done.Applied {
		fmt.Fprintf(e.stdout, "%s: applied\n", key)
	}
	for _, key := range done.Restart {
		fmt.Fprintf(e.stdout, "%s: needs a restart\n", key)
	}
	switch {
	case len(done.Restart) > 0:
		return exitFailure
	case len(done.Applied) == 0:
		fmt.Fprintln(e.stdout, "nothing is written otherwise than it is")
	}
	return exitOK
}
