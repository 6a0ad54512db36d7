package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// What a client remembers of steps has bounds: those of 256 steps, and 64 declarations.

func TestTheLatestDeclarationsAreMadeAgainAndOlderStepsForgotten(t *testing.T) {
	t.Parallel()
	const steps, declared, known = 300, 64, 256
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	conn := within(t, g.met)
	require.ErrorIs(t, c.EndOfStep("test", 1), wire.ErrValue)
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "of step 0"}, 0)
	require.NoError(t, err)
	for step := range int64(steps) {
		require.NoError(t, c.Declare(wire.Step{Step: step, Expected: 1}))
		require.Equal(t, step, within(t, g.told).Step)
	}
	conn.scored("of step 0")
	requireScored(t, f) // of a step that is forgotten
	g.cut(false)
	within(t, g.met)
	for step := int64(steps - declared); step < steps; step++ {
		require.Equal(t, step, within(t, g.told).Step)
	}
	g.answers(func(c *fakeConn, take *wire.Fetch) { c.say(rows(take, 1, true)) })
	g.cut(true)
	within(t, g.met)
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: steps - known})
	require.ErrorIs(t, err, client.ErrStepLost)
	require.Empty(t, g.told)
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: 0})
	require.NoError(t, err, "whether it was heard of nobody knows any more: the server is asked")
}

func TestAServerThatDoesNotWaitIsNotAskedWithoutEnd(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, func(c *fakeConn, take *wire.Fetch) {
		c.say(&wire.Rewards{Req: take.Req, Split: rewards.Train, Step: take.Step, State: wire.StepOpen, Chunk: take.Chunk})
	})
	c := dialFake(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 350*time.Millisecond)
	defer cancel()
	var errs []error
	for _, err := range c.Chunks(ctx, wire.Fetch{Step: 7}) {
		errs = append(errs, err)
	}
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], context.DeadlineExceeded)
	require.ErrorContains(t, errs[0], "rewards of step 7 (train), chunk 0")
	require.LessOrEqual(t, len(g.took), 4, "one question in 100 ms")
}

func TestAFailedStepSaysAtLeastWhereNotEveryoneIsNamed(t *testing.T) {
	t.Parallel()
	var without []wire.Missing
	g := newFakeGateway(t, func(c *fakeConn, take *wire.Fetch) {
		c.say(&wire.Rewards{
			Req: take.Req, Split: rewards.Train, Step: take.Step, State: wire.StepFailed, Done: true, Arrived: 2000, Missing: 256 - int64(len(without)), Without: without,
		})
	})
	c := dialFake(t, g)
	_, err := c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.ErrorIs(t, err, client.ErrStepFailed)
	require.ErrorContains(t, err, "deadline: 256 of 2000 samples have no result")
	for i := range 256 {
		without = append(without, wire.Missing{ID: fmt.Sprint(i)})
	}
	without[0] = wire.Missing{Stage: "queued"}
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.ErrorContains(t, err, `deadline: at least 256 of 2000 samples have no result: a sample (queued), "1", "2"`)
	require.ErrorContains(t, err, "and 248 more")
}
