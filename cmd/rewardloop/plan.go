package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rewardloop/rewardloop/internal/sim"
)

const planText = `
Answers how many workers, GPUs or concurrent calls make the reward free. It
simulates training steps in virtual time, with the reward in every mode of a
trainer:

  batch               everything is scored after the rollout
  pipeline            the same, and each mini-batch is updated on once scored
  streaming           every sample is scored as soon as it is generated
  streaming_pipeline  both
  one_step_off        the next batch is generated before these scores are needed
  both                all three
  colocated           batch, on the rollout's own GPUs (--rollout-gpus with
                      --batch-cost)

and prints for each the seconds per step, those that nothing hides (exposed), a
bound that no dispatch beats, and how busy the pool is. Then it searches for the
fewest servers with which streaming exposes no more than one reward latency,
which is all that can be had.

The load is a recorded step (--trace, as rewardloop trace saves it) or is drawn.
A reward takes --reward, or is computed by devices that take whatever is queued,
up to --max-batch, in a + c·b seconds for b samples (--batch-cost a,c).
Failures, slow servers, stragglers and backup requests are drawn on top. Figures
are medians of --seeds draws; ± is half the way from the least to the largest.

With --media nothing is simulated: plan says what samples of that size ask of
the gateway's network and memory, where --processes send them, and what to write
into the configuration.

docs/plan.md has more examples.`

const planExample = `
rewardloop plan --samples 512 --group 16 --generation 200s --update 160s \
  --reward lognormal:2s,0.7 --concurrency 4,8,16
rewardloop plan --samples 512 --group 16 --generation 200s --update 160s \
  --batch-cost 1,0.3 --max-batch 32 --rollout-gpus 4 --devices 1,2 \
  --switch 18s
rewardloop plan --media 81x480x832 --processes 64 --samples 512`

// planOptions are the flags.
type planOptions struct {
	trace, save, media                            string
	processes                                     int
	samples, group, miniBatches                   int
	generation, logProb, update, other, switching time.Duration
	arrivals, reward, batchCost                   string
	concurrency, devices                          string
	maxBatch, rolloutGPUs, rewardGPUs             int
	policy, slow, stragglers                      string
	failures, backupAfter, within                 float64
	seeds                                         int
	seed                                          uint64
	stdin                                         io.Reader
	set                                           map[string]bool // the flags that were given
}

func (o *planOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.trace, "trace", "", "recorded step, a `file` as rewardloop trace saves it, or - for standard input, in place of --samples, --group, --generation and --arrivals, and of --reward where that is not given")
	fs.StringVar(&o.save, "save", "", "write the simulated streaming step on the first number of servers as a trace to `file`")
	fs.StringVar(&o.media, "media", "", "`size` of a sample's media: FRAMESxHEIGHTxWIDTH or HEIGHTxWIDTH of raw RGB, or bytes such as 25KiB")
	fs.IntVar(&o.processes, "processes", 8, "processes that send samples, for --media")
	fs.IntVar(&o.samples, "samples", 512, "samples per step")
	fs.IntVar(&o.group, "group", 16, "samples per prompt group")
	fs.DurationVar(&o.generation, "generation", 200*time.Second, "how long the rollout of a step takes")
	fs.StringVar(&o.arrivals, "arrivals", "uniform", "how samples leave the rollout: uniform, bursts:N or end")
	fs.StringVar(&o.reward, "reward", "", "how long one reward takes: 2s, uniform:1s,40s, lognormal:2s,1.0 (median, σ) or normal:2s,0.5s")
	fs.StringVar(&o.batchCost, "batch-cost", "", "a device needs a + c·b seconds for b samples: `a,c`")
	fs.IntVar(&o.maxBatch, "max-batch", 16, "most samples in a device's batch")
	fs.StringVar(&o.devices, "devices", "", "devices that score, a list; default: --reward-gpus, else 1")
	fs.StringVar(&o.concurrency, "concurrency", "", "rewards at once (workers × places), a list; default: that of the trace, else 256,1024,5120")
	fs.DurationVar(&o.update, "update", 0, "the update of a step; default: that of the trace, else 0s")
	fs.DurationVar(&o.logProb, "logprob", 0, "log-probabilities of a step, computed beside the scoring")
	fs.DurationVar(&o.other, "other", 0, "validation and weight sync of a step, which overlap nothing")
	fs.IntVar(&o.miniBatches, "mini-batches", 4, "updates per step, for the pipelines")
	fs.IntVar(&o.rolloutGPUs, "rollout-gpus", 0, "GPUs that generate and train, for samples per GPU")
	fs.IntVar(&o.rewardGPUs, "reward-gpus", 0, "GPUs behind the rewards; with --batch-cost each device is one")
	fs.DurationVar(&o.switching, "switch", 0, "to change between rollout and reward model and back, where they share GPUs (colocated)")
	fs.Float64Var(&o.failures, "failures", 0, "probability that an attempt fails and the sample is tried again, 0…0.5")
	fs.StringVar(&o.policy, "policy", sim.PolicyRandom, "who gets a sample: random, random_blind or speed_weighted; a list")
	fs.StringVar(&o.slow, "slow", "", "a share of the servers is slower by a factor: `share,factor`, such as 0.25,3")
	fs.StringVar(&o.stragglers, "stragglers", "", "a share of the attempts takes longer by a factor: `share,factor`, such as 0.02,10")
	fs.Float64Var(&o.backupAfter, "backup-after", 0, "send a backup request after this many mean service times; 0: never")
	fs.Float64Var(&o.within, "within", 1, "`percent` above one reward latency that still count as free")
	fs.IntVar(&o.seeds, "seeds", 0, "draws; 0: 5, fewer for more than 10,000 samples")
	fs.Uint64Var(&o.seed, "seed", 1, "`seed` of the first draw")
}

func planCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan [flags]", GroupID: groupPrepare, Args: nothingElse, DisableFlagsInUseLine: true,
		Short: "say how many workers, GPUs or calls make the reward free",
		Long:  planText, Example: planExample,
	}
	o := planOptions{stdin: e.stdin}
	o.flags(cmd.Flags())
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.set = map[string]bool{}
		cmd.Flags().Visit(func(f *pflag.Flag) { o.set[f.Name] = true })
		return plan(cmd.Context(), e, o, *asJSON)
	}
	return cmd
}

func plan(ctx context.Context, e *env, o planOptions, asJSON bool) error {
	if o.media != "" {
		return planMedia(e, o, asJSON)
	}
	if o.set["processes"] {
		return wrong(errors.New("--processes is of --media"))
	}
	p, err := newPlanner(o)
	if err != nil {
		return wrong(err)
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	answer, err := p.answer(ctx)
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(err, sim.ErrLoad):
		return wrong(err)
	case err != nil:
		return failed(interrupted(ctx, err, ""))
	}
	if o.save != "" {
		if err := p.saveTrace(o.save); err != nil {
			return failed(err)
		}
	}
	if asJSON {
		return e.json(answer)
	}
	if _, err = fmt.Fprint(e.stdout, answer); err != nil {
		return failed(err)
	}
	return nil
}

// planMedia answers --media.
func planMedia(e *env, o planOptions, asJSON bool) error {
	for name := range o.set {
		switch name {
		case "media", "processes", "samples", "generation", "json":
		default:
			return wrong(fmt.Errorf("--%s has no effect with --media, which runs no simulation", name))
		}
	}
	p, err := newMediaPlan(o)
	if err != nil {
		return wrong(err)
	}
	if asJSON {
		return e.json(p)
	}
	if _, err := fmt.Fprint(e.stdout, p); err != nil {
		return failed(err)
	}
	return nil
}
