// Command pairwise_grpo sends groups of four answers to a running reward loop, in which a judge
// compares them in pairs, and prints the result of each group. The judge is a stub that the command
// serves itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

func main() {
	url := flag.String("url", "ws://127.0.0.1:8080", "the reward loop")
	data := flag.String("data", "examples/pairwise_grpo/samples.jsonl", "file of samples")
	profile := flag.String("reward", "", "the profile: empty for the judge, or no_judge")
	judge := flag.String("judge", "127.0.0.1:18000", "where the stub judge listens; empty: there is a real one")
	flag.Parse()
	if err := serveAndRun(context.Background(), *judge, *url, *profile, *data); err != nil {
		fmt.Fprintln(os.Stderr, "pairwise_grpo:", err)
		os.Exit(1)
	}
}

// serveAndRun has the stub listen while run runs.
func serveAndRun(ctx context.Context, judge, url, profile, data string) error {
	if judge != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", judge)
		if err != nil {
			return fmt.Errorf("the stub judge: %w", err)
		}
		defer serveJudge(l, new(stub))()
	}
	return run(ctx, os.Stdout, url, profile, data)
}

func run(ctx context.Context, out io.Writer, url, profile, data string) error {
	batch, err := load(data)
	if err != nil {
		return err
	}
	c, err := client.Dial(ctx, client.Config{URL: url, Run: "pairwise_grpo", Reward: profile})
	if err != nil {
		return err
	}
	defer c.Close()
	futures := make([]*client.Future, len(batch))
	for i, s := range batch {
		if futures[i], err = c.Submit(ctx, s, time.Minute); err != nil {
			return err
		}
	}
	var group *wire.GroupStats
	for i, f := range futures {
		res, err := f.Wait(ctx) // comes once the group is complete and compared
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s %s\n", res.ID, told(res, batch[i].Response))
		if group = res.Group; i == len(futures)-1 || batch[i+1].UID != batch[i].UID {
			fmt.Fprintf(out, "  group %s\n", described(group))
		}
	}
	return nil
}

// told is a result in one line. What failed has no score, and is no 0.
func told(r *wire.Result, response string) string {
	if r.RewardScore == nil {
		return fmt.Sprintf("%s: %v", r.Outcome, r.Errors)
	}
	text := fmt.Sprintf("%+.3f", *r.RewardScore)
	if x := r.ExtraInfo; x["reward/better/wins"] != nil {
		text += fmt.Sprintf("  %v won, %v lost, %v tied", x["reward/better/wins"], x["reward/better/losses"], x["reward/better/ties"])
	} else {
		text += fmt.Sprintf("  similar %.3f", x["reward/similar"])
	}
	return text + "  " + response
}

func described(g *wire.GroupStats) string {
	if g == nil || g.Mean == nil || g.Std == nil {
		return "without a score"
	}
	text := fmt.Sprintf("%s: %d of %d scored, mean %+.3f, std %.3f", g.UID, g.Scored, g.Size, thousandths(*g.Mean), *g.Std)
	if g.ZeroStd {
		text += ": nothing to learn from"
	}
	return text
}

// thousandths rounds, and makes the last bits of a sum that is 0 a 0 without a sign.
func thousandths(x float64) float64 { return math.Round(x*1000)/1000 + 0 }

// load reads the samples, a group's beside each other.
func load(path string) ([]*rewards.Sample, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var batch []*rewards.Sample
	for d := json.NewDecoder(f); ; {
		s := new(rewards.Sample)
		if err := d.Decode(s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: sample %d: %w", path, len(batch)+1, err)
		}
		batch = append(batch, s)
	}
	slices.SortStableFunc(batch, func(a, b *rewards.Sample) int { return int(*a.Index - *b.Index) })
	return batch, nil
}
