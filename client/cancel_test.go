package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

func requireCancelled(t *testing.T, f *client.Future) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := f.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, rewards.OutcomeCancelled, res.Outcome, "%s: %v", f.ID, res.Errors)
	require.Nil(t, res.RewardScore)
}

func TestASampleThatIsTakenBackIsCancelledAndItsScorerIsTold(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	hang := hashComponent()
	hang.Scorer = rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		if s.ID == "y" {
			return rewards.Score{Value: 1}, nil
		}
		begun <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return rewards.Score{}, ctx.Err()
	})
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{hang}, Timeout: time.Minute})
	require.NoError(t, err)
	n := newNode(t, rig.Options{Workers: 1, Profiles: map[string]*rewards.Manager{"": m}})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	f := submitOne(t, c, "x")
	within(t, begun)
	require.NoError(t, c.Cancel("x", "nobody"))
	requireCancelled(t, f)
	within(t, ended)
	requireScored(t, submitOne(t, c, "y"))
	require.NoError(t, c.Cancel("x", "y"), "what has its result is passed over")
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Cancel("x"), client.ErrClosed)
}

func TestASampleThatWasNeverSentIsTakenBackWithoutTheServer(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	conn := within(t, g.met)
	big := func(id string) *client.Future { // beside another one it is beyond the credit
		f, err := c.Submit(t.Context(), rig.Sample(id, 3*200_000), 0)
		require.NoError(t, err)
		return f
	}
	sent, queued, next := big("sent"), big("queued"), big("next")
	require.Equal(t, "sent", within(t, g.got))
	require.NoError(t, c.Cancel("queued"))
	requireCancelled(t, queued)
	g.scores(nil)
	conn.scored("sent")
	requireScored(t, sent)
	requireScored(t, next)
	require.Equal(t, "next", within(t, g.got))
	require.Empty(t, g.back)
	g.scores((*fakeConn).pending)
	again := submitOne(t, c, "queued") // its id is free
	require.Equal(t, "queued", within(t, g.got))
	require.NoError(t, c.Cancel("queued", "queued"))
	requireCancelled(t, again)
	require.Equal(t, []string{"queued"}, within(t, g.back))
	require.LessOrEqual(t, len(g.back), 1, "it is said once more where the write of the sample had not returned")
}

func TestALongListOfIDsIsTakenBackInMessagesThatAServerTakes(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	var ids []string
	var futures []*client.Future
	for i := range 90 {
		ids = append(ids, fmt.Sprint(i, strings.Repeat("<", 500)))
		futures = append(futures, submitOne(t, c, ids[i]))
	}
	for range ids {
		within(t, g.got)
	}
	require.NoError(t, c.Cancel(ids...))
	var told []string
	for len(told) < len(ids) {
		some := within(t, g.back)
		b, err := wire.EncodeControl(&wire.Cancel{IDs: some})
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), 32<<10)
		told = append(told, some...)
	}
	require.Equal(t, ids, told)
	for _, f := range futures {
		requireCancelled(t, f)
	}
}

// The server may have the sample and score it: it is told once it can be, and the client
// hands out one result.
func TestWhatIsTakenBackWhileTheConnectionIsDownIsCancelledOverTheNext(t *testing.T) {
	t.Parallel()
	for name, forgets := range map[string]bool{"the same server": false, "a server that was started anew": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFakeGateway(t, nil)
			g.scores((*fakeConn).pending)
			p := newProxy(t, strings.TrimPrefix(g.url, "ws://"), 1<<30)
			c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r"})
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			within(t, g.met)
			f := submitOne(t, c, "x")
			require.Equal(t, "x", within(t, g.got))
			p.assign(unheard(t))
			g.cut(forgets)
			awaitDraining(t, c) // the connection is gone
			require.NoError(t, c.Cancel("x"))
			p.assign(strings.TrimPrefix(g.url, "ws://"))
			requireCancelled(t, f)
			if forgets {
				require.Empty(t, g.got, "nobody has it, and it is not sent again")
				require.Empty(t, g.back)
				return
			}
			require.Equal(t, []string{"x"}, within(t, g.back))
		})
	}
}

func TestASampleThatIsRefusedForWantOfCreditIsNotSentAgainOnceItIsTakenBack(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores((*fakeConn).pending)
	c := dialFake(t, g)
	conn := within(t, g.met)
	f := submitOne(t, c, "x")
	require.Equal(t, "x", within(t, g.got))
	g.mu.Lock() // the server hears of nothing meanwhile
	require.NoError(t, c.Cancel("x"))
	conn.overCredit("x")
	requireCancelled(t, f)
	g.mu.Unlock()
	g.scores(nil)
	requireScored(t, submitOne(t, c, "y"))
	require.Equal(t, "y", within(t, g.got))
}
