//go:build unix

package loop_test

import (
	"bytes"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/wire"
)

// silent is a connection to nobody.
type silent struct{}

func (silent) Send([]byte) error                   { return nil }
func (silent) SendLater(later func() []byte) error { later(); return nil }
func (silent) Close(int, string) error             { return nil }

// BenchmarkAccept takes in a raw picture of 512², has its result, and forgets it:
// everything that a gateway does with a sample but hand it to a worker.
func BenchmarkAccept(b *testing.B) {
	for _, durable := range []bool{false, true} {
		name := "in memory"
		if durable {
			name = "durable"
		}
		b.Run(name, func(b *testing.B) {
			queue := memqueue.New(1, time.Second)
			defer queue.Close()
			o := loop.Options{Queue: queue, Presence: queue}
			if durable {
				sp, err := spool.Open(spool.Config{Dir: b.TempDir()})
				require.NoError(b, err)
				defer sp.Close()
				o.Spool = sp
			}
			m, err := loop.New(o)
			require.NoError(b, err)
			m.Start(b.Context())
			defer m.Stop()
			s, err := m.Attach(wire.Hello{Run: "run"}, silent{})
			require.NoError(b, err)
			defer m.Detach(s, silent{})
			const side = 512
			b.SetBytes(3 * side * side)
			data := make([]byte, 3*side*side)
			began, n := processTime(b), 0
			for b.Loop() {
				id := strconv.Itoa(n)
				n++
				msg, err := wire.Encode(&rewards.Sample{ID: id, Media: []*rewards.Media{{
					Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{side, side, 3}, Data: data,
				}}}, wire.Options{})
				require.NoError(b, err)
				parts := msg.Buffers()
				readers := make([]bytes.Reader, len(parts))
				for i, p := range parts {
					readers[i].Reset(p)
				}
				require.NoError(b, m.Receive(s, &joined{rest: readers}))
				m.Cancel(s, id)
				m.Confirm(s, uint64(n)) //nolint:gosec // a count
			}
			b.ReportMetric(float64((processTime(b)-began).Microseconds())/float64(n), "cpu-µs/op")
		})
	}
}

// joined reads one after the other, without an allocation for each read.
type joined struct{ rest []bytes.Reader }

func (j *joined) Read(p []byte) (int, error) {
	for len(j.rest) > 1 && j.rest[0].Len() == 0 {
		j.rest = j.rest[1:]
	}
	return j.rest[0].Read(p)
}

// processTime is the CPU time of this process.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
