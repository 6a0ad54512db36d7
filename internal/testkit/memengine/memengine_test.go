package memengine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/testkit/enginetest"
	"github.com/rewardloop/rewardloop/internal/testkit/memengine"
	"github.com/rewardloop/rewardloop/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemengineKeepsTheContractOfAnEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, setUp)
}

func setUp(t *testing.T, test func(*testing.T, *enginetest.Harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New(1, time.Second)
		defer e.Close()
		test(t, &enginetest.Harness{
			Engine: e, Lease: time.Second, Gone: time.Second, Vanish: e.Kill,
			Source: func(_ *testing.T, worker string, _ []string) workers.Source { return e.NewSource(worker) },
			Lose:   func(*testing.T) { e.Lose() },
		})
	})
}
