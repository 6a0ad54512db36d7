package fabric_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/fabric"
	"github.com/rewardloop/rewardloop/internal/testkit/enginetest"
	"github.com/rewardloop/rewardloop/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, cfg fabric.Config) (f *fabric.Fabric, source func(t *testing.T, worker string) workers.Source) {
	t.Helper()
	f, err := fabric.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(f.Close) // after the sources' own clean-up
	return f, func(t *testing.T, worker string) workers.Source {
		t.Helper()
		s, err := f.NewSource(worker)
		require.NoError(t, err)
		t.Cleanup(s.Disconnect)
		return s
	}
}

func TestFabricKeepsTheContractOfAnEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, setUp(fabric.Config{}))
}

func TestAddressedFabricKeepsTheContractOfAnEngine(t *testing.T) {
	t.Parallel()
	enginetest.RunAddressed(t, setUp(fabric.Config{Addressed: true}))
}

func setUp(cfg fabric.Config) func(*testing.T, func(*testing.T, *enginetest.Harness)) {
	cfg.Lease, cfg.Gone = 750*time.Millisecond, 300*time.Millisecond
	return func(t *testing.T, test func(*testing.T, *enginetest.Harness)) {
		t.Helper()
		f, source := open(t, cfg)
		test(t, &enginetest.Harness{
			Engine: f, Lease: cfg.Lease, Gone: cfg.Gone, Source: source,
			Lose: func(t *testing.T) { t.Helper(); require.NoError(t, f.Lose(t.Context())) },
		})
	}
}

func TestAWorkerThatCouldNotBeSeatedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f, _ := open(t, fabric.Config{Addressed: true})
	require.NoError(t, f.Forget(t.Context()))
	_, err := f.NewSource("w")
	require.ErrorContains(t, err, "consumer")
	require.False(t, f.Seated("w"), "its tickets would be kept for nobody after every loss")
}
