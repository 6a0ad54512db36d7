package workers_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/outage"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// atEngine runs a test with two workers of one process at ferries of their own, whose one
// profile asks an engine.
func atEngine(t *testing.T, test func(t *testing.T, e *outage.Engine, link *outage.Link, ferries []*ferry, log *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &outage.Engine{Takes: 10 * time.Millisecond}
		link := outage.NewLink(e)
		m, err := rewards.NewManager(rewards.ManagerConfig{Concurrency: 8, Components: []rewards.Component{{Key: "judge", Weight: 1, Required: true, Scorer: link}}})
		require.NoError(t, err)
		var log journal
		var ferries []*ferry
		var crew []*workers.Worker
		for i, id := range []string{"w0", "w1"} {
			f := &ferry{t: t, reaches: always}
			w, err := workers.New(workers.Options{
				Config: workers.Config{ID: id, Index: i, Of: 2}, Source: f, Gateway: f,
				Profiles: map[string]workers.Profile{"": {Manager: m, Capacity: 4}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			require.NoError(t, err)
			w.Start(t.Context())
			ferries, crew = append(ferries, f), append(crew, w)
		}
		test(t, e, link, ferries, &log)
		for i, w := range crew {
			w.Stop()
			require.Zero(t, ferries[i].buffers.Live())
		}
	})
}

func (f *ferry) said() wire.ProfileInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.info.Profiles[0]
}

func TestAProfileWhoseEngineIsDownIsAnnouncedAtOnceAndTakesNothing(t *testing.T) {
	t.Parallel()
	atEngine(t, func(t *testing.T, e *outage.Engine, link *outage.Link, ferries []*ferry, log *journal) {
		t.Helper()
		time.Sleep(500 * time.Millisecond)
		for _, f := range ferries {
			require.Equal(t, 4, f.said().Capacity)
			require.Empty(t, f.said().State)
		}
		e.Down(true)
		for !link.Dependency().Down {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		for _, f := range ferries {
			require.Zero(t, f.said().Capacity)
			require.Equal(t, wire.WorkerWaiting, f.said().State)
			require.Equal(t, "waiting for e", f.said().Waits)
		}
		require.Equal(t, 1, strings.Count(log.String(), "an engine, a service or another dependency of a reward is not available"), "once for the process: %s", log)
		time.Sleep(50 * time.Millisecond) // what was under way has come back
		claims, asked := ferries[0].count()+ferries[1].count(), len(e.Asked())
		time.Sleep(900 * time.Millisecond)
		require.Equal(t, claims, ferries[0].count()+ferries[1].count(), "no ticket is taken")

		time.Sleep(20 * time.Second) // the pauses are 1, 2, 4, 4, … s
		require.InDelta(t, asked+6, len(e.Asked()), 1)
		require.InDelta(t, claims+6, ferries[0].count()+ferries[1].count(), 1, "one sample for each probe")
		e.Down(false)
		for link.Dependency().Down {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		for _, f := range ferries {
			require.Equal(t, 4, f.said().Capacity)
			require.Empty(t, f.said().Waits)
		}
		require.Equal(t, 1, strings.Count(log.String(), "takes samples of a reward again"))
	})
}

func TestAnEngineThatAnswersNothingIsToldAndTakesNoCapacity(t *testing.T) {
	t.Parallel()
	atEngine(t, func(t *testing.T, _ *outage.Engine, link *outage.Link, ferries []*ferry, _ *journal) {
		t.Helper()
		link.Silent(7 * time.Second)
		time.Sleep(2 * time.Second)
		require.Equal(t, 4, ferries[0].said().Capacity)
		require.Equal(t, "calls at e, no answer for 5s", ferries[0].said().Waits)
		link.Silent(24 * time.Second)
		time.Sleep(2 * time.Second)
		require.Equal(t, "calls at e, no answer for 20s", ferries[0].said().Waits)
		link.Silent(0)
		time.Sleep(2 * time.Second)
		require.Empty(t, ferries[0].said().Waits)
	})
}
