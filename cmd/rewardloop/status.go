package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/store"
	"github.com/rewardloop/rewardloop/wire"
)

const statusText = `
Prints the state of a server on one screen: readiness, with reasons if the
server is not ready; the state of each reward; the workers; the pending samples
and what each sample waits for; the newest failures; and the state of the result
store. The exit code is 1 if the server is not ready.`

// maxPending is how many samples without a result status asks for, and shownPending how many
// of them and of the failures it prints.
const (
	maxPending   = 100
	shownPending = 5
)

// readiness is what GET /readyz answers who may know.
type readiness struct {
	Ready   *bool           `json:"ready"`
	Reasons []string        `json:"reasons"`
	Rewards []loop.Progress `json:"rewards"`
}

// serverStatus is what status --json prints.
type serverStatus struct {
	Server  string          `json:"server"`
	Version string          `json:"version"`
	Ready   bool            `json:"ready"`
	Reasons []string        `json:"reasons"` // why it is not ready
	Rewards []loop.Progress `json:"rewards"`

	Workers  []wire.WorkerInfo  `json:"workers"`
	Breakers []loop.BreakerInfo `json:"breakers"`
	Pending  pendingList        `json:"pending"`
	Failures failureList        `json:"failures"`
	Store    store.State        `json:"store"`
}

// pendingList is what GET /v1/pending answers.
type pendingList struct {
	Total   int                  `json:"total"`
	Held    int64                `json:"held_bytes"`
	Granted int64                `json:"granted_bytes"`
	Samples []loop.PendingSample `json:"samples"`
}

func statusCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", GroupID: groupServer, Args: nothingElse,
		SuggestFor: []string{"info", "health", "ps"},
		Short:      "print the state of a server on one screen",
		Long:       statusText, Example: "rewardloop status --server http://127.0.0.1:8080",
	}
	server, asJSON := addServerFlags(e, cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		s, err := statusOf(ctx, server)
		if err != nil {
			return failed(interrupted(ctx, err, ""))
		}
		if *asJSON {
			err = e.json(s)
		} else {
			s.print(e)
		}
		if err == nil && !s.Ready {
			err = failed(nil)
		}
		return err
	}
	return cmd
}

// statusOf asks the server for everything, one path after the other.
func statusOf(ctx context.Context, server *serverFlags) (*serverStatus, error) {
	s := &serverStatus{Server: server.address, Reasons: []string{}}
	var ready readiness
	var seen struct {
		Store store.State `json:"store"`
	}
	for _, q := range []struct {
		path string
		into any
		also int // a status beside 200
	}{
		{"/", s, 0}, // of it the version
		{"/readyz", &ready, http.StatusServiceUnavailable},
		{"/v1/workers", s, 0},
		{fmt.Sprintf("/v1/pending?limit=%d", maxPending), &s.Pending, 0},
		{"/v1/failures", &s.Failures, 0},
		{"/v1/overview", &seen, 0},
	} {
		if err := server.get(ctx, q.path, q.into, q.also); err != nil {
			return nil, err
		}
	}
	if ready.Ready == nil {
		return nil, fmt.Errorf("%s does not report whether it is ready: check that it is the address of a rewardloop server", server.address)
	}
	s.Store = seen.Store
	s.Ready, s.Rewards = *ready.Ready, append([]loop.Progress{}, ready.Rewards...)
	s.Reasons = append(s.Reasons, ready.Reasons...)
	return s, nil
}

// print writes one screen.
func (s *serverStatus) print(e *env) {
	w := e.stdout
	state := e.colour(green, "ready")
	if !s.Ready {
		state = e.colour(red, "not ready")
	}
	fmt.Fprintf(w, "%s  %s  %s\n", s.Server, s.Version, state)
	for _, why := range s.Reasons {
		fmt.Fprintf(w, "  %s\n", why)
	}
	fmt.Fprintln(w, "\nrewards")
	for _, p := range s.Rewards {
		fmt.Fprintf(w, "  %s  %s, %d waiting, %d with workers%s\n", p.Reward, e.colour(progressColour(p), string(p.State)), p.Waiting, p.Running, because(oneLine(p.Why)))
	}
	busy := 0
	for _, x := range s.Workers {
		busy += x.Busy
	}
	fmt.Fprintf(w, "\nworkers: %d, with %s\n", len(s.Workers), rewards.Count(busy, "sample"))
	for _, x := range s.Workers {
		if x.State != wire.WorkerReady {
			fmt.Fprintf(w, "  %s  %s\n", x.ID, e.colour(red, x.State))
		}
	}
	for _, b := range s.Breakers {
		fmt.Fprintf(w, "  %s  gets no samples of %s%s\n", b.Worker, b.Reward, because(oneLine(b.Reason)))
	}
	s.printPending(e)
	s.printFailures(e)
	s.printStore(e)
}

func (s *serverStatus) printPending(e *env) {
	w := e.stdout
	fmt.Fprintf(w, "\npending: %s, %.1f MiB\n", rewards.Count(s.Pending.Total, "sample"), float64(s.Pending.Held)/(1<<20))
	for _, p := range s.Pending.Samples[:min(len(s.Pending.Samples), shownPending)] {
		age := time.Duration(p.AgeMS * float64(time.Millisecond)).Round(100 * time.Millisecond)
		fmt.Fprintf(w, "  run %s, step %d, %s  %s for %v", p.Run, p.Step, p.ID, p.Stage, age)
		if len(p.Workers) > 0 {
			fmt.Fprintf(w, ", with %s", strings.Join(p.Workers, ", "))
		}
		fmt.Fprintf(w, "%s%s\n", because(p.Waits), because(oneLine(p.LastError)))
	}
}

func (s *serverStatus) printFailures(e *env) {
	w := e.stdout
	fmt.Fprintf(w, "\nfailures: %d in all\n", s.Failures.Total)
	list := s.Failures.Failures
	for _, f := range list[:min(len(list), shownPending)] {
		fmt.Fprintf(w, "  %s  %d × %s %s: %s\n", f.Last.Local().Format(time.TimeOnly), f.Count, f.Reward, f.Class, oneLine(f.Message))
	}
	if len(list) > 0 {
		fmt.Fprintln(w, "  `rewardloop failures` lists them all")
	}
}

func (s *serverStatus) printStore(e *env) {
	if !s.Store.On {
		fmt.Fprintln(e.stdout, "\nstore: off, no result is kept")
		return
	}
	fmt.Fprintf(e.stdout, "\nstore: %s in %s, %.1f of %.1f GiB\n", rewards.Count(int(s.Store.Rows), "result"), s.Store.File,
		float64(s.Store.Bytes)/(1<<30), float64(s.Store.LimitBytes)/(1<<30))
	if s.Store.Error != "" {
		fmt.Fprintf(e.stdout, "  %s%s\n", e.colour(red, "results cannot be written"), because(oneLine(s.Store.Error)))
	}
	if s.Store.Dropped > 0 {
		fmt.Fprintf(e.stdout, "  %s left out since the server started\n", rewards.Count(int(s.Store.Dropped), "result")) //nolint:gosec // a count
	}
}

// oneLine is the first line of a message, which says what happened: a traceback follows it.
func oneLine(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return first
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func progressColour(p loop.Progress) string {
	switch {
	case p.State == loop.Progressing && p.Why == "":
		return green
	case p.State == loop.Progressing, p.State == loop.Slow:
		return yellow
	}
	return red
}
