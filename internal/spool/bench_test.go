package spool_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
)

// BenchmarkPut keeps samples of so many bytes, from so many connections at a time, and lets
// go of each. REWARDLOOP_SPOOL names a folder on the disk that is to be measured.
func BenchmarkPut(b *testing.B) {
	for _, fsync := range []bool{false, true} {
		for _, size := range []int{20 << 10, 786 << 10} {
			for _, writers := range []int{1, 8, 64} {
				b.Run(fmt.Sprintf("fsync %v/%d KiB/%d connections", fsync, size>>10, writers), func(b *testing.B) {
					dir, err := os.MkdirTemp(os.Getenv("REWARDLOOP_SPOOL"), "spool") //nolint:usetesting // on the disk that is measured
					require.NoError(b, err)
					defer os.RemoveAll(dir)
					s, err := spool.Open(spool.Config{Dir: dir, MaxBytes: 2 << 30, Fsync: mode(fsync)})
					require.NoError(b, err)
					body := make([]byte, size)
					var next atomic.Int64
					var all sync.WaitGroup
					b.SetBytes(int64(size))
					b.ResetTimer()
					for range writers {
						all.Go(func() {
							for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
								id := fmt.Sprint(i)
								if err := s.Put(sample("r", 1, id, body)); err != nil {
									b.Errorf("sample %s: %v", id, err)
									return
								}
								done(s, id)
							}
						})
					}
					all.Wait()
					b.StopTimer()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
					require.NoError(b, s.Close())
				})
			}
		}
	}
}
