// Command trainer_modes trains a toy policy in the six ways in which a trainer can arrange its step
// around the rewards, and prints the costs of each and whether they learned the same. The command
// contains its own scorer, a stub that waits as long as each sample requests, and starts its own
// reward loop or uses a running one.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/examples/trainer_modes/stub"
	"github.com/rewardloop/rewardloop/examples/trainer_modes/trainer"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/wire"
)

// options are the flags.
type options struct {
	url, stub                    string
	prompts, group, batches      int
	steps, concurrency, seed     int
	scale                        float64
	order                        string
	generation, logProb, update  time.Duration
	other, leastDelay, mostDelay time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.url, "url", "", "a running reward loop, such as ws://127.0.0.1:8080, whose scorer is a stub; empty: one in this process")
	flag.StringVar(&o.stub, "stub", "", "serve nothing but the stub at this address, such as 127.0.0.1:18090, until interrupted")
	flag.IntVar(&o.prompts, "prompts", 32, "prompts of a step")
	flag.IntVar(&o.group, "group", 4, "samples of a prompt")
	flag.IntVar(&o.batches, "mini-batches", 4, "updates of a step")
	flag.IntVar(&o.steps, "steps", 3, "steps of each mode")
	flag.IntVar(&o.concurrency, "concurrency", 16, "samples that are scored at a time, without --url")
	flag.IntVar(&o.seed, "seed", 1, "of all randomness")
	flag.Float64Var(&o.scale, "scale", 600, "all times are divided by it; 1: a step takes minutes")
	flag.StringVar(&o.order, "order", wire.ByIndex, "index: pipeline modes learn from the same mini-batches as the others; completion: from whichever is complete first")
	flag.DurationVar(&o.generation, "generation", 53*time.Second, "a rollout, before --scale as all times")
	flag.DurationVar(&o.logProb, "log-prob", 13*time.Second, "the log-probabilities after it")
	flag.DurationVar(&o.update, "update", 100*time.Second, "all updates of a step")
	flag.DurationVar(&o.other, "other", 26*time.Second, "validation and weight sync")
	flag.DurationVar(&o.leastDelay, "least", time.Second, "the shortest time of the scorer")
	flag.DurationVar(&o.mostDelay, "most", 40*time.Second, "the longest")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "trainer_modes:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o options) (err error) {
	if !(o.scale > 0) {
		return fmt.Errorf("--scale %v must be above 0", o.scale)
	}
	if o.stub != "" {
		return serveStub(ctx, out, o.stub)
	}
	if o.url == "" {
		url, stop, err := serve(ctx, o.concurrency)
		if err != nil {
			return err
		}
		defer stop()
		o.url = url
	}
	reports := map[trainer.Mode]*trainer.Report{}
	for _, mode := range trainer.Modes() {
		if reports[mode], err = train(ctx, o, mode); err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
	}
	return table(out, reports)
}

// serveStub is the scorer alone.
func serveStub(ctx context.Context, out io.Writer, addr string) error {
	s, err := stub.Listen(ctx, addr)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, s.URL())
	<-ctx.Done()
	return s.Close()
}

//go:embed cfg.yaml
var cfgYAML []byte

// serve runs a stub and a reward loop that asks it.
func serve(ctx context.Context, concurrency int) (url string, stop func(), err error) {
	s, err := stub.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	calls := strconv.Itoa(concurrency)
	cfg, err := config.Parse("cfg.yaml", cfgYAML, []string{
		"server.listen=127.0.0.1:0", "reward.reward_functions.toy.path=" + s.URL(), "reward.reward_functions.toy.concurrency=" + calls,
		"reward.concurrency=" + calls,
	}, nil)
	if err != nil {
		return "", nil, errors.Join(err, s.Close())
	}
	n, err := node.New(node.Options{Config: cfg})
	if err != nil {
		return "", nil, errors.Join(err, s.Close())
	}
	if err := n.Start(ctx); err != nil {
		return "", nil, errors.Join(err, s.Close())
	}
	stop = func() {
		n.Stop()
		_ = s.Close() // nobody asks it any more
	}
	addr, err := n.Listen(ctx)
	if err != nil {
		stop()
		return "", nil, err
	}
	return "ws://" + addr.String(), stop, nil
}

// train runs one mode, as a training run of its own.
func train(ctx context.Context, o options, mode trainer.Mode) (*trainer.Report, error) {
	c, err := client.Dial(ctx, client.Config{URL: o.url, Run: fmt.Sprintf("trainer_modes-%s-%d", mode, time.Now().UnixNano())})
	if err != nil {
		return nil, err
	}
	report, err := trainer.Run(ctx, c, o.config(mode))
	return report, errors.Join(err, c.Close())
}

func (o options) config(mode trainer.Mode) trainer.Config {
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / o.scale) }
	seed := uint64(o.seed) //nolint:gosec // bits are bits
	return trainer.Config{
		Mode: mode, Prompts: o.prompts, Group: o.group, MiniBatches: o.batches, Steps: o.steps, Seed: seed, Order: o.order,
		Generation: scaled(o.generation), LogProb: scaled(o.logProb), Update: scaled(o.update), Other: scaled(o.other),
		Delay: trainer.UniformDelay(seed, scaled(o.leastDelay), scaled(o.mostDelay)),
	}
}

// table shows the modes side by side.
func table(out io.Writer, reports map[trainer.Mode]*trainer.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "mode\ts/step\twaited\tsaved\treward, last step\tfailed\tlearned\t")
	batch := reports[trainer.Batch]
	for _, mode := range trainer.Modes() {
		r := reports[mode]
		mean, failed := results(r)
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.1f %%\t%.4f\t%d\t%s\t\n", mode, r.PerStep().Seconds(), r.Waited().Seconds(),
			100*(1-r.PerStep().Seconds()/batch.PerStep().Seconds()), mean, failed, learned(mode, reports))
	}
	return w.Flush()
}

// results are the mean reward of the last step, and how many samples have none in all.
func results(r *trainer.Report) (mean float64, failed int) {
	for i := range r.Steps {
		failed += r.Steps[i].Failed()
	}
	last, sum := &r.Steps[len(r.Steps)-1], 0.0
	for i, v := range last.Rewards {
		if last.Valid[i] {
			sum += v
		}
	}
	return sum / float64(max(len(last.Rewards)-last.Failed(), 1)), failed
}

// learned says of which mode the rewards and every update were the same, to the bit.
func learned(mode trainer.Mode, reports map[trainer.Mode]*trainer.Report) string {
	for _, other := range []trainer.Mode{trainer.Batch, trainer.OneStepOff} {
		switch {
		case other == mode:
			return "-"
		case same(reports[mode], reports[other]):
			return "as " + string(other)
		}
	}
	return "otherwise"
}

func same(a, b *trainer.Report) bool {
	return slices.EqualFunc(a.Steps, b.Steps, func(a, b trainer.Step) bool {
		return a.Theta == b.Theta && slices.Equal(a.Rewards, b.Rewards) && slices.Equal(a.Valid, b.Valid)
	})
}
