package client_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// A gateway forgets what is confirmed: a sample that comes behind the confirmation of its
// own result is a new one to it, and is scored and handed out a second time. After a lost
// connection results come while their samples are being sent again, and what is said in
// between overtakes a sample that waits for a server that reads slowly.
func TestAConfirmationDoesNotOvertakeASampleThatIsSentAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const samples = 64 // as many as come between two confirmations
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	confirmed := make(chan uint64, 16)
	g.confirmed = func(seq uint64) { confirmed <- seq }
	c := dialFake(t, g)
	within(t, g.met)
	var futures []*client.Future
	for i := range samples {
		f, err := c.Submit(t.Context(), &rewards.Sample{ID: fmt.Sprint(i), Prompt: strings.Repeat("x", i)}, 0)
		require.NoError(t, err)
		futures = append(futures, f)
		require.Equal(t, fmt.Sprint(i), within(t, g.got))
	}
	var ids []string // so many that they do not fit into what TCP buffers
	for i := range 60_000 {
		ids = append(ids, fmt.Sprintf("%0100d", i))
	}
	require.NoError(t, c.Declare(wire.Step{Step: 1, IDs: ids}))
	for told := 0; told < len(ids); {
		told += len(within(t, g.told).IDs)
	}

	g.scores(func(_ *fakeConn, id string) {
		assert.Empty(t, confirmed, "the result of %s was confirmed before it came again", id)
	})
	release := make(chan struct{})
	g.greeted = func(*fakeConn) { <-release } // it reads nothing of what is said again
	g.cut(false)
	var conn *fakeConn
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for conn = range g.conns {
			return c.Queued() == samples-1 // the smallest is on its way
		}
		return false
	}, 20*time.Second, time.Millisecond)
	for i := range samples {
		conn.say(&wire.Result{Type: "result", ID: fmt.Sprint(i), Seq: uint64(i + 1), Outcome: rewards.Scored, RewardScore: new(1.0)})
	}
	for _, f := range futures {
		requireScored(t, f)
	}
	close(release)
	require.Equal(t, "0", within(t, g.got))
	require.Equal(t, uint64(samples), within(t, confirmed), "at the latest after a second")
}
