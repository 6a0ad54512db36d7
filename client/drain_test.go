package client_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// What a client does at a gateway that is being stopped.

// unheard is an address that refuses connections.
func unheard(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func submitOne(t *testing.T, c *client.Client, id string) *client.Future {
	t.Helper()
	f, err := c.Submit(t.Context(), rig.Sample(id, 300), 0)
	require.NoError(t, err)
	return f
}

func requireScored(t *testing.T, f *client.Future) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := f.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, rewards.Scored, res.Outcome, "%s: %v", f.ID, res.Errors)
}

// Gateways are restarted one after the other behind one address, at which nobody listens
// in between, while samples keep coming.
func TestARollingRestartLosesAndRefusesNoSample(t *testing.T) {
	t.Parallel()
	const samples, restarts = 600, 4
	slow := hashComponent()
	slow.Scorer = rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		select {
		case <-time.After(3 * time.Millisecond):
		case <-ctx.Done():
			return rewards.Score{}, ctx.Err()
		}
		return rewards.Score{Value: rig.Hash(s)}, nil
	})
	start := func() *node {
		return newNode(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 4}, Profiles: profile(t, slow)})
	}
	now, nobody := start(), unheard(t)
	p := newProxy(t, strings.TrimPrefix(now.url, "ws://"), 1<<30)
	c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r"})
	require.NoError(t, err)
	seen := map[string]int{}
	var reader sync.WaitGroup
	results := c.Results(t.Context())
	reader.Go(func() {
		for r := range results {
			seen[r.ID]++
		}
	})
	futures := make([]*client.Future, samples)
	filled := make(chan int, samples)
	var sender sync.WaitGroup
	sender.Go(func() {
		defer close(filled)
		for i := range futures {
			f, err := c.Submit(t.Context(), rig.Sample(fmt.Sprint(i), 3*(100+i)), 0)
			if err != nil {
				t.Error(err)
				return
			}
			futures[i] = f
			filled <- i
			if i%8 == 0 { // they keep coming
				<-time.After(2 * time.Millisecond)
			}
		}
	})
	for i := range filled {
		if i%(samples/(restarts+1)) != samples/(restarts+1)-1 {
			continue
		}
		next := start()
		p.assign(nobody)
		require.NoError(t, now.Manager.Drain(t.Context()))
		now.Stop()
		p.assign(strings.TrimPrefix(next.url, "ws://"))
		now = next
	}
	sender.Wait()
	require.False(t, t.Failed())
	for i, f := range futures {
		requireScored(t, f)
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.InDelta(t, rig.Hash(rig.Sample(fmt.Sprint(i), 3*(100+i))), *res.RewardScore, 0)
	}
	require.Empty(t, c.Problems())
	require.NoError(t, c.Close())
	reader.Wait()
	require.Len(t, seen, samples)
	for id, times := range seen {
		require.Equal(t, 1, times, id)
	}
}

func TestAServerThatDrainsAndHangsIsLeftOnceItHasAnsweredWhatItHas(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores(func(*fakeConn, string) {}) // later
	c := dialFake(t, g)
	first := within(t, g.met)
	a, b := submitOne(t, c, "a"), submitOne(t, c, "b")
	within(t, g.got)
	within(t, g.got)
	first.say(&wire.Draining{})
	first.scored("a")
	requireScored(t, a)
	last := submitOne(t, c, "last")
	f, err := c.Submit(t.Context(), rig.Sample("own deadline", 300), time.Minute)
	require.NoError(t, err)
	g.scores(nil)
	first.scored("b") // the server says nothing more, and does not close
	second := within(t, g.met)
	require.Equal(t, &wire.Resume{Session: "s", Confirmed: 2}, second.hello.Resume)
	for _, f := range []*client.Future{b, last, f} {
		requireScored(t, f)
	}
	require.ElementsMatch(t, []string{"last", "own deadline"}, []string{within(t, g.got), within(t, g.got)}, "nothing goes twice")
	require.NotSame(t, first.fakeConn, second.fakeConn)
}

func TestAnIdleClientLeavesADrainingServerAtOnce(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	first := within(t, g.met)
	first.say(&wire.Draining{})
	within(t, g.met)
	requireScored(t, submitOne(t, c, "x"))
}

func TestARefusalForDrainingIsNoResultAlthoughTheServerDidNotSayThatItDrains(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*fakeConn, string){
		"result": (*fakeConn).refused,
		"numbered result": func(c *fakeConn, id string) {
			c.say(&wire.Result{
				Type: "result", ID: id, Seq: c.seq.Add(1), Outcome: rewards.Rejected, Errors: []rewards.ComponentError{{Class: rewards.Draining}},
			})
		},
		"error": func(c *fakeConn, id string) { c.say(&wire.Error{Code: rewards.Draining, Message: "stopping", ID: id}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFakeGateway(t, nil)
			g.scores(func(c *fakeConn, id string) {
				g.scores(nil)
				refuse(c, id)
			})
			c := dialFake(t, g)
			within(t, g.met)
			results := c.Results(t.Context())
			f := submitOne(t, c, "x")
			requireScored(t, f)
			if name == "numbered result" {
				require.NotZero(t, within(t, g.met).hello.Resume.Confirmed, "its number is confirmed")
			}
			require.NoError(t, c.Close())
			n := 0
			for range results {
				n++
			}
			require.Equal(t, 1, n, "one result of the sample, the last")
		})
	}
}

// A draining gateway lets a client resume its session, and says again that it drains.
func TestAServerThatDrainsForGoodIsGivenUpAsOneThatIsGone(t *testing.T) {
	t.Parallel()
	for _, says := range []bool{true, false} {
		t.Run(fmt.Sprintf("says so: %v", says), func(t *testing.T) {
			t.Parallel()
			g := newFakeGateway(t, nil)
			g.drains = says // before anybody connects
			g.scores((*fakeConn).refused)
			c, err := client.Dial(t.Context(), client.Config{URL: g.url, Run: "r", ReconnectFor: 600 * time.Millisecond})
			require.NoError(t, err)
			f := submitOne(t, c, "x")
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err = f.Wait(ctx)
			require.ErrorIs(t, err, client.ErrLost)
			require.ErrorContains(t, err, "draining")
			require.Less(t, len(g.met), 15, "it is not dialled without a pause")
			_, err = c.Submit(t.Context(), rig.Sample("y", 300), 0)
			require.ErrorIs(t, err, client.ErrLost)
			require.NoError(t, c.Close())
		})
	}
}

func TestResultsThatADrainingServerStillHasAreTakenAlong(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores(func(*fakeConn, string) {})
	c := dialFake(t, g)
	within(t, g.met)
	f := submitOne(t, c, "x")
	within(t, g.got)
	g.mu.Lock()
	g.drains = true
	g.mu.Unlock()
	g.scores((*fakeConn).refused)
	g.cut(false)
	within(t, g.met).scored("x") // behind the welcome and the word of draining
	requireScored(t, f)
}

func TestAClientThatWaitsAtADrainingServerOrForTheNextCanBeClosed(t *testing.T) {
	t.Parallel()
	t.Run("for a result", func(t *testing.T) {
		t.Parallel()
		g := newFakeGateway(t, nil)
		g.scores(func(*fakeConn, string) {})
		c := dialFake(t, g)
		f := submitOne(t, c, "x")
		within(t, g.got)
		within(t, g.met).say(&wire.Draining{})
		queued := submitOne(t, c, "y")
		require.NoError(t, c.Close())
		for _, f := range []*client.Future{f, queued} {
			_, err := f.Wait(t.Context())
			require.ErrorIs(t, err, client.ErrClosed)
		}
	})
	t.Run("for the next server", func(t *testing.T) {
		t.Parallel()
		g := newFakeGateway(t, nil)
		p := newProxy(t, strings.TrimPrefix(g.url, "ws://"), 1<<30)
		c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r"})
		require.NoError(t, err)
		p.assign(unheard(t))
		ended := make(chan struct{})
		g.scores(func(c *fakeConn, id string) {
			c.refused(id)
			close(ended)
		})
		f := submitOne(t, c, "x")
		within(t, ended)
		awaitDraining(t, c)
		require.NoError(t, c.Close())
		_, err = f.Wait(t.Context())
		require.ErrorIs(t, err, client.ErrClosed)
	})
}

func TestAStepThatBeginsWhileAServerDrainsIsTheNextOnes(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	g.scores(func(*fakeConn, string) {})
	c := dialFake(t, g)
	first := within(t, g.met)
	old := submitOne(t, c, "old")
	within(t, g.got)
	g.answers(func(c *fakeConn, take *wire.Fetch) { c.say(rows(take, 1, true)) })
	_, err := c.Rewards(t.Context(), wire.Fetch{Step: 6})
	require.NoError(t, err)
	first.say(&wire.Draining{})
	awaitDraining(t, c)
	require.NoError(t, c.Declare(wire.Step{Step: 7, Expected: 1}))
	s := rig.Sample("new", 300)
	s.Step = 7
	f, err := c.Submit(t.Context(), s, 0)
	require.NoError(t, err)
	answer := ask(t, c, wire.Fetch{Step: 7})
	r, err := c.Rewards(t.Context(), wire.Fetch{Step: 6}) // which it had heard of
	require.NoError(t, err)
	require.True(t, r.Done)
	require.Empty(t, g.told)
	g.mu.Lock()
	g.forget = true // it is started anew
	g.mu.Unlock()
	g.scores(nil)
	first.scored("old")
	requireScored(t, old)
	requireScored(t, f)
	require.NoError(t, within(t, answer).err)
	require.Equal(t, int64(7), within(t, g.told).Step)
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: 6})
	require.ErrorIs(t, err, client.ErrStepLost, "what the former had heard of")
}

func TestAQuestionKeepsTheClientAtADrainingServerUntilASampleWaits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	for _, sampleWaits := range []bool{false, true} {
		at := within(t, g.met)
		answer := ask(t, c, wire.Fetch{Step: 7, WaitMS: 60_000})
		asked := within(t, g.took)
		at.say(&wire.Draining{})
		awaitDraining(t, c)
		if sampleWaits {
			g.answers(func(c *fakeConn, take *wire.Fetch) { c.say(rows(take, 2, true)) }) // the next one does
			requireScored(t, submitOne(t, c, "x"))
		} else {
			at.say(rows(asked, 2, true))
		}
		require.NoError(t, within(t, answer).err)
	}
	require.Len(t, g.met, 1)
}

// awaitDraining returns when the client has heard that the server drains, or has left it.
func awaitDraining(t *testing.T, c *client.Client) {
	t.Helper()
	require.Eventually(t, func() bool { return c.EndOfStep(rewards.Train, 99) != nil }, 20*time.Second, time.Millisecond)
}

// The handshake of closing is not waited for without end.
func TestAServerThatDrainsAndReadsNothingIsLeft(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	g := newFakeGateway(t, nil)
	stalled := make(chan struct{})
	t.Cleanup(func() { close(stalled) })
	g.scores(func(c *fakeConn, id string) {
		g.scores(nil)
		c.refused(id)
		<-stalled // its reader stands still
	})
	c := dialFake(t, g)
	requireScored(t, submitOne(t, c, "x"))
	require.Len(t, g.met, 2)
}
