//go:build linux

package fleet

import (
	"testing"
	"time"

	"github.com/rewardloop/rewardloop/testkit/netlab"
	"github.com/rewardloop/rewardloop/wire"
)

// Fed is the Run of a load whose samples s-0, s-1, … have the scores want, and whose
// results are those given, one each 10 ms; the fault is after the first.
func Fed(t testing.TB, want map[string]float64, results ...*wire.Result) *Report {
	t.Helper()
	r := &Run{
		t: t, f: &Fleet{t: t, scorer: &scorer{ended: map[string]int{}}}, load: Load{Run: "s", Samples: len(want)}, begun: time.Now(),
		grown: make(chan struct{}), want: want, got: map[string][]answer{},
	}
	at := time.Unix(0, 0)
	for i, res := range results {
		r.take(res)
		a := r.got[res.ID]
		a[len(a)-1].at, r.times[i] = at, at
		if i == 0 {
			r.Mark()
			r.marked = at
		}
		at = at.Add(10 * time.Millisecond)
	}
	return r.report()
}

// Tapped counts what a tap finds repeated when it reads chunks on the connections given.
func Tapped(conns []int, chunks [][]byte) (same, later int) {
	p := newTap()
	for i, b := range chunks {
		p.read(conns[i], netlab.Down, b)
	}
	return p.repeated()
}

// Picture and Checksum are what a load sends and what its score is.
func Picture(size int) ([]byte, error) { return picture(size) }

// Checksum is the score of a file.
func Checksum(file []byte) float64 { return checksum(file) }
