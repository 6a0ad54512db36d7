package main

import (
	"context"
	"fmt"
	"time"
)

// lineSoak is the issue's line.
const lineSoak = "60 minutes at half of the day's measured throughput, steps that nobody fetches, mixed media of fixed sizes, scorers that do not compute: " +
	"RSS slope after warm-up < 5 MB/h, descriptors and goroutines flat"

// soakWarmUp is the part of the time after which the process is looked at.
const soakWarmUp = 0.25

// soak is what a server becomes that is used for long.
func soak() Suite {
	beside := []string{"samples_per_s", "throughput_per_s", "rss_mb", "samples", "unscored"}
	return Suite{
		Name: "soak", Apart: true,
		About: fmt.Sprintf("The program rewardloop with the reward builtin://length, which looks at no picture, and in the bench one client at half of the rate that eight connections reached "+
			"before in %v: pictures of 786 KB as pixels, JPEGs of 25 KB and texts of 1 KB in turn, in steps of %d samples of which every second one is declared and none is fetched. The "+
			"resident set, descriptors and goroutines of the process are read every second; those of the first quarter of the time do not count. A slope is that of least squares; "+
			"descriptors and goroutines are the mean of the last quarter less that of the second; live_heap is what the collections found reachable, the least of the last "+
			"quarter less the least of the second.", soakCalibration, soakStep),
		Experiments: []Experiment{{
			Name:  "soak",
			Setup: func(ctx context.Context, o Options) (Trial, error) { return newSoakTrial(ctx, o) },
			Rows: []Row{
				{Name: "rss_slope", Issue: lineSoak, Unit: "MB/h", Value: reading("rss_slope"), Target: atMost(5), Beside: beside},
				{Name: "live_heap", Issue: lineSoak, Unit: "MB", Value: reading("live_heap"), Target: atMost(2)},
				{Name: "descriptors", Issue: lineSoak, Unit: "", Value: reading("descriptors"), Target: atMost(2)},
				{Name: "goroutines", Issue: lineSoak, Unit: "", Value: reading("goroutines"), Target: atMost(4)},
				{Name: "unscored", Issue: lineSoak, Unit: "samples", Value: reading("unscored"), Target: atMost(0)},
			},
		}},
	}
}

const (
	// soakCalibration is how long the rate is measured of which the soak has half.
	soakCalibration = 20 * time.Second
	soakStep        = 512
	soakLanes       = 8
	soakWindow      = 16
)
