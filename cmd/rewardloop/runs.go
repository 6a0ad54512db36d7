package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
)

// runList is what GET /v1/runs answers.
type runList struct {
	Runs []loop.RunState `json:"runs"`
}

func runsCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "runs", GroupID: groupServer, Args: nothingElse,
		Short: "list the runs of a server",
		Long: "Lists the runs of a server: connected clients, samples waiting for a worker,\n" +
			"samples in flight, answered samples, and the newest step.",
		Example: "rewardloop runs --server http://127.0.0.1:8080",
	}
	server, asJSON := addServerFlags(e, cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		var list runList
		switch err := server.get(ctx, "/v1/runs?groups=0", &list); {
		case err != nil:
			return failed(interrupted(ctx, err, ""))
		case *asJSON:
			return e.json(list)
		case len(list.Runs) == 0:
			fmt.Fprintln(e.stdout, "the server has no run: no run has sent a sample yet")
			return nil
		}
		t := newTable(e, "run", "clients", "queued", "in flight", "mean ms", "newest step", "answered")
		for _, r := range list.Runs {
			newest := "-"
			if len(r.Steps) > 0 {
				newest = fmt.Sprintf("%s %d", cmp.Or(r.Steps[0].Split, rewards.Train), r.Steps[0].Step)
			}
			t.row(r.Run, strconv.Itoa(r.Clients), strconv.Itoa(r.Queued), strconv.Itoa(r.InFlight), fmt.Sprintf("%.1f", r.MeanMS), newest, outcomes(r.Outcomes))
		}
		t.print()
		return nil
	}
	return cmd
}

// outcomes says how many samples ended how.
func outcomes[K ~string, N int | uint64](counts map[K]N) string {
	var parts []string
	for _, o := range slices.Sorted(maps.Keys(counts)) {
		if counts[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], o))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// run is the run of that name, or the only one.
func (f *serverFlags) run(ctx context.Context, name string) (loop.RunState, error) {
	var list runList
	if err := f.get(ctx, "/v1/runs?groups=0", &list); err != nil {
		return loop.RunState{}, err
	}
	names := make([]string, len(list.Runs))
	for i, r := range list.Runs {
		if names[i] = r.Run; r.Run == name {
			return r, nil
		}
	}
	switch {
	case len(names) == 0:
		return loop.RunState{}, fmt.Errorf("the server at %s has no run: no run has sent a sample yet", f.address)
	case name == "" && len(names) == 1:
		return list.Runs[0], nil
	case name == "":
		return loop.RunState{}, fmt.Errorf("several runs: name one of %s", strings.Join(names, ", "))
	}
	return loop.RunState{}, fmt.Errorf("the server has no run %q%s; it has %s", name, config.DidYouMean(name, names), strings.Join(names, ", "))
}

// latestOf is the newest step of a run all of whose samples are answered.
func latestOf(r loop.RunState, split string) (int64, error) {
	for _, s := range r.Steps {
		if string(cmp.Or(s.Split, rewards.Train)) == split && s.Arrived > 0 && s.InFlight == 0 {
			return s.Step, nil
		}
	}
	return 0, fmt.Errorf("run %q has no complete %s step; `rewardloop steps` lists the steps of the run", r.Run, split)
}

func stepsCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "steps [RUN]", GroupID: groupServer,
		Short: "list the steps of a run",
		Long: "Lists the steps of a run, newest first: declared, arrived and in-flight samples,\n" +
			"outcomes, seconds from the first to the last arrival (rollout), and seconds from\n" +
			"the last arrival to the last reward, for which the trainer waits (exposed). RUN\n" +
			"is optional if the server has one run.",
		Example: "rewardloop steps my-run --server http://127.0.0.1:8080",
	}
	server, asJSON := addServerFlags(e, cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return errors.New("name one run")
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		r, err := server.run(ctx, strings.Join(args, ""))
		switch {
		case err != nil:
			return failed(interrupted(ctx, err, ""))
		case *asJSON:
			return e.json(map[string]any{"run": r.Run, "epoch": r.Epoch, "steps": append([]loop.StepState{}, r.Steps...)})
		}
		fmt.Fprintf(e.stdout, "run %s: %s\n", r.Run, rewards.Count(len(r.Steps), "step"))
		if len(r.Steps) == 0 {
			return nil
		}
		t := newTable(e, "step", "expected", "arrived", "in flight", "rollout s", "exposed s", "mean reward", "answered")
		for _, s := range r.Steps {
			expected, mean := "-", "-"
			if s.Expected > 0 {
				expected = strconv.Itoa(s.Expected)
			}
			if len(s.Stats) > 0 && s.Stats[0].Mean != nil {
				mean = fmt.Sprintf("%.4g", *s.Stats[0].Mean)
			}
			t.row(fmt.Sprintf("%s %d", cmp.Or(s.Split, rewards.Train), s.Step), expected, strconv.Itoa(s.Arrived), strconv.Itoa(s.InFlight),
				fmt.Sprintf("%.2f", s.ArrivalMS/1000), fmt.Sprintf("%.2f", s.ExposedMS/1000), mean, outcomes(s.Outcomes))
		}
		t.print()
		return nil
	}
	return cmd
}
