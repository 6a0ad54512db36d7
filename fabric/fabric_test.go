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
	enginetest.Run(t, func(t *testing.T, test func(*testing.T, *enginetest.Harness)) {
		t.Helper()
		const lease, gone = 750 * time.Millisecond, 300 * time.Millisecond
		f, source := open(t, fabric.Config{Lease: lease, Gone: gone})
		test(t, &enginetest.Harness{
			Engine: f, Lease: lease, Gone: gone, Source: source,
			Lose: func(t *testing.T) { t.Helper(); require.NoError(t, f.Lose(t.Context())) },
		})
	})
}
