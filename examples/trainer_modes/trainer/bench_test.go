package trainer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/trainer_modes/trainer"
)

// BenchmarkStep is a step of 5,120 samples that are scored at once: what the trainer itself
// costs, with the reward loop of the tests, and how late it submits them when they are
// finished within two seconds.
func BenchmarkStep(b *testing.B) {
	for b.Loop() {
		report, err := trainer.Run(b.Context(), newIdeal(), trainer.Config{
			Mode: trainer.StreamingPipeline, Prompts: 1024, Group: 5, MiniBatches: 4, Seed: 1, Generation: 2 * time.Second,
		})
		require.NoError(b, err)
		s := report.Steps[0]
		late := make([]time.Duration, len(s.Planned))
		for row := range late {
			late[row] = s.Submitted[row] - s.Planned[row]
		}
		slices.Sort(late)
		b.ReportMetric(float64(late[len(late)/2].Microseconds()), "µs-late-p50")
		b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "µs-late-p99")
		b.ReportMetric(float64((s.End - s.Generated).Microseconds()), "µs-after-rollout")
	}
}
