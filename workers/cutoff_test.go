package workers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// ferry is a source that always has a ticket, whose gateways are reached or not.
type ferry struct {
	script

	t       *testing.T
	buffers wire.Buffers

	mu      sync.Mutex
	reaches func(n int) bool // whether claim number n goes well; guarded by mu
	claims  int              // guarded by mu
	took    error            // of the next Take; guarded by mu
	cut     bool             // no lease is extended and no result taken; guarded by mu
	info    wire.WorkerInfo  // what was announced last; guarded by mu
}

func (f *ferry) Take(ctx context.Context, _ string, _ int) ([]workers.Lease, error) {
	f.mu.Lock()
	err := f.took
	f.took = nil
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(20 * time.Millisecond):
		return []workers.Lease{f}, nil
	case <-ctx.Done():
		return nil, nil
	}
}

func (f *ferry) Ticket() wire.Ticket {
	return wire.Ticket{ID: "x", Attempt: 1, Deadline: time.Now().Add(time.Minute), Avoid: f.ticket.Avoid, Aside: f.ticket.Aside}
}

func (f *ferry) Move(string, string) error { return nil }

func (f *ferry) Announce(info wire.WorkerInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.info = info
}

func (f *ferry) Claim(context.Context, wire.Ticket, string) (*wire.Frame, []rewards.ComponentResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims++
	if !f.reaches(f.claims) {
		return nil, nil, fmt.Errorf("%w: no route to host", wire.ErrUnreachable)
	}
	return frameOf(f.t, rig.Sample("x", 3), &f.buffers), nil, nil
}

func (f *ferry) isCut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

func (f *ferry) Extend(context.Context) error {
	if f.isCut() {
		return errPartitioned
	}
	return nil
}

func (f *ferry) Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error {
	if f.isCut() {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.script.Finish(ctx, t, res)
}

func (f *ferry) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims
}

func (f *ferry) reach(reaches func(int) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reaches = reaches
}

func always(int) bool { return true }
func never(int) bool  { return false }

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// aboard runs a test with a worker of one place at a ferry, in fake time.
func aboard(t *testing.T, ticket wire.Ticket, test func(t *testing.T, f *ferry, w *workers.Worker, log *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &ferry{t: t, reaches: never, script: script{ticket: ticket}}
		var log journal
		score := func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: 1}, nil }
		w, err := workers.New(workers.Options{
			Config: workers.Config{ID: "w"}, Source: f, Gateway: f, Profiles: serving(profiles(t, score)), Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		w.Start(t.Context())
		test(t, f, w, &log)
		w.Stop()
		require.Zero(t, f.buffers.Live())
	})
}

func TestAWorkerThatReachesNoGatewayRestsLongerEachTimeAndIsBrokenUntilItDoes(t *testing.T) {
	t.Parallel()
	aboard(t, wire.Ticket{}, func(t *testing.T, f *ferry, w *workers.Worker, log *journal) {
		t.Helper()
		time.Sleep(450 * time.Millisecond)
		require.Equal(t, 1, f.count(), "it rests half a second at least")
		time.Sleep(550 * time.Millisecond)
		require.Equal(t, 2, f.count(), "and then twice as long")
		require.Equal(t, wire.WorkerBroken, w.Info().State)
		time.Sleep(time.Minute)
		require.InDelta(t, 13, f.count(), 4, "in the end 5 s to 7.5 s")
		require.Equal(t, 1, strings.Count(log.String(), "claim failed"), "it is said once")
		f.mu.Lock()
		require.Equal(t, wire.WorkerBroken, f.info.State, "the gateways are told")
		f.mu.Unlock()
		f.script.mu.Lock()
		require.Subset(t, []string{"returned"}, f.ends, "every ticket goes back")
		f.script.mu.Unlock()
		f.reach(always)
		time.Sleep(8 * time.Second)
		require.Equal(t, wire.WorkerReady, w.Info().State)
		before := f.count()
		time.Sleep(time.Second)
		require.Greater(t, f.count(), before+20, "it works as before")
	})
}

// The network of this worker works: it is the gateway that nobody reaches.
func TestAGatewayThatIsGoneDoesNotTakeTheWorkerFromTheOthers(t *testing.T) {
	t.Parallel()
	aboard(t, wire.Ticket{}, func(t *testing.T, f *ferry, w *workers.Worker, _ *journal) {
		t.Helper()
		f.reach(func(n int) bool { return n%2 == 1 }) // every other ticket is of the one that is gone
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, wire.WorkerReady, w.Info().State)
		}
		require.Greater(t, f.count(), 150, "50 tickets a second, and no rest")
	})
}

func TestAWorkerThatIsTooSlowForATicketHandsItBackAtOnceAndStandsAside(t *testing.T) {
	t.Parallel()
	aboard(t, wire.Ticket{Avoid: []string{"w"}, Aside: true}, func(t *testing.T, f *ferry, w *workers.Worker, _ *journal) {
		t.Helper()
		time.Sleep(1200 * time.Millisecond)
		require.Zero(t, f.count())
		require.Equal(t, wire.WorkerReady, w.Info().State)
		f.script.mu.Lock()
		defer f.script.mu.Unlock()
		require.InDelta(t, 1200/95, len(f.ends), 5, "one ticket in 70 ms to 120 ms")
	})
}

func TestASourceThatFailsIsAskedAgain(t *testing.T) {
	t.Parallel()
	aboard(t, wire.Ticket{}, func(t *testing.T, f *ferry, _ *workers.Worker, log *journal) {
		t.Helper()
		f.mu.Lock()
		f.reaches, f.took = always, errors.New("the engine is away")
		f.mu.Unlock()
		time.Sleep(time.Second)
		require.Contains(t, log.String(), "the engine is away")
		require.Positive(t, f.count())
	})
}

func TestAWorkerThatWasNeverStartedStops(t *testing.T) {
	t.Parallel()
	w, err := workers.New(workers.Options{Config: workers.Config{ID: "w"}, Source: &script{}, Gateway: &script{}})
	require.NoError(t, err)
	w.Stop()
	require.Equal(t, wire.WorkerDraining, w.Info().State)
	_, err = workers.New(workers.Options{Source: &script{}, Gateway: &script{}})
	require.ErrorContains(t, err, "the id of a worker is empty")
}

func TestAGatewayThatTakesNoResultKeepsNobodyFromStopping(t *testing.T) {
	t.Parallel()
	aboard(t, wire.Ticket{}, func(t *testing.T, f *ferry, w *workers.Worker, log *journal) {
		t.Helper()
		f.mu.Lock()
		f.reaches, f.cut = always, true
		f.mu.Unlock()
		time.Sleep(6500 * time.Millisecond)
		require.Contains(t, log.String(), "the lease of a sample was not extended")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.Drain(ctx), context.DeadlineExceeded)
		start := time.Now()
		w.Stop()
		require.Less(t, time.Since(start), 3*time.Second)
		require.Contains(t, log.String(), "other workers score the unfinished samples")
		time.Sleep(10 * time.Second)
		f.script.mu.Lock()
		defer f.script.mu.Unlock()
		require.Contains(t, f.ends, "returned", "the ticket goes back all the same")
	})
}
