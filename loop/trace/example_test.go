package trace_test

import (
	"fmt"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
)

// Three samples, one server: streaming hides all but the last reward.
func ExampleMeasure() {
	generated, service := []float64{1, 2, 3}, []float64{1, 1, 1}
	streamed, err := sim.IdealQueue(generated, service, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := trace.Measure(trace.FromSchedule(streamed))
	fmt.Print(report.String(), err)
	// Output:
	// 3 samples (0 unscored) on 1 server, pool load 1.000
	// rollout 3.000 s, all answered at 4.000 s
	// exposed reward time 1.000 s (bound 1.000, ideal queue 1.000, after the rollout 3.000)
	// step over bound 1.000, over ideal queue 1.000; exposed over bound 1.000
	// overlap efficiency 0.667, pool utilisation 0.750, peak in service 1
	// <nil>
}
