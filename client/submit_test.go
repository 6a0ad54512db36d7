package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

func TestAnIDIsRefusedWhileItIsInFlightAndIsFreeAfterwards(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	f := submitOne(t, c, "x")
	_, err := c.Submit(t.Context(), rig.Sample("x", 300), 0)
	require.ErrorIs(t, err, client.ErrInFlight)
	require.ErrorContains(t, err, `"x"`)
	within(t, g.met).scored("x")
	requireScored(t, f)
	g.scores(nil)
	requireScored(t, submitOne(t, c, "x"))
}

func TestWhoStopsWaitingStillHasHisSample(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	f := submitOne(t, c, "x")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := f.Wait(done(ctx, cancel))
	require.ErrorIs(t, err, context.Canceled)
	select {
	case <-f.Done():
		require.Fail(t, "there is no result")
	default:
	}
	within(t, g.met).scored("x")
	within(t, f.Done())
	requireScored(t, f)
}

// The server lets 100 samples in flight, 1,024 more wait for credit.
func TestSubmitWaitsWhileTooManySamplesWaitForCredit(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	submitSmall := func(ctx context.Context, i int) (*client.Future, error) {
		return c.Submit(ctx, &rewards.Sample{ID: fmt.Sprint(i)}, 0)
	}
	const sent, waiting = 100, 1024
	for i := range sent + waiting {
		_, err := submitSmall(t.Context(), i)
		require.NoError(t, err)
	}
	for range sent {
		within(t, g.got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := submitSmall(ctx, -1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	within(t, g.met).say(&wire.Credit{Samples: sent + 1, Bytes: 1 << 30})
	_, err = submitSmall(t.Context(), -1)
	require.NoError(t, err)
}

func TestResultsThatNobodyReadsAreBoundedAndInTheirFutures(t *testing.T) {
	t.Parallel()
	const kept, more = 4096, 50
	g := newFakeGateway(t, nil)
	g.scores(func(c *fakeConn, id string) {
		c.scored(id)
		n := int64(c.seq.Load())
		c.say(&wire.Credit{Samples: 100 + n, Bytes: 1 << 40})
	})
	c := dialFake(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	results := c.Results(ctx)
	var futures []*client.Future
	for i := range kept + more {
		f, err := c.Submit(t.Context(), &rewards.Sample{ID: fmt.Sprint(i)}, 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	for _, f := range futures {
		requireScored(t, f)
	}
	cancel()
	first := ""
	for r := range results {
		first = r.ID
		break // who has seen enough reads no more
	}
	require.Equal(t, "0", first)
	n := 1
	for range results {
		n++
	}
	require.Equal(t, kept, n)
}

func TestTheLatestComplaintsOfAServerAreKept(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	conn := within(t, g.met)
	for i := range 20 {
		conn.say(&wire.Error{Code: rewards.Malformed, Message: fmt.Sprint("complaint ", i)})
	}
	requireScored(t, submitOne(t, c, "x")) // its result comes behind them
	problems := c.Problems()
	require.Len(t, problems, 16)
	require.ErrorContains(t, problems[0], "complaint 4")
	require.ErrorIs(t, problems[15], rewards.Malformed)
	require.ErrorContains(t, problems[15], "complaint 19")
}

func TestASampleThatIsRefusedTwiceForWantOfCreditIsSentOnceMore(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	conn := within(t, g.met)
	f := submitOne(t, c, "x")
	require.Equal(t, "x", within(t, g.got))
	g.scores(nil)
	conn.overCredit("x")
	conn.overCredit("x")
	conn.say(&wire.Credit{Samples: 101, Bytes: 1 << 21})
	requireScored(t, f)
	requireScored(t, submitOne(t, c, "y"))
	require.Equal(t, "x", within(t, g.got))
	require.Equal(t, "y", within(t, g.got))
}

func TestAComplaintThatNamesASampleEndsIt(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores(func(c *fakeConn, id string) {
		c.say(&wire.Error{Code: rewards.TooLarge, Message: "a frame of 1 TB", ID: id})
	})
	c := dialFake(t, g)
	res, err := submitOne(t, c, "x").Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, rewards.Rejected, res.Outcome)
	require.Equal(t, []rewards.ComponentError{{Class: rewards.TooLarge, Message: "a frame of 1 TB"}}, res.Errors)
	require.Empty(t, c.Problems())
}
