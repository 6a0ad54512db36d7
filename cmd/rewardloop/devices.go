package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/redact"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/cards"
	"github.com/rewardloop/rewardloop/rewards"
)

const devicesText = `
Lists the GPUs that this process can use, in the order of CUDA: the GPUs in
CUDA_VISIBLE_DEVICES, else all. Each MIG instance counts as one GPU. For each
GPU, devices prints the total and the free memory, the health, and the processes
that compute on the GPU. With a configuration, devices also prints the models on
each GPU, their planned memory, and the remaining memory.

A model runs on the CPU unless its entry has the key device: cuda:1 is the
second GPU, cuda is every GPU of the reward pool. The pool has
reward_model.n_gpus_per_node GPUs if enable_resource_pool is true, else all.
Models can share a GPU: the key fraction of an entry is the model's share of the
GPU memory; 1 is the whole GPU.

Exit code: 0 if every model fits, 1 if a model does not fit or the GPUs cannot
be listed, 2 for wrong usage or a wrong configuration. A machine without a GPU
is not a failure.`

const devicesExample = `
rewardloop devices
rewardloop devices cfg.yaml --json
CUDA_VISIBLE_DEVICES=2,3 rewardloop devices cfg.yaml`

// deviceReport is what the command found.
type deviceReport struct {
	cards.Found

	Plan *cards.Plan `json:"plan,omitempty"` // nil: no configuration is named
	// Engines are those that verl-omni would start on cards of their own.
	Engines []config.Foreseen `json:"engines,omitempty"`
	// Faults are the models that do not fit.
	Faults []string `json:"faults,omitempty"`
	// Unknown says why it is not known which cards there are.
	Unknown string `json:"unknown,omitempty"`
}

func devicesCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "devices [cfg.yaml] [flags] [key=value...]", GroupID: groupPrepare, DisableFlagsInUseLine: true,
		Short: "list the GPUs of this machine and the models on each GPU",
		Long:  devicesText, Example: devicesExample,
	}
	s, asJSON := configFlags(e, cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return devices(cmd.Context(), e, s, *asJSON) }
	return cmd
}

func devices(ctx context.Context, e *env, s *settings, asJSON bool) error {
	var rep deviceReport
	var err, unknown error
	if !s.given() {
		rep.Found, unknown = cards.Find(ctx, cards.Options{})
	} else {
		cfg, fault := s.read()
		if fault != nil {
			return wrong(fault)
		}
		scorers, fault := node.NewScorers(cfg, nil)
		if fault != nil {
			return wrong(fault)
		}
		defer scorers.Close() // nothing was started
		var book node.Book
		book, err = node.PlanCards(ctx, cfg, scorers.Registry, true)
		rep.Found, rep.Plan, rep.Engines, unknown = book.Found, &book.Plan, cfg.Foreseen(), book.Unknown
	}
	if unknown != nil {
		rep.Unknown = unknown.Error()
	}
	if err != nil {
		rep.Faults = strings.Split(e.secrets.Text(err.Error()), "\n")
	}
	if asJSON {
		if rep.Cards == nil {
			rep.Cards = []cards.Card{}
		}
		if err := e.json(rep); err != nil {
			return err
		}
	} else {
		rep.print(e.stdout, e.secrets)
	}
	switch {
	case err == nil && unknown == nil:
		return nil
	case err != nil && !asJSON:
		return failed(errors.New(strings.Join(rep.Faults, "\n")))
	}
	return failed(nil)
}

// print writes the report for people.
func (r deviceReport) print(w io.Writer, secrets *redact.Words) {
	if r.Unknown != "" {
		fmt.Fprintln(w, "the cards are not known:", r.Unknown)
	} else {
		fmt.Fprintln(w, cardsSeen(r.Found))
	}
	for i, c := range r.Cards {
		fmt.Fprintf(w, "  %-7s %s\n", cards.Device(i), cardLine(c))
		for _, p := range c.Processes {
			line := fmt.Sprintf("process %d, %s", p.PID, p.Name)
			if p.Bytes >= 0 {
				line += ", " + cards.GiB(p.Bytes)
			}
			fmt.Fprintf(w, "          %s\n", line)
		}
	}
	if r.Plan != nil {
		fmt.Fprintln(w, "\nplan:")
		r.printPlan(w)
		for _, f := range r.Engines {
			fmt.Fprintf(w, "  engine %s: verl-omni starts %d of %s on the pool of %s; none is started here\n", f.Engine, f.Replicas, rewards.Count(f.Cards, "card"), rewards.Count(f.Pool, "card"))
		}
	}
	notes := r.Notes
	if r.Plan != nil {
		notes = append(notes, r.Plan.Notes...)
	}
	for _, n := range notes {
		fmt.Fprintln(w, "note:", secrets.Text(n))
	}
}

// printPlan writes who has what, device by device.
func (r deviceReport) printPlan(w io.Writer) {
	for _, h := range r.Plan.Owners {
		if len(h.Devices) == 1 && h.Devices[0] == infer.CPU {
			fmt.Fprintf(w, "  %-7s %s\n", infer.CPU, ownerLine(h.Want))
		}
	}
	for _, u := range r.Plan.Cards {
		if len(u.Shares) == 0 {
			fmt.Fprintf(w, "  %-7s nothing\n", u.Device)
			continue
		}
		for i, s := range u.Shares {
			device := u.Device
			if i > 0 {
				device = ""
			}
			part := ""
			switch {
			case s.Whole:
				part = ", the whole card"
			case s.Fraction > 0:
				part = fmt.Sprintf(", fraction %v", s.Fraction)
			}
			if s.Planned > 0 {
				part += " (" + cards.GiB(s.Planned) + ")"
			}
			fmt.Fprintf(w, "  %-7s %s%s\n", device, ownerLine(s.Want), part)
		}
		if u.Left >= 0 {
			fmt.Fprintf(w, "          %s planned, %s left\n", cards.GiB(u.Planned), cards.GiB(u.Left))
		}
	}
	if len(r.Plan.Owners) == 0 {
		text := "no model runs in this process"
		if len(r.Faults) > 0 {
			text = "no model has its place"
		}
		fmt.Fprintln(w, "  "+text)
	}
}

func ownerLine(w cards.Want) string {
	return strings.TrimSpace(strings.TrimSpace(w.Kind+" "+w.What) + ", " + w.Owner)
}

// cardsSeen is a line on how many cards there are, and who says so.
func cardsSeen(f cards.Found) string {
	text := rewards.Count(len(f.Cards), "card")
	if len(f.Cards) == 0 {
		text = "no card: models run on the CPU"
	}
	if f.Source != "" {
		text += ", from " + f.Source
	}
	if f.Visible != nil {
		text += fmt.Sprintf(", %s=%q", cards.VisibleEnv, *f.Visible)
	}
	return text
}

// cardLine is a card in one line.
func cardLine(c cards.Card) string {
	var parts []string
	for _, x := range []string{c.Name, c.Visible()} {
		if x != "" {
			parts = append(parts, x)
		}
	}
	switch {
	case c.MemoryBytes > 0 && c.FreeBytes >= 0:
		parts = append(parts, cards.GiB(c.MemoryBytes)+" of which "+cards.GiB(c.FreeBytes)+" are free")
	case c.MemoryBytes > 0:
		parts = append(parts, cards.GiB(c.MemoryBytes))
	}
	if c.Sick != "" {
		parts = append(parts, "sick: "+c.Sick)
	} else {
		parts = append(parts, "no fault is known")
	}
	return strings.Join(parts, ", ")
}
