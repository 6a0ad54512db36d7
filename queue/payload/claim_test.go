package payload_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

func TestAPayloadOfAnySizeArrivesAsItWasAndItsResultIsTaken(t *testing.T) {
	t.Parallel()
	for what, size := range map[string]int{"small": 40, "a picture": 3 * 512 * 512, "a video": 100 << 20} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, w := newRig(t), newWorker(t)
			unpoisoned(r, w, size)
			ticket := r.ticket("sample-1", size)
			f, _, err := w.Claim(t.Context(), ticket, "worker-1")
			require.NoError(t, err)
			require.Equal(t, r.store.frames["sample-1"].Sum(), f.Sum())
			require.Equal(t, "a red square", f.Header().Sample.Prompt)
			require.InDelta(t, 1, counter(t, r.reg, "rewardloop_claim_open"), 0)
			res := scored(ticket, "worker-1", 0.25)
			require.NoError(t, w.Finish(t.Context(), ticket, res))
			require.Equal(t, []*wire.Result{res}, r.store.taken())
			require.InDelta(t, 0, counter(t, r.reg, "rewardloop_claim_open"), 0)
			f.Release()
		})
	}
}

func TestAGroupArrivesWithAllThatItsComponentsHaveSaid(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	mean := 0.125
	g := &wire.Group{UID: "prompt-7", Size: 5, LastMeanStd: &mean, Absent: map[string]string{"gone": "failed"}}
	ticket := r.ticket("\x00group\x00train\x003\x00prompt-7", 10)
	ticket.Bytes, ticket.Group = 0, true
	for i, size := range []int{100, 3 * 512 * 512, 700_000, 5} {
		member := r.store.add(t, name("member", i), size)
		ticket.Bytes += member.Bytes
		g.Members = append(g.Members, wire.GroupMember{Frame: r.store.frames[member.ID], Partial: []rewards.ComponentResult{
			{Key: "ocr", Status: rewards.StatusOK, Value: 0.1 + float64(i), Took: 17 * time.Millisecond, Attempts: 2, Score: rewards.Score{
				Value: 0.3, Steps: []float64{1, -0.5}, Extra: map[string]any{"n": int64(1<<60 + 1), "x": 5.0, "ok": true, "none": nil},
				Details: map[string]any{"boxes": []any{1.5, int64(2)}},
			}},
			{Key: "place", Status: rewards.StatusWaiting},
			{Key: "vqa", Status: rewards.StatusFailed, Class: rewards.Timeout, Message: "took too long"},
		}})
	}
	r.store.groups[ticket.ID] = g
	got, err := w.ClaimGroup(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	require.Equal(t, []any{g.UID, g.Size, g.LastMeanStd, g.Absent, len(g.Members)}, []any{got.UID, got.Size, got.LastMeanStd, got.Absent, len(got.Members)})
	for i, m := range g.Members {
		require.Equal(t, m.Partial, got.Members[i].Partial)
		require.Equal(t, m.Frame.Sum(), got.Members[i].Frame.Sum())
		got.Members[i].Frame.Release()
	}
	require.Eventually(t, func() bool { return counter(t, r.reg, "rewardloop_claim_open") == 0 }, soon, time.Millisecond)
}

func TestASampleThatWasReturnedArrivesWithWhatIsFinishedOfIt(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	ticket := r.ticket("sample-1", 3*512*512)
	want := []rewards.ComponentResult{
		{Key: "ocr", Status: rewards.StatusOK, Value: 0.5, Took: time.Second, Attempts: 1, Score: rewards.Score{Value: 0.5, Extra: map[string]any{"text": "STOP", "n": int64(4)}}},
		{Key: "judge", Status: rewards.StatusWaiting},
	}
	r.store.mu.Lock()
	r.store.partials["sample-1"] = want
	r.store.mu.Unlock()
	f, kept, err := w.Claim(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	defer f.Release()
	require.Equal(t, want, kept)
	res := &wire.Result{ID: "sample-1", Outcome: rewards.OutcomeCancelled, Worker: "worker-1", Attempt: ticket.Key(), Partial: want, Waits: "judge", Always: true}
	require.NoError(t, w.Finish(t.Context(), ticket, res))
	require.Equal(t, []*wire.Result{res}, r.store.taken())
}

func TestAGroupThatNobodyIsLeftOfArrivesEmpty(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	ticket := r.ticket("group", 10)
	ticket.Group = true
	r.store.groups["group"] = &wire.Group{UID: "u", Size: 2}
	g, err := w.ClaimGroup(t.Context(), ticket, "worker-1")
	require.NoError(t, err)
	require.Equal(t, &wire.Group{UID: "u", Size: 2}, g)
	require.NoError(t, w.Finish(t.Context(), ticket, &wire.Result{ID: "group", Outcome: rewards.Failed, Worker: "worker-1", Attempt: ticket.Key()}))
}

// The large payload is held up on its way until the gateway has granted the small ones.
func TestSmallPayloadsOvertakeALargeOne(t *testing.T) {
	t.Parallel()
	for what, bulk := range map[string]int64{"on another connection": 1 << 20, "on the same connection": 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := newWorker(t, func(o *payload.ClientOptions) { o.Config.BulkBytes = bulk })
			unpoisoned(r, w, 40<<20)
			p := newProxy(t, r.url())
			begun, granted := make(chan struct{}), make(chan struct{})
			begin := sync.OnceFunc(func() { close(begun) })
			p.tap = func(_ int, at int64, _ []byte) bool {
				if at > 1<<20 {
					begin()
					<-granted
				}
				return false
			}
			large := p.via(r.ticket("large", 40<<20))
			small := make([]wire.Ticket, 5)
			for i := range small {
				small[i] = p.via(r.ticket(name("picture", i), 700_000))
			}
			order := make(chan string, 6)
			var tasks sync.WaitGroup
			get := func(ticket wire.Ticket) {
				f, _, err := w.Claim(t.Context(), ticket, "worker-1")
				order <- ticket.ID
				if assert.NoError(t, err) {
					f.Release()
				}
			}
			tasks.Go(func() { get(large) })
			<-begun
			for _, ticket := range small {
				tasks.Go(func() { get(ticket) })
			}
			require.Eventually(t, func() bool { return counter(t, r.reg, "rewardloop_claim_claims_total") == 6 }, soon, time.Millisecond)
			close(granted)
			tasks.Wait()
			for range small {
				require.NotEqual(t, "large", <-order)
			}
		})
	}
}

func TestTwoHundredClaimsAtOnceKeepTheirBytesApart(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	var tasks sync.WaitGroup
	for i := range 200 {
		ticket := r.ticket(name("sample", i), 1000+997*i)
		tasks.Go(func() {
			f, _, err := w.Claim(t.Context(), ticket, name("worker", i%5))
			if err != nil {
				t.Error(err)
				return
			}
			copied, err := wire.Decode(append([]byte{}, f.Bytes()...), wire.Limits{})
			if assert.NoError(t, err) {
				assert.Equal(t, ticket.ID, copied.Header().Sample.ID)
				assert.Equal(t, f.Sum(), copied.Sum())
			}
			assert.NoError(t, w.Finish(t.Context(), ticket, scored(ticket, name("worker", i%5), float64(i))))
			f.Release()
		})
	}
	tasks.Wait()
	require.Len(t, r.store.taken(), 200)
	require.InDelta(t, 200, counter(t, r.reg, "rewardloop_claim_claims_total"), 0)
	require.InDelta(t, 200, counter(t, r.reg, "rewardloop_claim_results_total"), 0)
	require.LessOrEqual(t, counter(t, r.reg, "rewardloop_claim_connections"), 2.0)
}

func TestAClaimThatIsGivenUpStopsTheTransfer(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	p := newProxy(t, r.url())
	unpoisoned(r, w, 40<<20)
	ctx, cancel := context.WithCancelCause(t.Context())
	p.tap = func(_ int, at int64, _ []byte) bool {
		if at > 4<<20 {
			cancel(errors.New("revoked"))
		}
		return false
	}
	_, _, err := w.Claim(ctx, p.via(r.ticket("large", 40<<20)), "worker-1")
	require.ErrorContains(t, err, "revoked")
	require.Eventually(t, func() bool { return counter(t, r.reg, "rewardloop_claim_open") == 0 }, soon, time.Millisecond)
	f, _, err := w.Claim(t.Context(), p.via(r.ticket("next", 2<<20)), "worker-1")
	require.NoError(t, err, "the connection is as good as before")
	f.Release()
	require.LessOrEqual(t, p.accepted(), 2, "one of each connection")
	require.Less(t, counter(t, r.reg, "rewardloop_claim_sent_bytes_total"), 40.0*(1<<20))
}

func TestAClaimOfAGoneSampleIsGone(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	ticket := r.ticket("sample-1", 10)
	r.store.frames["sample-1"].Release()
	delete(r.store.frames, "sample-1")
	_, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrGone)
	require.InDelta(t, 1, counter(t, r.reg, "rewardloop_claim_refused_total", "gone"), 0)
	require.InDelta(t, 0, counter(t, r.reg, "rewardloop_claim_open"), 0)
}

func TestASampleThatIsReleasedWithoutAResultIsNoLongerOpen(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	ticket := r.ticket("sample-1", 10)
	for range 3 { // and may be claimed again, which the gateway is asked about
		f, _, err := w.Claim(t.Context(), ticket, "worker-1")
		require.NoError(t, err)
		f.Release()
		require.Eventually(t, func() bool { return counter(t, r.reg, "rewardloop_claim_open") == 0 }, soon, time.Millisecond)
	}
	require.Equal(t, 3, r.store.claims["sample-1"])
}

func TestTooManyOpenClaimsAreRefused(t *testing.T) {
	t.Parallel()
	r, w := newRig(t, func(o *payload.ServerOptions) { o.Config.MaxOpen = 1 }), newWorker(t)
	f, _, err := w.Claim(t.Context(), r.ticket("sample-1", 10), "worker-1")
	require.NoError(t, err)
	_, _, err = w.Claim(t.Context(), r.ticket("sample-2", 10), "worker-1")
	require.ErrorIs(t, err, payload.ErrRefused)
	require.NotErrorIs(t, err, wire.ErrGone)
	require.InDelta(t, 1, counter(t, r.reg, "rewardloop_claim_refused_total", "busy"), 0)
	f.Release()
}

func TestAPayloadLargerThanItsTicketSaysIsRefused(t *testing.T) {
	t.Parallel()
	r, w := newRig(t), newWorker(t)
	ticket := r.ticket("sample-1", 5000)
	ticket.Bytes--
	_, _, err := w.Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, payload.ErrRefused)
}
