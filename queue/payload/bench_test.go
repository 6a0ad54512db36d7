package payload_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkClaim786K claims raw pictures of 512x512. cpu-µs/op is user and system time of the
// whole process: both sides and the kernel's copies.
func BenchmarkClaim786K(b *testing.B) { claims(b, 3*512*512) }

// BenchmarkTicketPathSmall claims text samples and hands their results back.
func BenchmarkTicketPathSmall(b *testing.B) { claims(b, 400) }

func claims(b *testing.B, size int) {
	b.Helper()
	r := newRig(b)
	r.store.buffers.Poison = false
	w := newWorker(b)
	w.buffers.Poison = false
	t := r.ticket("sample-1", size)
	t.Deadline = time.Now().Add(time.Hour)
	b.SetBytes(t.Bytes)
	b.ReportAllocs()
	b.SetParallelism(4) // as many claims at once as places: four for each core
	before := cpu()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		name := "worker-" + string(rune('a'+serial.Add(1)%26))
		for pb.Next() {
			f, _, err := w.Claim(context.Background(), t, name)
			if err != nil {
				b.Error(err)
				return
			}
			if err := w.Finish(context.Background(), t, scored(t, name, 1)); err != nil {
				b.Error(err)
			}
			f.Release()
		}
	})
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// serial tells the goroutines of a benchmark apart.
var serial atomic.Int64

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
