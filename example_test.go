package rewardloop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/rewardloop/rewardloop"
	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

// words rewards a response of many words.
func words(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
	return rewards.Score{Value: float64(len(strings.Fields(s.Response)))}, nil
}

// A program with a scorer of its own.
func Example() {
	rewardloop.RunChild()
	at := make(chan net.Addr, 1)
	s, err := rewardloop.New(rewardloop.Config{
		Overrides: []string{"reward.custom_reward_function.path=builtin://words", "server.listen=127.0.0.1:0"},
		Scorers: []rewards.Spec{{
			Name: "words", Summary: "how many words the response has",
			Build: func(json.RawMessage) (rewards.Scorer, error) { return rewards.ScorerFunc(words), nil },
		}},
		Listening: func(a net.Addr) { at <- a },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }() // a program of its own calls it in main

	// What a trainer does, here in the same process.
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + (<-at).String(), Run: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := c.Submit(ctx, &rewards.Sample{ID: "a", Prompt: "Greet the world.", Response: "hello there world"}, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := f.Wait(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Outcome, *res.RewardScore)
	_ = c.Close()
	stop()
	fmt.Println(<-ended)
	// Output:
	// scored 3
	// <nil>
}
