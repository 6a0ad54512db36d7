// Command flowgrpo_ocr is a generator that streams its samples to a running reward loop. Four
// simulated GPUs, which only wait, make the pictures of sixteen prompts, and each picture is sent
// to be scored as soon as it is finished.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

func main() {
	url := flag.String("url", "ws://127.0.0.1:8080", "the reward loop")
	data := flag.String("data", "testdata/golden/ocr", "folder of pictures with samples.jsonl")
	picture := flag.Duration("picture", 300*time.Millisecond, "how long a GPU takes for a picture")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *url, *data, *picture); err != nil {
		fmt.Fprintln(os.Stderr, "flowgrpo_ocr:", err)
		os.Exit(1)
	}
}

const gpus = 4

func run(ctx context.Context, out io.Writer, url, data string, picture time.Duration) error {
	batch, err := load(data)
	if err != nil {
		return err
	}
	c, err := client.Dial(ctx, client.Config{URL: url, Run: "flowgrpo_ocr"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Step(rewards.Train, 0, int64(len(batch))); err != nil { // so that the loop knows the last one
		return err
	}

	// The rollout. Submit returns at once; scores come while other pictures are made.
	start := time.Now()
	futures := make([]*client.Future, len(batch))
	g, gctx := errgroup.WithContext(ctx)
	for gpu := range gpus {
		g.Go(func() (err error) {
			for i := gpu; i < len(batch) && err == nil; i += gpus {
				select {
				case <-time.After(picture): // here a GPU would compute
					futures[i], err = c.Submit(gctx, batch[i], time.Minute)
				case <-gctx.Done():
					err = gctx.Err()
				}
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	rollout := time.Since(start)

	// Most are there already. A sample without a score is not a 0: it is left out.
	groups, failed := map[string][]float64{}, 0
	for i, f := range futures {
		res, err := f.Wait(ctx)
		if err != nil {
			return err
		}
		if res.RewardScore == nil {
			fmt.Fprintf(out, "%s %s: %v\n", res.ID, res.Outcome, res.Errors)
			failed++
			continue
		}
		groups[batch[i].UID] = append(groups[batch[i].UID], *res.RewardScore)
	}
	waited := time.Since(start) - rollout
	for _, uid := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(out, "%s %.3f\n", uid, groups[uid])
	}
	fmt.Fprintf(out, "%d samples, %d failed; rollout %.2f s, last score %.2f s later\n", len(batch), failed, rollout.Seconds(), waited.Seconds())
	return nil
}

// load reads the pictures as finished samples.
func load(dir string) ([]*rewards.Sample, error) {
	f, err := os.Open(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var batch []*rewards.Sample
	for d := json.NewDecoder(f); ; {
		var line struct {
			rewards.Sample
			Image string `json:"image"`
		}
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return batch, nil
		} else if err != nil {
			return nil, err
		}
		jpeg, err := os.ReadFile(filepath.Join(dir, line.Image))
		if err != nil {
			return nil, err
		}
		s := line.Sample
		s.Index = new(int64(len(batch)))
		s.Media = []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(jpeg)}, Data: jpeg}}
		batch = append(batch, &s)
	}
}
