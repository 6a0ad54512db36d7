package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rewardloop/rewardloop/tools/bench/cputime"
)

// contender is one of the four that are timed.
type contender struct {
	name string
	// read reads the pictures and says what that cost.
	read func(ctx context.Context, pictures []picture) (usage, error)
}

// timing is what a contender reached in one repetition.
type timing struct {
	// Rate is pictures a second; CPU and Own milliseconds of processor time a
	// picture, of all processes and of this one.
	Rate float64 `json:"rate"`
	CPU  float64 `json:"cpu_ms"`
	Own  float64 `json:"own_ms,omitempty"`
	// Others is how many cores other programs kept busy meanwhile.
	Others float64 `json:"others_cores"`
}

// race times the contenders repetition by repetition, in an order that moves on by one
// each time, so that a busy machine slows all of them. What other programs disturbed is
// timed again while there are spare times, twice as many as repetitions; after that it
// counts.
func race(ctx context.Context, who []contender, pictures []picture, repetitions int, quick bool, w io.Writer) (map[string][]timing, error) {
	out := map[string][]timing{}
	spare := 2 * repetitions
	for rep := range repetitions {
		for i := 0; i < len(who); {
			c := who[(i+rep)%len(who)]
			if !quick {
				cputime.Calm(ctx)
			}
			t, err := c.time(ctx, pictures)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(w, "%d %-34s %6.2f pictures/s, %6.1f ms CPU a picture, others %.2f cores\n", rep+1, c.name, t.Rate, t.CPU, t.Others)
			if t.Others > cputime.MostOthers && spare > 0 && !quick {
				spare--
				continue
			}
			out[c.name] = append(out[c.name], t)
			i++
		}
	}
	return out, ctx.Err()
}

// time lets a contender read the pictures once.
func (c contender) time(ctx context.Context, pictures []picture) (timing, error) {
	before, begin := cputime.Machine(), time.Now()
	u, err := c.read(ctx, pictures)
	if err != nil {
		return timing{}, err
	}
	n := float64(len(pictures))
	return timing{
		Rate: n / u.took.Seconds(),
		CPU:  (u.own + u.ort).Seconds() * 1e3 / n, Own: u.own.Seconds() * 1e3 / n,
		Others: max(0, (cputime.Machine()-before-u.own-u.ort).Seconds()/time.Since(begin).Seconds()),
	}, nil
}
