//go:build linux

package main_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/testkit/fleet"
	"github.com/rewardloop/rewardloop/testkit/liveness"
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

// The full form is in the table of make test-fault.
func TestClientsOfThreeGatewaysGetOneResultEachWhileOneIsKilledAfterTheOther(t *testing.T) {
	t.Parallel()
	f := fleet.New(t, fleet.Config{Binary: main.Binary(t), ScoreLeast: 10 * time.Millisecond, ScoreMost: 50 * time.Millisecond})
	gateways := []*fleet.Process{f.Alone("a"), f.Alone("b"), f.Alone("c")}
	run := f.Load(fleet.Load{Samples: 1200, Bytes: 4 << 10, PerSecond: 150, Clients: 8}, gateways...)
	for i, g := range gateways {
		run.Reached(200 * (i + 1))
		g.Kill9()
		run.Reached(200*(i+1) + 150) // the others do without it
		g.Start()
	}
	report := run.Wait()
	t.Log(report)
	report.Check(t)
}

func TestSamplesGetOneResultEachWhileGatewayAndWorkersReadOtherWeights(t *testing.T) {
	t.Parallel()
	f := fleet.New(t, fleet.Config{Binary: main.Binary(t), ScoreLeast: 10 * time.Millisecond, ScoreMost: 50 * time.Millisecond})
	g := f.Gateway("g1", nil)
	f.Worker("w1", nil)
	f.Worker("w2", nil)
	run := f.Load(fleet.Load{Samples: 600, Bytes: 4 << 10, PerSecond: 100}, g)
	for i := range 5 {
		run.Reached(100 * (i + 1))
		f.Reload()
	}
	report := run.Wait()
	t.Log(report)
	report.Check(t)
	require.Greater(t, report.Configs, 2, "results tell by which weights they were scored")
}

func TestAClientLeavesAGatewayThatIsSilentAndComesBackToItLater(t *testing.T) {
	t.Parallel()
	f := fleet.New(t, fleet.Config{Binary: main.Binary(t)})
	one, two := f.Alone("one"), f.Alone("two")
	run := f.Load(fleet.Load{Samples: 300, Bytes: 4 << 10, PerSecond: 30, Clients: 1}, one, two)
	run.Reached(20)
	run.Mark()
	one.Stop()
	run.Reached(120) // nobody has let it go on
	one.Cont()
	two.Kill9()
	report := run.Wait()
	t.Log(report)
	report.Check(t)
}
