package spool_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/spool"
)

// The machine fails at any moment: what was acknowledged and is not over is there.
func TestWithFsyncNoAcknowledgedSampleIsLostWithTheMachine(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			dir, d := t.TempDir(), newDisk(0)
			s, err := spool.Open(spool.Config{Dir: dir, MaxBytes: 1 << 20, SegmentBytes: int64(2000 + rng.IntN(6000)), Fsync: spool.FsyncGroup}.Over(d.create))
			require.NoError(t, err)
			s.Later(spool.Record{Kind: spool.Run, Run: "r", Epoch: 1})
			var live []string
			for i := range 80 {
				id := fmt.Sprint("x", i)
				require.NoError(t, s.Put(sample("r", 1, id, make([]byte, bodyOf(id)))))
				live = append(live, id)
				for len(live) > 0 && rng.IntN(2) == 0 {
					at := rng.IntN(len(live))
					done(s, live[at])
					live = append(live[:at:at], live[at+1:]...)
				}
				if rng.IntN(4) == 0 {
					require.NoError(t, s.Flush())
					s.Tidy()
				}
				if rng.IntN(8) == 0 {
					var left string
					s.Still(func() { left = d.powerFails(t, dir) })
					again, err := spool.Open(spool.Config{Dir: left})
					require.NoError(t, err)
					require.Subset(t, kept(t, again), live, "seed %d, sample %d", seed, i)
					require.NoError(t, again.Close())
				}
			}
			require.NoError(t, s.Close())
		})
	}
}

// One fsync serves all samples that were written while the one before it ran.
func TestManySamplesShareAnFsync(t *testing.T) {
	t.Parallel()
	for _, fsync := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(0)
			s, err := spool.Open(spool.Config{Dir: t.TempDir(), Fsync: mode(fsync)}.Over(d.create))
			require.NoError(t, err)
			const each = 5 * time.Millisecond
			d.slow = each
			d.syncs = 0
			begun := time.Now()
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					if err := s.Put(sample("r", 1, fmt.Sprint(i), nil)); err != nil {
						t.Errorf("sample %d: %v", i, err)
					}
				})
			}
			all.Wait()
			if took := time.Since(begun); fsync {
				require.GreaterOrEqual(t, took, each, "a Put returns when its sample is on the disk")
				require.LessOrEqual(t, d.syncs, 4)
			} else {
				require.Zero(t, took)
				require.Zero(t, d.syncs)
			}
			require.NoError(t, s.Close())
		})
	}
}

// mode is the value of Config.Fsync with and without an fsync.
func mode(fsync bool) string {
	if fsync {
		return spool.FsyncGroup
	}
	return spool.FsyncNone
}
