package enginetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func addressedCases() []testCase {
	return []testCase{
		{"AnAddressedTicketGoesToItsWorkerOnly", toOne},
		{"AddressedTicketsComeInTheOrderOfPublication", addressedOrder},
		{"AWorkerThatDoesNotAskHoldsUpNobodyElse", addressedBusy},
		{"AnyNameOfAWorkerIsAnAddress", oddNames},
		{"ATicketForAWorkerThatIsNotThereYetWaitsForIt", addressedEarly},
		{"ALapsedLeaseComesBackToTheSameWorker", addressedLapse},
		{"ARevokedTicketIsSwallowed", addressedRevoke},
		{"TheNextAttemptMayBeForAnotherWorker", addressedAgain},
		{"AnEngineThatForgotCarriesTicketsAgain", addressedLoss},
	}
}

func toOne(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.Source(t, "a"), h.Source(t, "b")
	h.address(t, "b", "x")
	h.nothing(t, a, h.Lease/2)
	h.takeOne(t, b, "x").Done()
	h.nothing(t, b, 2*h.Lease)
}

func addressedOrder(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.Source(t, "a"), h.Source(t, "b")
	for i := range 20 {
		h.address(t, []string{"a", "b"}[i%2], fmt.Sprint(i))
	}
	for i := 0; i < 20; i += 2 {
		h.takeOne(t, b, fmt.Sprint(i+1)).Done()
	}
	for i := 0; i < 20; i += 2 {
		h.takeOne(t, a, fmt.Sprint(i)).Done()
	}
}

func addressedBusy(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.Source(t, "a"), h.Source(t, "b")
	h.address(t, "a", "first")
	held := h.takeOne(t, a, "first")
	h.address(t, "a", "second")
	for i := range 20 {
		id := fmt.Sprint(i)
		h.address(t, "b", id)
		h.takeOne(t, b, id).Done()
		require.NoError(t, held.Extend(t.Context()))
	}
	h.nothing(t, b, h.Lease/4)
	held.Done()
	h.takeOne(t, a, "second").Done()
}

func oddNames(t *testing.T, h *Harness) {
	t.Helper()
	for i, name := range []string{"a.b", "a b", "*", ">", "ü/é", "w-1_x"} {
		s := h.Source(t, name)
		id := fmt.Sprint(i)
		h.address(t, name, id)
		h.takeOne(t, s, id).Done()
	}
}

func addressedEarly(t *testing.T, h *Harness) {
	t.Helper()
	h.address(t, "a", "x")
	h.takeOne(t, h.Source(t, "a"), "x").Done()
}

func addressedLapse(t *testing.T, h *Harness) {
	t.Helper()
	a, b := h.Source(t, "a"), h.Source(t, "b")
	h.address(t, "a", "x")
	start := time.Now()
	h.takeOne(t, a, "x")
	h.nothing(t, b, h.Lease/2)
	l := h.takeOne(t, a, "x")
	require.GreaterOrEqual(t, time.Since(start), h.Lease*9/10)
	l.Return(0)
	h.takeOne(t, a, "x").Done()
}

func addressedRevoke(t *testing.T, h *Harness) {
	t.Helper()
	a := h.Source(t, "a")
	h.address(t, "a", "x", "y")
	require.NoError(t, h.Engine.Revoke(t.Context(), ticket("x").Key()))
	h.swallows(t, a, "y")
}

// addressedAgain is what a gateway does with a ticket for a worker that has gone.
func addressedAgain(t *testing.T, h *Harness) {
	t.Helper()
	b := h.Source(t, "b")
	h.address(t, "gone", "x")
	require.NoError(t, h.Engine.Revoke(t.Context(), ticket("x").Key()))
	next := ticket("x")
	next.Attempt, next.To = 2, "b"
	require.NoError(t, h.Engine.Publish(t.Context(), next))
	l := h.takeOne(t, b, "x")
	require.Equal(t, 2, l.Ticket().Attempt)
	l.Done()
}

func addressedLoss(t *testing.T, h *Harness) {
	t.Helper()
	if h.Lose == nil {
		t.Skip("this engine cannot be made to forget")
	}
	a := h.Source(t, "a")
	h.address(t, "a", "queued")
	h.Lose(t)
	h.nothing(t, a, h.Lease/2)
	<-time.After(2 * h.Lease) // longer than an engine remembers what was published
	h.address(t, "a", "queued")
	h.takeOne(t, a, "queued").Done()
}
