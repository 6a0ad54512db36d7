package client_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// Several gateways, and a first connection to one that is being stopped.

// failover is what the client promises for the way to the next gateway, with as much again for
// a busy machine.
const failover = 10 * time.Second

// dialAll connects to the first of some gateways.
func dialAll(t *testing.T, cfg client.Config, gateways ...*fakeGateway) *client.Client {
	t.Helper()
	urls := make([]string, len(gateways))
	for i, g := range gateways {
		urls[i] = g.url
	}
	cfg.URL, cfg.Run = strings.Join(urls, ", "), "r"
	c, err := client.Dial(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// stopped is what a gateway answers that is being stopped; it counts.
func stopped(dialled *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		dialled.Add(1)
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func TestAFirstConnectionWaitsForTheSuccessorOfAServerThatIsBeingStopped(t *testing.T) {
	t.Parallel()
	var dialled atomic.Int64
	p := newProxy(t, strings.TrimPrefix(answering(t, stopped(&dialled)), "ws://"), 1<<30)
	connected := make(chan *client.Client, 1)
	go func() { // ends with the connection
		c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r"})
		if err != nil {
			t.Error(err)
		}
		connected <- c
	}()
	for next := range 2 {
		require.Eventually(t, func() bool { return dialled.Load() > int64(next) }, failover, time.Millisecond)
	}
	p.assign(unheard(t)) // nobody listens while the next one starts
	next := newNode(t, rig.Options{Workers: 1, Profiles: profile(t, hashComponent())})
	p.assign(strings.TrimPrefix(next.url, "ws://"))
	c := within(t, connected)
	require.NotNil(t, c)
	requireScored(t, submitOne(t, c, "x"))
	require.NoError(t, c.Close())
}

func TestAFirstConnectionWaitsForTheSuccessorOfAServerThatRefusesTheHelloAsDraining(t *testing.T) {
	t.Parallel()
	now := newNode(t, rig.Options{Workers: 1, Profiles: profile(t, hashComponent())})
	require.NoError(t, now.Manager.Drain(t.Context()))
	p := newProxy(t, strings.TrimPrefix(now.url, "ws://"), 1<<30)
	_, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r", DialTimeout: 300 * time.Millisecond})
	require.ErrorIs(t, err, rewards.Draining)
	require.ErrorContains(t, err, "no other server accepted the connection within 300ms")
	next := newNode(t, rig.Options{Workers: 1, Profiles: profile(t, hashComponent())})
	switched := time.AfterFunc(200*time.Millisecond, func() { p.assign(strings.TrimPrefix(next.url, "ws://")) })
	defer switched.Stop()
	c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r"})
	require.NoError(t, err)
	requireScored(t, submitOne(t, c, "x"))
	require.NoError(t, c.Close())
}

func TestAFirstConnectionGivesAServerUpThatIsBeingStoppedForGood(t *testing.T) {
	t.Parallel()
	var dialled atomic.Int64
	url := answering(t, stopped(&dialled))
	_, err := client.Dial(t.Context(), client.Config{URL: url, Run: "r", DialTimeout: 600 * time.Millisecond})
	require.ErrorContains(t, err, "no other server accepted the connection within 600ms")
	require.ErrorContains(t, err, "503")
	require.Greater(t, dialled.Load(), int64(1))
	require.Less(t, dialled.Load(), int64(15), "it is not dialled without a pause")

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	begun := time.Now()
	_, err = client.Dial(ctx, client.Config{URL: url, Run: "r", DialTimeout: time.Minute})
	require.Error(t, err)
	require.Less(t, time.Since(begun), failover, "the caller has left")

	url = answering(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	begun = time.Now()
	_, err = client.Dial(t.Context(), client.Config{URL: url, Run: "r", DialTimeout: time.Minute})
	require.ErrorContains(t, err, "503")
	require.Less(t, time.Since(begun), failover, "it did not say that it will be back")
}

func TestTheFirstConnectionIsToTheFirstGatewayThatTakesTheClient(t *testing.T) {
	t.Parallel()
	var dialled atomic.Int64
	g := newFakeGateway(t, nil)
	silent := newProxy(t, "192.0.2.1:9", 1<<30) // accepts, and reaches nobody
	for name, other := range map[string]string{
		"refuses":          "ws://" + unheard(t),
		"is being stopped": answering(t, stopped(&dialled)),
		"says nothing":     silent.url,
		"wants a token":    answering(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := client.Dial(t.Context(), client.Config{URL: other + "," + g.url, Run: "r"})
			require.NoError(t, err)
			requireScored(t, submitOne(t, c, "x"))
			require.NoError(t, c.Close())
		})
	}
}

func TestAListOfGatewaysThatNobodyCanUseIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "ws://127.0.0.1:1,", " , ws://127.0.0.1:1"} {
		_, err := client.Dial(t.Context(), client.Config{URL: url, Run: "r"})
		require.ErrorContains(t, err, "with commas between")
	}
	_, err := client.Dial(t.Context(), client.Config{URL: "ws://127.0.0.1:1", Run: "r", Silence: -1})
	require.ErrorContains(t, err, "Silence is -1ns, want more than 0")
	one, two := unheard(t), unheard(t)
	_, err = client.Dial(t.Context(), client.Config{URL: "ws://" + one + ",ws://" + two, Run: "r"})
	for _, url := range []string{one, two} {
		require.ErrorContains(t, err, url, "each is named with its reason")
	}
}

// What ends a gateway for its client; the first of two has two samples in flight then.
func TestWhatHasNoResultGoesToTheNextGatewayOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for name, end := range map[string]func(t *testing.T, p *proxy, g *fakeGateway, c *fakeConn){
		"it is gone": func(t *testing.T, p *proxy, g *fakeGateway, _ *fakeConn) {
			t.Helper()
			p.assign(unheard(t))
			g.cut(true)
		},
		"it drains and is gone": func(t *testing.T, p *proxy, g *fakeGateway, c *fakeConn) {
			t.Helper()
			c.say(&wire.Draining{})
			p.assign(unheard(t))
			g.cut(true)
		},
		"it is silent": func(t *testing.T, _ *proxy, g *fakeGateway, c *fakeConn) {
			t.Helper()
			stalled := make(chan struct{})
			t.Cleanup(func() { close(stalled) })
			g.scores(func(*fakeConn, string) { <-stalled }) // its reader stands still
		},
		"it drains and hangs": func(t *testing.T, _ *proxy, g *fakeGateway, c *fakeConn) {
			t.Helper()
			c.say(&wire.Draining{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := newFakeGateway(t, nil), newFakeGateway(t, nil)
			one.scores((*fakeConn).pending)
			p := newProxy(t, strings.TrimPrefix(one.url, "ws://"), 1<<30)
			c := dialAll(t, client.Config{}, &fakeGateway{url: p.url}, two)
			results := c.Results(t.Context())
			first := within(t, one.met)
			a, b := submitOne(t, c, "a"), submitOne(t, c, "b")
			within(t, one.got)
			within(t, one.got)
			first.scored("a")
			requireScored(t, a)
			end(t, p, one, first.fakeConn)
			if strings.Contains(name, "drains") {
				awaitDraining(t, c)
			}
			begun := time.Now()
			last := submitOne(t, c, "last")
			second := within(t, two.met)
			require.Nil(t, second.hello.Resume, "it knows nothing of the former's session")
			requireScored(t, b)
			requireScored(t, last)
			require.Less(t, time.Since(begun), failover)
			require.ElementsMatch(t, []string{"b", "last"}, []string{within(t, two.got), within(t, two.got)}, "what was answered is not sent again")
			require.NoError(t, c.Close())
			seen := map[string]int{}
			for r := range results {
				seen[r.ID]++
			}
			require.Equal(t, map[string]int{"a": 1, "b": 1, "last": 1}, seen)
		})
	}
}

func TestAGatewayWhoseConnectionWasCutIsDialledBeforeTheNext(t *testing.T) {
	t.Parallel()
	one, two := newFakeGateway(t, nil), newFakeGateway(t, nil)
	c := dialAll(t, client.Config{}, one, two)
	within(t, one.met)
	requireScored(t, submitOne(t, c, "x"))
	one.scores((*fakeConn).pending)
	f := submitOne(t, c, "y")
	within(t, one.got)
	within(t, one.got)
	one.scores(nil)
	one.cut(false)
	require.Equal(t, &wire.Resume{Session: "s", Confirmed: 1}, within(t, one.met).hello.Resume)
	requireScored(t, f)
	require.Empty(t, two.met)
}

func TestAGatewayThatEndsEveryConnectionAtOnceIsNotDialledAgainBeforeTheOthers(t *testing.T) {
	t.Parallel()
	one, two := newFakeGateway(t, nil), newFakeGateway(t, nil)
	one.scores(func(c *fakeConn, _ string) { go one.cut(false) })
	c := dialAll(t, client.Config{}, one, two)
	requireScored(t, submitOne(t, c, "x"))
	require.Len(t, one.met, 1)
}

func TestAClientThatComesBackToAGatewayBeginsANewSessionThere(t *testing.T) {
	t.Parallel()
	one, two := newFakeGateway(t, nil), newFakeGateway(t, nil)
	gateways := []*fakeGateway{one, two}
	c := dialAll(t, client.Config{}, gateways...)
	for i := range 5 {
		at := within(t, gateways[i%2].met)
		require.Nil(t, at.hello.Resume)
		require.Zero(t, at.hello.Epoch)
		requireScored(t, submitOne(t, c, "x"))
		at.say(&wire.Draining{})
	}
}

func TestAStepThatTheFormerGatewayHadHeardOfIsLostAtTheNext(t *testing.T) {
	t.Parallel()
	one, two := newFakeGateway(t, nil), newFakeGateway(t, nil)
	one.scores((*fakeConn).pending)
	c := dialAll(t, client.Config{}, one, two)
	first := within(t, one.met)
	require.NoError(t, c.Declare(wire.Step{Step: 7, Expected: 2}))
	require.Equal(t, int64(7), within(t, one.told).Step)
	old := submitOne(t, c, "old")
	within(t, one.got)
	answer := ask(t, c, wire.Fetch{Step: 7, WaitMS: 60_000})
	within(t, one.took)
	first.say(&wire.Draining{})
	awaitDraining(t, c)
	require.NoError(t, c.Declare(wire.Step{Step: 8, Expected: 1})) // nobody has heard of it
	one.cut(true)
	within(t, two.met)
	requireScored(t, old)
	require.ErrorIs(t, within(t, answer).err, client.ErrStepLost)
	require.Equal(t, int64(8), within(t, two.told).Step)
	two.answers(func(c *fakeConn, take *wire.Fetch) { c.say(rows(take, 2, true)) })
	_, err := c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.ErrorIs(t, err, client.ErrStepLost)
	require.NoError(t, c.Declare(wire.Step{Step: 7, Expected: 2}), "declared again, it is the next one's")
	require.Equal(t, int64(7), within(t, two.told).Step)
	r, err := c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.NoError(t, err)
	require.True(t, r.Done)
}

func TestASampleThatWasTakenBackIsNotSentToTheNextGateway(t *testing.T) {
	t.Parallel()
	one, two := newFakeGateway(t, nil), newFakeGateway(t, nil)
	one.scores((*fakeConn).pending)
	c := dialAll(t, client.Config{}, one, two)
	first := within(t, one.met)
	f, kept := submitOne(t, c, "x"), submitOne(t, c, "y")
	within(t, one.got)
	within(t, one.got)
	first.say(&wire.Draining{})
	awaitDraining(t, c)
	one.cut(true)
	_ = c.Cancel("x") // over whichever connection there is
	requireScored(t, kept)
	res, err := f.Wait(t.Context())
	require.NoError(t, err)
	require.Contains(t, []rewards.Outcome{rewards.OutcomeCancelled, rewards.Scored}, res.Outcome)
}

func TestAllGatewaysGoneFailWhatWaitsWithAReasonForEach(t *testing.T) {
	t.Parallel()
	one, two := newFakeGateway(t, nil), newFakeGateway(t, nil)
	one.scores((*fakeConn).pending)
	p, q := newProxy(t, strings.TrimPrefix(one.url, "ws://"), 1<<30), newProxy(t, strings.TrimPrefix(two.url, "ws://"), 1<<30)
	c := dialAll(t, client.Config{ReconnectFor: 500 * time.Millisecond}, &fakeGateway{url: p.url}, &fakeGateway{url: q.url})
	f := submitOne(t, c, "x")
	within(t, one.got)
	p.assign(unheard(t))
	q.assign(unheard(t))
	one.cut(true)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := f.Wait(ctx)
	require.ErrorIs(t, err, client.ErrLost)
	for _, url := range []string{p.url, q.url} {
		require.ErrorContains(t, err, url)
	}
}
