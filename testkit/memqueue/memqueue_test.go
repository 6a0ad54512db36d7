package memqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/queuetest"
	"github.com/rewardloop/rewardloop/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheQueueInMemoryKeepsTheContractOfAQueue(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, setUp)
}

func setUp(t *testing.T, test func(*testing.T, *queuetest.Harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := memqueue.New(1, time.Second)
		defer e.Close()
		test(t, &queuetest.Harness{
			Queue: e, Lease: time.Second, Gone: time.Second, Vanish: e.Kill,
			Source: func(_ *testing.T, worker string, _ []string) workers.Source { return e.NewSource(worker) },
			Lose:   func(*testing.T) { e.Lose() },
		})
	})
}
