package trace_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// nowhere is a sample in flight.
type nowhere struct{}

func (nowhere) Whereabouts() (stage string, arrived time.Time, worker string) {
	return "queued", time.Time{}, ""
}

func TestASpanHasTheTimesOfTheAttemptThatCountedInSecondsOfItsStep(t *testing.T) {
	t.Parallel()
	b := step.NewBook(step.Limits{Bytes: 1 << 20, Timeout: time.Hour})
	zero := time.Unix(1000, 0)
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	key := step.KeyOf("run", "", 7)
	_, err := b.Declare(zero, "run", step.Client{}, &wire.Step{Step: 7, Expected: 3})
	require.NoError(t, err)
	st, row, _ := b.Arrived(at(2), key, step.Arrival{ID: "a", UID: "g", Size: 2, Received: at(1), Arrived: at(2), Flight: nowhere{}})
	_, _, _ = b.Arrived(at(3), key, step.Arrival{ID: "b", Received: at(3), Arrived: at(3), Flight: nowhere{}})
	row.Tried(step.Attempt{Worker: "w1", Began: at(4), Ended: at(5), Outcome: "worker_lost"})
	row.Tried(step.Attempt{Worker: "w2", Began: at(6), Ended: at(8), Backup: true, Outcome: "scored"})
	row.Counted("w2", at(6), at(8))
	b.Finished(at(9), st, row, &wire.Result{
		Outcome: rewards.Scored, RewardScore: new(1.0), TimingMS: map[string]float64{"decode_ms": 250, "total": 7000, "ocr": -1},
	}, 0, 5)

	assert.Equal(t, trace.Trace{
		Servers: 5, Run: "run", Split: "train", Step: 7, Expected: 3,
		Spans: []trace.Span{
			{
				ID: "a", UID: "g", Outcome: "scored", Worker: "w2", Generated: 1, Queued: new(2.0), Started: new(6.0), Scored: new(8.0), Returned: new(9.0),
				Attempts: []sim.Attempt{
					{Worker: "w1", Started: 4, Ended: 5, Outcome: "worker_lost"},
					{Worker: "w2", Started: 6, Ended: 8, Backup: true, Outcome: "scored"},
				},
				Stages: map[string]float64{"decode": 0.25},
			},
			{ID: "b", Generated: 3, Queued: new(3.0)},
		},
	}, trace.Of(st))
}

func TestWhoWaitsForAReportLearnsThatThereIsNoneAnyMore(t *testing.T) {
	t.Parallel()
	b := step.NewBook(step.Limits{Timeout: time.Hour})
	one, _ := b.Open(time.Unix(1, 0), step.KeyOf("run", "", 1))
	two, _ := b.Open(time.Unix(1, 0), step.KeyOf("run", "", 2))
	r := trace.NewReports()
	assert.Nil(t, r.Made(one), "it is not over")
	r.Expect(one)
	r.Expect(two)
	first, second := r.Made(one), r.Made(two)
	select {
	case <-first:
		t.Error("there is no report yet")
	default:
	}
	r.Put(one, &trace.Report{Samples: 3})
	<-first
	assert.Equal(t, 3, r.Of(one).Samples)
	r.Forget(one)
	r.Forget(two)
	<-second
	r.Put(two, &trace.Report{Samples: 4}) // its maker comes late
	assert.Nil(t, r.Of(one))
	assert.Nil(t, r.Of(two))
}
