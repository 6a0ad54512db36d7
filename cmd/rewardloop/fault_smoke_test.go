//go:build linux

package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/internal/testkit/fleet"
	"github.com/rewardloop/rewardloop/internal/testkit/liveness"
)

// What the faults are measured with finds none in one process without a fault.
func TestOneProcessScoresWhatIsSentThroughAProxyOnceAndRight(t *testing.T) {
	t.Parallel()
	f := fleet.New(t, fleet.Config{Binary: main.Binary(t)})
	alone := f.Alone("alone")
	run := f.Load(fleet.Load{Samples: 60, Bytes: 16 << 10, PerSecond: 60}, alone)
	run.Reached(20)
	run.Mark()
	run.Proxies[0].Cut()
	report := run.Wait()
	t.Log(report)
	report.Check(t)
	require.Equal(t, 2, report.Conns)
	require.Zero(t, report.Twice, "a client that was cut off is not a reason to score again")
	f.Lives(0, alone)
}

func TestAWorkerKilledInTheMiddleOf200SamplesCostsNone(t *testing.T) {
	t.Parallel()
	f := fleet.New(t, fleet.Config{Binary: main.Binary(t)})
	g := f.Gateway("g1", nil)
	w1 := f.Worker("w1", nil)
	w2 := f.Worker("w2", nil)
	run := f.Load(fleet.Load{Samples: 200, Bytes: 16 << 10, PerSecond: 50}, g)
	run.Reached(60)
	run.Mark()
	w1.Kill9()
	report := run.Wait()
	t.Log(report)
	report.Check(t)
	require.NotZero(t, report.Of(w1))
	require.NotZero(t, report.Of(w2))
	f.Lives(liveness.Death, g)
}
