package client_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// The server lets 1 MiB in flight.
func TestAClientSaysWhatWaitsForCreditAndHandsBackWhatItDoesNotNeed(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	conn := within(t, g.met)
	const large = 3 * 136_000
	n, size := 0, int64(0)
	submit := func(bytes int) *client.Future {
		sample := rig.Sample(fmt.Sprint(n), bytes)
		msg, err := wire.Encode(sample, wire.Options{})
		require.NoError(t, err)
		size = msg.Size()
		n++
		f, err := c.Submit(t.Context(), sample, 0)
		require.NoError(t, err)
		return f
	}
	for range 3 {
		submit(large)
	}
	want, ok := within(t, g.flow).(*wire.Want)
	require.True(t, ok)
	require.Equal(t, &wire.Want{Bytes: 3*size - 1<<20}, want, "one sample waits, and most of a third is granted")
	for range 3 { // it says so again when twice as many wait
		submit(large)
	}
	want, ok = within(t, g.flow).(*wire.Want)
	require.True(t, ok)
	require.GreaterOrEqual(t, want.Bytes, 5*size-1<<20)
	conn.say(&wire.Reclaim{})
	require.Equal(t, &wire.Yield{}, within(t, g.flow), "what waits needs all of it")
	conn.say(&wire.Credit{Samples: 200, Bytes: 8 << 20})
	for range n {
		within(t, g.got)
	}
	for done := false; !done; { // it may have said once more what it wants before the credit came
		conn.say(&wire.Reclaim{})
		switch m := within(t, g.flow).(type) {
		case *wire.Yield:
			require.Equal(t, &wire.Yield{Bytes: 8<<20 - 6*size}, m)
			done = true
		case *wire.Want:
			done = false
		}
	}
	submit(large)
	for {
		if m, ok := within(t, g.flow).(*wire.Want); ok {
			require.Equal(t, &wire.Want{Bytes: size}, m, "what it has handed back is gone")
			break
		}
	}
}

// A server that has taken credit back refuses what comes of it. The client asks for new credit
// and sends the sample again.
func TestAClientWhoseCreditWasTakenBackAsksForMore(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).overCredit)
	c := dialFake(t, g)
	conn := within(t, g.met)
	f := submitOne(t, c, "x")
	require.Equal(t, "x", within(t, g.got))
	want, ok := within(t, g.flow).(*wire.Want)
	require.True(t, ok)
	require.Positive(t, want.Bytes, "although it believes that it has credit")
	g.scores(nil)
	conn.say(&wire.Credit{Samples: 100, Bytes: 1 << 20}) // a repeat says that it may try again
	requireScored(t, f)
}
