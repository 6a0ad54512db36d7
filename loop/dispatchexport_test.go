package loop

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Backups returns how many second requests were sent and how many of them won, and the
// seconds of attempts that did not count.
func (m *Manager) Backups() (sent, won, wasted float64) {
	reg := prometheus.NewRegistry()
	value := func(c prometheus.Counter) float64 {
		reg.MustRegister(c)
		defer reg.Unregister(c)
		all, err := reg.Gather()
		if err != nil {
			panic(err)
		}
		return all[0].GetMetric()[0].GetCounter().GetValue()
	}
	return value(m.metrics.backupsSent), value(m.metrics.backupsWon), value(m.metrics.backupSeconds)
}

// Usual feeds n service times of mean 1 to the two means that a run keeps, and returns
// for how much of the time each was within 30 % of what it settles at.
func Usual(n int, draw func() float64) (usual, mean float64) {
	r := &run{pace: newPaces()}
	var us, ms []float64
	for i := range n {
		d := time.Duration(draw() * float64(time.Second))
		r.observe(d, uint64(i))
		r.pace.observe("w", d)
		us, ms = append(us, r.pace.usual.value), append(ms, r.mean.Seconds())
	}
	within := func(xs []float64) float64 {
		middle := slices.Sorted(slices.Values(xs))[len(xs)/2]
		k := 0
		for _, x := range xs {
			if math.Abs(x/middle-1) <= 0.3 {
				k++
			}
		}
		return float64(k) / float64(len(xs))
	}
	return within(us), within(ms)
}

// Cancel takes samples back for their client.
func (m *Manager) Cancel(s *Session, ids ...string) { m.cancel(s, ids) }
