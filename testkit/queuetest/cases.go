package queuetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/wire"
)

type testCase struct {
	name string
	test func(t *testing.T, h *Harness)
}

func cases() []testCase {
	return []testCase{
		{"TicketsComeInTheOrderOfPublication", order},
		{"ATakeYieldsNoMoreThanItAskedFor", noPrefetch},
		{"AWorkerThatDoesNotAskGetsNothing", busy},
		{"AnEndedTakeLeavesNothingBehind", abandonedTake},
		{"ALeaseThatLapsesIsDeliveredAgain", lapse},
		{"AnExtendedLeaseStays", extend},
		{"DoneEndsALeaseForGood", done},
		{"ATicketGivenBackComesAtOnce", giveBack},
		{"ATicketGivenBackForLaterComesLater", giveBackLater},
		{"ARevokedTicketIsSwallowed", revokeUnclaimed},
		{"ARevokedLeaseEndsAndItsTicketStaysAway", revokeLeased},
		{"ATicketPublishedTwiceIsDeliveredOnce", duplicate},
		{"ALateDoneDoesNoHarm", lateDone},
		{"ClosingASourceHandsBackWhatWasNotTaken", closing},
		{"AClosedSourceYieldsNothing", closed},
		{"WorkersAppearAndDisappear", presence},
		{"AQueueThatForgotCarriesTicketsAgain", forgetful},
		{"EveryTicketGoesToOneOfManyWorkers", crowd},
		{"ATicketReachesOnlyThoseWhoTakeFromItsQueue", apart},
		{"AFullQueueKeepsNoOtherWaiting", beside},
		{"ABurstAfterIdlenessComesAsFastAsAnyOther", awake},
	}
}

func order(t *testing.T, h *Harness) {
	t.Helper()
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprint(i))
	}
	h.publish(t, ids...)
	s := h.source(t, "a")
	for _, id := range ids {
		h.takeOne(t, s, id).Done()
	}
}

func noPrefetch(t *testing.T, h *Harness) {
	t.Helper()
	h.publish(t, "0", "1", "2", "3", "4")
	a, b := h.source(t, "a"), h.source(t, "b")
	held := 0
	for held < 2 { // take checks that no call yields more than it asks for
		held += len(h.take(t, a, 2-held))
	}
	seen := map[string]bool{}
	for len(seen) < 3 { // a has asked for no more: the rest is b's, before any lease can lapse
		for _, l := range h.take(t, b, 3-len(seen)) {
			seen[l.Ticket().ID] = true
			l.Done()
		}
	}
	require.Equal(t, map[string]bool{"2": true, "3": true, "4": true}, seen)
}

func busy(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.source(t, "a"), h.source(t, "b")
	h.publish(t, "first")
	held := h.takeOne(t, a, "first")
	for i := range 30 { // while a scores, everything goes to b
		id := fmt.Sprint(i)
		h.publish(t, id)
		h.takeOne(t, b, id).Done()
		require.NoError(t, held.Extend(t.Context()))
	}
	held.Done()
}

// abandonedTake is a worker whose breaker opens while its Take is open: what comes
// for it must not wait until a lease has lapsed.
func abandonedTake(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.source(t, "a"), h.source(t, "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := a.Take(ctx, mainQueue, 3)
	require.NoError(t, err)
	require.Empty(t, got)
	h.publish(t, "0", "1", "2")
	start := time.Now()
	for seen := 0; seen < 3; {
		for _, l := range h.take(t, b, 3-seen) {
			l.Done()
			seen++
		}
	}
	require.Less(t, time.Since(start), h.Lease*3/4, "tickets waited behind a worker that does not take them")
}

func lapse(t *testing.T, h *Harness) {
	t.Helper()
	h.publish(t, "x")
	a, b := h.source(t, "a"), h.source(t, "b")
	start := time.Now()
	h.takeOne(t, a, "x")
	l := h.takeOne(t, b, "x")
	require.GreaterOrEqual(t, time.Since(start), h.Lease*9/10, "it was delivered again before the lease was over")
	l.Done()
}

func extend(t *testing.T, h *Harness) {
	t.Helper()
	h.publish(t, "x")
	a, b := h.source(t, "a"), h.source(t, "b")
	l := h.takeOne(t, a, "x")
	for range 9 {
		h.nothing(t, b, h.Lease/3)
		require.NoError(t, l.Extend(t.Context()))
	}
	require.NoError(t, l.Context().Err())
	l.Done()
	h.nothing(t, b, 2*h.Lease)
}

func done(t *testing.T, h *Harness) {
	t.Helper()
	h.publish(t, "x")
	a, b := h.source(t, "a"), h.source(t, "b")
	l := h.takeOne(t, a, "x")
	l.Done()
	require.Error(t, l.Context().Err())
	h.nothing(t, b, 2*h.Lease)
}

func giveBack(t *testing.T, h *Harness) {
	t.Helper()
	h.publish(t, "x")
	a, b := h.source(t, "a"), h.source(t, "b")
	l := h.takeOne(t, a, "x")
	start := time.Now()
	l.Return(0)
	h.takeOne(t, b, "x").Done()
	require.Less(t, time.Since(start), h.Lease*3/4)
	h.nothing(t, b, 2*h.Lease)
}

func giveBackLater(t *testing.T, h *Harness) {
	t.Helper()
	h.publish(t, "x", "y")
	s := h.source(t, "a")
	l := h.takeOne(t, s, "x")
	pause := h.Lease / 2
	start := time.Now()
	l.Return(pause)
	h.takeOne(t, s, "y").Done() // others do not wait behind it
	h.takeOne(t, s, "x").Done()
	require.GreaterOrEqual(t, time.Since(start), pause*9/10)
	require.Less(t, time.Since(start), pause+h.Lease*3/4)
}

func revokeUnclaimed(t *testing.T, h *Harness) {
	t.Helper()
	a := h.source(t, "a")
	h.publish(t, "x", "y")
	require.NoError(t, h.Queue.Revoke(t.Context(), ticket("x").Key()))
	h.swallows(t, a, "y")
}

func revokeLeased(t *testing.T, h *Harness) {
	t.Helper()
	h.publish(t, "x")
	a, b := h.source(t, "a"), h.source(t, "b")
	l := h.takeOne(t, a, "x")
	other := ticket("x")
	other.Attempt++
	require.NoError(t, h.Queue.Revoke(t.Context(), other.Key()))
	require.NoError(t, h.Queue.Revoke(t.Context(), l.Ticket().Key()))
	h.ends(t, l)
	l.Return(0)
	h.nothing(t, b, 2*h.Lease)
}

func duplicate(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.source(t, "a"), h.source(t, "b")
	h.publish(t, "x", "x")
	l := h.takeOne(t, a, "x")
	h.publish(t, "x") // while it is leased
	h.nothing(t, b, h.Lease/3)
	l.Done()
	h.nothing(t, b, h.Lease)
	next := ticket("x")
	next.Attempt = 2 // the next attempt at the same sample is another ticket
	require.NoError(t, h.Queue.Publish(t.Context(), next))
	l = h.takeOne(t, b, "x")
	require.Equal(t, 2, l.Ticket().Attempt)
	l.Done()
}

func lateDone(t *testing.T, h *Harness) {
	t.Helper()
	h.publish(t, "x")
	a, b := h.source(t, "a"), h.source(t, "b")
	late := h.takeOne(t, a, "x")
	l := h.takeOne(t, b, "x")
	late.Done()
	late.Done()
	require.NoError(t, l.Context().Err(), "the lease of another worker ended")
	l.Done()
	h.nothing(t, b, 2*h.Lease)
	h.publish(t, "y")
	h.takeOne(t, a, "y").Done()
}

func closing(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.source(t, "a"), h.source(t, "b")
	h.publish(t, "held")
	held := h.takeOne(t, a, "held")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.Take(ctx, mainQueue, 2)
	require.NoError(t, err)
	h.publish(t, "x", "y")
	<-time.After(h.Lease / 40) // they have come, or not yet: both must be handed back
	a.Close()
	start := time.Now()
	ids := []string{}
	for len(ids) < 2 {
		for _, l := range h.take(t, b, 2-len(ids)) {
			ids = append(ids, l.Ticket().ID)
			l.Done()
		}
	}
	require.Less(t, time.Since(start), h.Lease*3/4)
	require.ElementsMatch(t, []string{"x", "y"}, ids)
	require.NoError(t, held.Context().Err(), "a lease that was taken lives on")
	require.NoError(t, held.Extend(t.Context()))
	held.Done()
}

func closed(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.source(t, "a"), h.source(t, "b")
	a.Close()
	a.Close()
	h.publish(t, "x")
	got, err := a.Take(t.Context(), mainQueue, 1)
	require.NoError(t, err)
	require.Empty(t, got)
	h.takeOne(t, b, "x").Done()
}

func presence(t *testing.T, h *Harness) {
	t.Helper()
	require.Empty(t, h.Queue.Workers())
	b, a := h.source(t, "b"), h.source(t, "a")
	infoA := wire.WorkerInfo{ID: "a", Busy: 1, State: wire.WorkerReady, Scored: 7, Profiles: []wire.ProfileInfo{{Name: "ocr", Queue: mainQueue, Capacity: 3, Used: map[string]int{"gw": 1}}}}
	b.Announce(wire.WorkerInfo{ID: "b", State: wire.WorkerReady})
	a.Announce(infoA)
	// A worker may have announced itself as it was connected, with less to say.
	h.live(t, 20*h.Lease, func(ws []wire.WorkerInfo) bool { return len(ws) == 2 && ws[0].Scored == infoA.Scored })
	ws := h.Queue.Workers()
	require.Equal(t, []string{"a", "b"}, []string{ws[0].ID, ws[1].ID}, "the order is fixed")
	require.WithinDuration(t, time.Now(), ws[0].Seen, 20*h.Lease)
	require.NotZero(t, ws[0].Rev)
	rev := ws[0].Rev
	ws[0].Seen, ws[0].Rev = time.Time{}, 0
	require.Equal(t, infoA, slices.Clone(ws)[0])
	infoA.Busy, infoA.Scored = 3, 8
	infoA.Profiles = []wire.ProfileInfo{{Name: "ocr", Queue: mainQueue, Capacity: 3, Used: map[string]int{"gw": 3}}}
	a.Announce(infoA)
	h.live(t, 20*h.Lease, func(ws []wire.WorkerInfo) bool { return ws[0].Busy == 3 && ws[0].Profiles[0].Used["gw"] == 3 })
	require.Equal(t, rev, h.Queue.Workers()[0].Rev, "only counters have moved")
	infoA.State = wire.WorkerDraining
	a.Announce(infoA)
	h.live(t, 20*h.Lease, func(ws []wire.WorkerInfo) bool { return len(ws) > 0 && ws[0].State == wire.WorkerDraining })
	require.NotEqual(t, rev, h.Queue.Workers()[0].Rev)
	if h.Vanish != nil {
		h.Vanish("b")
	}
	h.live(t, 20*h.Gone, func(ws []wire.WorkerInfo) bool {
		a.Announce(infoA)
		return len(ws) == 1 && ws[0].ID == "a"
	})
}

func forgetful(t *testing.T, h *Harness) {
	t.Helper()
	if h.Lose == nil {
		t.Skip("this queue cannot be made to forget")
	}
	a, b := h.source(t, "a"), h.source(t, "b")
	h.publish(t, "leased", "queued")
	l := h.takeOne(t, a, "leased")
	h.Lose(t)
	h.nothing(t, b, 2*h.Lease)
	h.publish(t, "leased", "queued") // as a gateway does with what nobody claims
	for _, id := range []string{"leased", "queued"} {
		h.takeOne(t, b, id).Done()
	}
	l.Done()
	h.nothing(t, a, 2*h.Lease)
}

func crowd(t *testing.T, h *Harness) {
	t.Helper()
	const tickets, crowdSize = 400, 6
	var mu sync.Mutex
	seen, done := map[string]int{}, 0
	ctx, cancel := context.WithTimeout(t.Context(), 60*h.Lease)
	defer cancel()
	var wg sync.WaitGroup
	for w := range crowdSize {
		s := h.source(t, fmt.Sprint(w))
		wg.Go(func() {
			for ctx.Err() == nil {
				n := 1 + w%3
				got, err := s.Take(ctx, mainQueue, n)
				assert.NoError(t, err) //nolint:testifylint // not the test's goroutine
				assert.LessOrEqual(t, len(got), n)
				mu.Lock()
				for _, l := range got {
					id := l.Ticket().ID
					seen[id]++
					if back := id[len(id)-1] == '5'; back && seen[id] == 1 { // a tenth is given back once
						l.Return(0)
						continue
					}
					l.Done()
					done++
				}
				if done == tickets {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for i := range tickets / 4 {
				assert.NoError(t, h.Queue.Publish(t.Context(), ticket(fmt.Sprintf("%d-%d", p, i))))
			}
		})
	}
	publishers.Wait()
	wg.Wait()
	require.Len(t, seen, tickets)
	for id, n := range seen {
		want := 1
		if id[len(id)-1] == '5' {
			want = 2
		}
		require.Equal(t, want, n, id)
	}
}

// apart has a worker of one queue, one of another, and one of both.
func apart(t *testing.T, h *Harness) {
	t.Helper()
	one, other := h.source(t, "one"), h.Source(t, "other", []string{otherQueue})
	both := h.Source(t, "both", []string{otherQueue, mainQueue})
	next := ticket("x")
	next.Queue = otherQueue
	require.NoError(t, h.Queue.Publish(t.Context(), next))
	h.nothing(t, one, h.Lease/3)
	h.nothing(t, both, h.Lease/3) // which has asked the wrong queue
	got := h.wait(t, other, otherQueue, 1, 20*h.Lease)
	require.Len(t, got, 1)
	require.Equal(t, "x", got[0].Ticket().ID)
	require.Equal(t, otherQueue, got[0].Ticket().Queue)
	got[0].Return(0)
	got = h.wait(t, both, otherQueue, 1, 20*h.Lease)
	require.Len(t, got, 1)
	got[0].Done()
	h.publish(t, "y")
	require.Empty(t, h.wait(t, other, otherQueue, 1, h.Lease/3))
	require.Empty(t, h.wait(t, both, otherQueue, 1, h.Lease/3))
	h.takeOne(t, one, "y").Done()
}

func beside(t *testing.T, h *Harness) {
	t.Helper()
	var ids []string
	for i := range 50 {
		ids = append(ids, fmt.Sprint(i))
	}
	h.publish(t, ids...)
	both := h.Source(t, "both", []string{mainQueue, otherQueue})
	h.takeOne(t, both, "0").Done()
	next := ticket("x")
	next.Queue = otherQueue
	require.NoError(t, h.Queue.Publish(t.Context(), next))
	got := h.wait(t, both, otherQueue, 1, 20*h.Lease)
	require.Len(t, got, 1)
	require.Equal(t, "x", got[0].Ticket().ID)
	got[0].Done()
}

// awake has workers that ask for longer than a queue counts as lively, and then so many
// tickets that one for each request which has been open since would take minutes.
func awake(t *testing.T, h *Harness) {
	t.Helper()
	const tickets, crowdSize, idle = 40, 3, 2 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	came := make(chan string, 2*tickets)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for w := range crowdSize {
		s := h.source(t, fmt.Sprint(w))
		wg.Go(func() {
			for ctx.Err() == nil {
				got, err := s.Take(ctx, mainQueue, 1)
				assert.NoError(t, err) //nolint:testifylint // not the test's goroutine
				for _, l := range got {
					came <- l.Ticket().ID
					l.Done()
				}
			}
		})
	}
	for round := range 2 {
		<-time.After(idle)
		seen := map[string]bool{}
		for i := range tickets {
			h.publish(t, fmt.Sprintf("%d-%d", round, i))
		}
		enough := time.After(40 * h.Lease)
		for len(seen) < tickets {
			select {
			case id := <-came:
				require.False(t, seen[id], id)
				seen[id] = true
			case <-enough:
				require.Failf(t, "tickets did not come", "%d of %d in 40 leases", len(seen), tickets)
			}
		}
	}
}
