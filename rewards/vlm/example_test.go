package vlm_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/vlm"
)

// A scorer is built by its name from a registry. The networks here are scripted; those
// of a node are its pool of devices.
func Example() {
	yes := func(_ []int64, id int64) float32 {
		if id == 281 { // " Yes" in this vocabulary
			return 12
		}
		return 0
	}
	judges := vlm.NewJudges(vlm.Deps{Nets: &scripted{vocabulary: 746, tokens: 16, odds: yes}})
	var registry rewards.Registry
	for _, spec := range vlm.Specs(judges) {
		registry.Register(spec)
	}
	scorer, err := registry.Build("vlm", json.RawMessage(`{
		"model": "../../testdata/models/tiny-idefics3",
		"template": "Is there {prompt} in this picture?"
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	score, err := scorer.Score(context.Background(), &rewards.Sample{
		ID: "a", Prompt: "a grey square", Media: []*rewards.Media{shown(grey(64, 64, 128))},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f, mass %.3f: %s\n", score.Value, score.Extra["mass"], score.Details["question"])
	// Output: 1.000, mass 0.995: Is there a grey square in this picture?
}
