package python_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// BenchmarkCall measures a trivial function in two processes: a small text, and a raw
// 512x512 picture of 786 KB. It reports calls per second and the 99th percentile.
func BenchmarkCall(b *testing.B) {
	picture := &rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.CHW, DType: "U8", Shape: []int{3, 512, 512}, Data: make([]byte, 3*512*512)}
	for _, bb := range []struct {
		name, function string
		sample         *rewards.Sample
	}{
		{"small", "truth", &rewards.Sample{ID: "a", GroundTruth: json.RawMessage(`"0.5"`)}},
		{"786KB", "first_byte", &rewards.Sample{ID: "a", Media: []*rewards.Media{picture}}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			if len(bb.sample.Media) > 0 {
				needs(b, "numpy")
			}
			s := function(b, python.Config{Processes: 2}, bb.function)
			warm(b, s)
			took := make(chan time.Duration, b.N)
			b.ResetTimer()
			b.SetParallelism(2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					began := time.Now()
					_, err := s.Score(b.Context(), bb.sample)
					require.NoError(b, err)
					took <- time.Since(began)
				}
			})
			b.StopTimer()
			close(took)
			var all []time.Duration
			for d := range took {
				all = append(all, d)
			}
			slices.Sort(all)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
