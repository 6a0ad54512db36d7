package claim_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rewardloop/rewardloop/fabric/claim"
)

// BenchmarkClaim786K claims raw pictures of 512x512, over the socket and through shared memory.
// cpu-µs/op is user and system time of the whole process: both sides and the kernel's copies.
func BenchmarkClaim786K(b *testing.B) {
	for name, shared := range map[string]bool{"ws": false, "shm": true} {
		b.Run(name, func(b *testing.B) { claims(b, 3*512*512, shared) })
	}
}

// BenchmarkTicketPathSmall claims text samples and hands their results back.
func BenchmarkTicketPathSmall(b *testing.B) { claims(b, 400, false) }

func claims(b *testing.B, size int, shared bool) {
	b.Helper()
	r := newRig(b, func(o *claim.ServerOptions) { o.Config.Shared = shared })
	r.store.buffers.Poison = false
	w := newWorker(b, func(o *claim.ClientOptions) { o.Config.Shared = shared })
	w.buffers.Poison = false
	t := r.ticket("sample-1", size)
	t.Deadline = time.Now().Add(time.Hour)
	b.SetBytes(t.Bytes)
	b.ReportAllocs()
	b.SetParallelism(4) // as many claims at once as slots: four for each core
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
	if shared && counter(b, w.reg, "rewardloop_claim_client_received_bytes_total", "shared_memory") == 0 {
		b.Skip("no shared memory here")
	}
}

// serial tells the goroutines of a benchmark apart.
var serial atomic.Int64

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
