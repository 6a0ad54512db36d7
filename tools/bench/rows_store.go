package main

import (
	"context"
	"fmt"
)

// The issue's lines.
const (
	lineStoreCost = "throughput of the loop with the store on over off, paired, at saturation: ≥ 0.95"
	lineStoreRate = "≥ 2,000 results per second written with nothing left out"
)

const (
	storeLanes  = 4
	storeWindow = 32
	// storeTurns is how often the two servers take turns within a repetition.
	storeTurns = 12
	// storePictureTurns is the same with pictures: after each turn the thumbnails of those that wait take seconds.
	storePictureTurns = 6
)

// overStore is what it costs to keep results.
func overStore() Suite {
	return Suite{
		Name: "store", Apart: true,
		About: fmt.Sprintf("Two processes of the program rewardloop with the reward builtin://length, which looks at no picture, one with store.keep: off and one that keeps results, and in the "+
			"bench a client of %d connections with %d samples in flight each. The servers take turns, %d times each in a repetition (%d with pictures), the first one second the next time, and none begins before the other "+
			"one's results are written and its thumbnails made. text: answers of 1 KB in words with the frequencies of a language, "+
			"in steps of 512 and groups of 8. jpeg25k: a prompt and an answer of 30 words and a JPEG of 25 KB with each; thumbnails are made as the share of the CPUs allows; pictures_left_out is the share of those without. "+
			"settled_ms is how long after the last answer of a turn all was written. cpu-ratio is what the two processes computed for a sample, which others on the machine disturb less; foreign_cores is what they computed meanwhile.",
			storeLanes, storeWindow, storeTurns, storePictureTurns),
		Experiments: []Experiment{
			{Name: "text", Setup: func(ctx context.Context, o Options) (Trial, error) { return newStoreTrial(ctx, o, nil) }, Rows: storeRows()},
			{
				Name: "jpeg25k-kept", Setup: func(ctx context.Context, o Options) (Trial, error) {
					return newStoreTrial(ctx, o, []string{"g07_7.jpg"})
				},
				Rows: storeRows("pictures_left_out", "thumbnails_per_s"),
			},
		},
	}
}

func storeRows(beside ...string) []Row {
	return []Row{
		{
			Name: "throughput-ratio", Issue: lineStoreCost, Value: ratio("on_per_s", "off_per_s"), Target: atLeast(0.95),
			Beside: append([]string{"on_per_s", "off_per_s", "foreign_cores"}, beside...),
		},
		{Name: "cpu-ratio", Value: ratio("on_cpu_ms", "off_cpu_ms"), Beside: []string{"on_cpu_ms", "off_cpu_ms"}},
		{Name: "written", Issue: lineStoreRate, Unit: "/s", Value: reading("written_per_s"), Target: atLeast(2000), Beside: []string{"settled_ms", "rows"}},
		{Name: "left-out", Issue: lineStoreRate, Unit: "results", Worst: true, Value: reading("left_out"), Target: atMost(0)},
	}
}
