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
Computes how many workers, GPUs or concurrent calls hide the reward time. plan
simulates training steps in virtual time, with the reward in every mode of a
trainer:

  batch               all samples are scored after the rollout
  pipeline            as batch, and each mini-batch is trained on once scored
  streaming           every sample is scored as soon as it is generated
  streaming_pipeline  streaming and pipeline
  one_step_off        the next batch is generated before these scores are needed
  both                streaming, pipeline and one_step_off
  colocated           batch, on the GPUs of the rollout (--rollout-gpus with
                      --batch-cost)

For each mode, plan prints the seconds per step, the seconds that the trainer
waits for rewards (exposed), a lower bound for every dispatch, and the
utilization of the pool. Then plan searches for the fewest servers with which
streaming exposes at most one reward latency, which is the minimum. The output
calls such a reward free.

The load is a recorded step (--trace, saved by rewardloop trace) or is drawn at
random. The reward time is --reward; or devices score batches of up to
--max-batch queued samples, in a + c·b seconds for b samples (--batch-cost a,c).
Failures, slow servers, stragglers and backup requests are drawn in addition.
Figures are medians of --seeds draws; ± is half the range of the draws.

With --media, nothing is simulated: for samples of that size from --processes
processes, plan prints the network bandwidth and the memory that the gateway
needs, and the matching configuration.

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
	fs.StringVar(&o.trace, "trace", "", "`file` with a recorded step, saved by rewardloop trace; - reads standard input; replaces --samples, --group, --generation and --arrivals, and --reward unless given")
	fs.StringVar(&o.save, "save", "", "write the simulated streaming step for the first count of servers to `file`, as a trace")
	fs.StringVar(&o.media, "media", "", "media `size` of a sample: FRAMESxHEIGHTxWIDTH or HEIGHTxWIDTH of raw RGB, or bytes such as 25KiB")
	fs.IntVar(&o.processes, "processes", 8, "with --media: number of processes that send samples")
	fs.IntVar(&o.samples, "samples", 512, "samples per step")
	fs.IntVar(&o.group, "group", 16, "samples per prompt group")
	fs.DurationVar(&o.generation, "generation", 200*time.Second, "rollout time of a step")
	fs.StringVar(&o.arrivals, "arrivals", "uniform", "arrival pattern of samples during the rollout: uniform, bursts:N or end")
	fs.StringVar(&o.reward, "reward", "", "time of one reward: 2s, uniform:1s,40s, lognormal:2s,1.0 (median, σ) or normal:2s,0.5s")
	fs.StringVar(&o.batchCost, "batch-cost", "", "seconds of a device for a batch of b samples, a + c·b: `a,c`")
	fs.IntVar(&o.maxBatch, "max-batch", 16, "maximum number of samples in a batch of a device")
	fs.StringVar(&o.devices, "devices", "", "comma-separated counts of scoring devices; default: --reward-gpus, else 1")
	fs.StringVar(&o.concurrency, "concurrency", "", "comma-separated counts of concurrent rewards (workers × places); default: as in the trace, else 256,1024,5120")
	fs.DurationVar(&o.update, "update", 0, "update time of a step; default: as in the trace, else 0s")
	fs.DurationVar(&o.logProb, "logprob", 0, "time for the log-probabilities of a step, computed while samples are scored")
	fs.DurationVar(&o.other, "other", 0, "time for validation and weight sync of a step, which overlap nothing")
	fs.IntVar(&o.miniBatches, "mini-batches", 4, "updates per step, in the pipeline modes")
	fs.IntVar(&o.rolloutGPUs, "rollout-gpus", 0, "number of GPUs that generate and train; adds samples per GPU to the output")
	fs.IntVar(&o.rewardGPUs, "reward-gpus", 0, "number of GPUs of the rewards; with --batch-cost, one per device")
	fs.DurationVar(&o.switching, "switch", 0, "time to switch from rollout to reward model and back on shared GPUs (colocated)")
	fs.Float64Var(&o.failures, "failures", 0, "probability that an attempt fails and is retried, 0…0.5")
	fs.StringVar(&o.policy, "policy", sim.PolicyRandom, "comma-separated dispatch policies: random, random_blind, speed_weighted")
	fs.StringVar(&o.slow, "slow", "", "share of slow servers, and their slowdown: `share,factor`, such as 0.25,3")
	fs.StringVar(&o.stragglers, "stragglers", "", "share of slow attempts, and their slowdown: `share,factor`, such as 0.02,10")
	fs.Float64Var(&o.backupAfter, "backup-after", 0, "number of mean service times after which a backup request is sent; 0: never")
	fs.Float64Var(&o.within, "within", 1, "`percent` above one reward latency that still count as free")
	fs.IntVar(&o.seeds, "seeds", 0, "number of draws; 0: 5, fewer for more than 10,000 samples")
	fs.Uint64Var(&o.seed, "seed", 1, "`seed` of the first draw")
}

func planCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan [flags]", GroupID: groupPrepare, Args: nothingElse, DisableFlagsInUseLine: true,
		Short: "compute how many workers, GPUs or calls hide the reward time",
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
		return wrong(errors.New("--processes has an effect only with --media: add --media, or leave --processes out"))
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
