package client_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// asked is a question in the making.
type asked struct {
	r   *wire.Rewards
	err error
}

// ask asks in the background.
func ask(t *testing.T, c *client.Client, take wire.Fetch) <-chan asked {
	t.Helper()
	ch := make(chan asked, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		r, err := c.Rewards(t.Context(), take)
		ch <- asked{r, err}
	})
	t.Cleanup(wg.Wait)
	return ch
}

func TestALongListOfIDsIsDeclaredInMessagesThatAServerTakes(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	var ids []string
	for i := range 2000 {
		ids = append(ids, fmt.Sprintf("%d <\"\u2028\x01é> %s", i, strings.Repeat("x", i%100)))
	}
	require.NoError(t, c.Declare(wire.Step{Step: 3, IDs: ids, DeadlineMS: 5000, OnDeadline: wire.DeadlineFail}))
	var got []string
	for len(got) < len(ids) {
		m := within(t, g.told)
		b, err := wire.EncodeControl(m)
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), 32<<10)
		require.Equal(t, int64(2000), m.Expected, "each message says the same: the latest counts")
		require.Equal(t, int64(5000), m.DeadlineMS)
		require.Equal(t, wire.DeadlineFail, m.OnDeadline)
		got = append(got, m.IDs...)
	}
	require.Equal(t, ids, got, "in order of the batch")

	require.ErrorContains(t, c.Declare(wire.Step{Step: 4, Expected: 1, IDs: []string{"a", "b"}}), "2 ids for 1 expected")
	require.ErrorContains(t, c.Declare(wire.Step{Step: 4, Expected: 1, IDs: []string{""}}), "id number 0")
	require.ErrorContains(t, c.Declare(wire.Step{Step: 4, Expected: 1, OnDeadline: "zero"}), `on_deadline "zero"`)
	require.Empty(t, g.told)
}

func TestADeclarationThatWasLostWithTheConnectionIsMadeAgain(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	require.NoError(t, c.Declare(wire.Step{Step: 1, Expected: 3, IDs: []string{"a", "b"}, DeadlineMS: 600_000}))
	require.NoError(t, c.Declare(wire.Step{Step: 1, Expected: 3, IDs: []string{"b", "c"}, DeadlineMS: 600_000}))
	require.NoError(t, c.Declare(wire.Step{Step: 2, Expected: 1}))
	for range 3 {
		within(t, g.told)
	}
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "only", Step: 2}, 0)
	require.NoError(t, err)
	_, err = f.Wait(t.Context())
	require.NoError(t, err)
	g.cut(false)
	m := within(t, g.told)
	assert.Equal(t, []string{"a", "b", "c"}, m.IDs)
	assert.LessOrEqual(t, m.DeadlineMS, int64(600_000), "what is left of it")
	assert.Greater(t, m.DeadlineMS, int64(500_000))
	g.answers(func(c *fakeConn, take *wire.Fetch) { c.say(rows(take, 1, true)) })
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: 1}) // behind all declarations
	require.NoError(t, err)
	require.Empty(t, g.told, "a step whose results are all here is over")
}

func TestChunksComeInOrderUntilTheLast(t *testing.T) {
	t.Parallel()
	polls := 0
	g := newFakeGateway(t, func(c *fakeConn, take *wire.Fetch) {
		if polls++; polls%2 == 1 { // not yet
			c.say(&wire.Rewards{Req: take.Req, Split: rewards.Train, Step: take.Step, State: wire.StepOpen, Chunk: take.Chunk, Expected: 8})
			return
		}
		c.say(rows(take, 2, take.Chunk == 4))
	})
	c := dialFake(t, g)
	var got []int64
	for r, err := range c.Chunks(t.Context(), wire.Fetch{Step: 7, Chunk: 1, Groups: 2, Order: wire.ByIndex}) {
		require.NoError(t, err)
		got = append(got, r.Chunk)
		require.Len(t, r.IDs, 2)
	}
	require.Equal(t, []int64{1, 2, 3, 4}, got)
	first := within(t, g.took)
	require.Equal(t, &wire.Fetch{Req: 1, Step: 7, Chunk: 1, Groups: 2, Order: wire.ByIndex, WaitMS: 30_000}, first)
	for _, err := range c.Chunks(t.Context(), wire.Fetch{Step: 7}) {
		require.NoError(t, err)
		break // who has seen enough asks no more
	}
}

func TestAQuestionOutlivesItsConnectionAndIsAskedAgainWithItsChunk(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	answer := ask(t, c, wire.Fetch{Step: 7, Chunk: 3, Groups: 2, WaitMS: 60_000})
	for range 3 {
		before := within(t, g.took)
		require.Equal(t, int64(3), before.Chunk)
		g.cut(false)
	}
	g.answers(func(c *fakeConn, take *wire.Fetch) {
		c.say(rows(take, 2, false))
		c.say(rows(take, 2, false)) // once more does no harm
	})
	g.cut(false)
	got := within(t, answer)
	require.NoError(t, got.err)
	require.Equal(t, int64(3), got.r.Chunk)
	require.Empty(t, c.Problems())
}

func TestAStepWhoseGatewayIsGoneIsLostUntilItIsDeclaredAnew(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	require.NoError(t, c.Declare(wire.Step{Step: 7, Expected: 2}))
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "a", Step: 8}, 0)
	require.NoError(t, err)
	_, err = f.Wait(t.Context())
	require.NoError(t, err)
	answer := ask(t, c, wire.Fetch{Step: 7, WaitMS: 60_000})
	within(t, g.took)
	g.answers(func(c *fakeConn, take *wire.Fetch) { c.say(rows(take, 2, true)) })
	g.cut(true)
	require.ErrorIs(t, within(t, answer).err, client.ErrStepLost, "the question that was open")
	for _, step := range []int64{7, 8} { // declared, submitted to
		_, err := c.Rewards(t.Context(), wire.Fetch{Step: step})
		require.ErrorIs(t, err, client.ErrStepLost)
		require.ErrorContains(t, err, fmt.Sprintf("step %d (train), chunk 0", step))
		require.ErrorContains(t, err, "declare and submit the step again")
	}
	r, err := c.Rewards(t.Context(), wire.Fetch{Step: 9})
	require.NoError(t, err, "a step of the new gateway")
	require.Len(t, r.IDs, 2)
	require.NoError(t, c.Declare(wire.Step{Step: 7, Expected: 2}))
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.NoError(t, err)
}

func TestAFailedStepNamesWhoIsMissing(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, func(c *fakeConn, take *wire.Fetch) {
		r := &wire.Rewards{
			Req: take.Req, Split: rewards.Train, Step: take.Step, State: wire.StepFailed, Done: true, Expected: 64, Arrived: 50, Pending: 2, Missing: 14,
			Without: []wire.Missing{
				{ID: "late", UID: "u", Stage: "running"}, {Index: new(int64(7)), Stage: "not arrived"}, {UID: "g", Members: 3, Stage: "not arrived"},
			},
		}
		for i := range 9 {
			r.Without = append(r.Without, wire.Missing{ID: fmt.Sprint("x", i), Stage: "queued"})
		}
		c.say(r)
	})
	c := dialFake(t, g)
	r, err := c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.ErrorIs(t, err, client.ErrStepFailed)
	require.NotNil(t, r)
	require.Equal(t, wire.StepFailed, r.State)
	require.EqualError(t, err, `client: rewards of step 7 (train), chunk 0: the step failed at its deadline: 16 of 64 samples have no result: `+
		`"late" (running), row 7 (not arrived), 3 of group "g" (not arrived), "x0" (queued), "x1" (queued), "x2" (queued), "x3" (queued), "x4" (queued) and 6 more`)
	n := 0
	for r, err := range c.Chunks(t.Context(), wire.Fetch{Step: 7}) {
		n++
		require.NotNil(t, r)
		require.ErrorIs(t, err, client.ErrStepFailed)
	}
	require.Equal(t, 1, n)
}

func TestARefusedQuestionFailsWithItsClass(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, func(c *fakeConn, take *wire.Fetch) {
		c.say(&wire.Error{Code: rewards.Expired, Message: "the rows of step 7 were forgotten", Req: take.Req})
	})
	c := dialFake(t, g)
	_, err := c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.ErrorIs(t, err, rewards.Expired)
	require.ErrorContains(t, err, "the rows of step 7 were forgotten")
	require.Empty(t, c.Problems())
	for _, bad := range []wire.Fetch{{Chunk: -1}, {Groups: -1}, {Order: "random"}, {WaitMS: 60_001}, {Split: "test"}} {
		_, err := c.Rewards(t.Context(), bad)
		require.ErrorIs(t, err, wire.ErrValue, "%+v is refused here", bad)
	}
}

func TestAnswersThatBreakTheProtocolFailTheirQuestionAndNotTheConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string // its number is %d
		want   string
	}{
		"columns of unequal length": {`{"type":"rewards","req":%d,"split":"train","step":7,"state":"open","chunk":0,"ready":true,"done":true,"groups":1,` +
			`"expected":1,"arrived":1,"scored":1,"failed":0,"pending":0,"missing":0,"ids":["a","b"],"indices":[0],"uids":[""],"rm_scores":[1],"rm_valid":[true],` +
			`"outcomes":["scored"]}`, "want equal lengths"},
		"a name nobody knows": {`{"type":"rewards","req":%d,"rewards":[1]}`, `"rewards"`},
		"another step": {`{"type":"rewards","req":%d,"split":"train","step":6,"state":"open","chunk":0,"ready":false,"done":false,"groups":0,` +
			`"expected":1,"arrived":1,"scored":1,"failed":0,"pending":0,"missing":0}`, "chunk 0 of step 6 (train)"},
		"another chunk": {`{"type":"rewards","req":%d,"split":"train","step":7,"state":"open","chunk":1,"ready":false,"done":false,"groups":0,` +
			`"expected":1,"arrived":1,"scored":1,"failed":0,"pending":0,"missing":0}`, "chunk 1 of step 7 (train)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFakeGateway(t, func(f *fakeConn, take *wire.Fetch) { _ = f.conn.Send(fmt.Appendf(nil, c.answer, take.Req)) })
			cl := dialFake(t, g)
			_, err := cl.Rewards(t.Context(), wire.Fetch{Step: 7})
			require.ErrorIs(t, err, client.ErrBadAnswer)
			require.ErrorContains(t, err, c.want)
			require.Len(t, cl.Problems(), 1)
			g.answers(func(f *fakeConn, take *wire.Fetch) {
				stray := rows(take, 1, true)
				stray.Req = 99
				f.say(stray)
				f.say(rows(take, 1, true))
			})
			_, err = cl.Rewards(t.Context(), wire.Fetch{Step: 7})
			require.NoError(t, err)
			require.ErrorContains(t, cl.Problems()[1], "question 99, which was not asked")
			g.mu.Lock()
			defer g.mu.Unlock()
			require.Len(t, g.conns, 1)
		})
	}
}

func TestWhoWaitsForRewardsIsToldOfTheEnd(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Rewards(done(ctx, cancel), wire.Fetch{Step: 7})
	require.ErrorIs(t, err, context.Canceled)
	answer := ask(t, c, wire.Fetch{Step: 7})
	first, second := within(t, g.took), within(t, g.took)
	require.Equal(t, first.Req+1, second.Req)
	g.mu.Lock()
	for f := range g.conns {
		f.say(rows(first, 1, true)) // nobody waits for it any more
	}
	g.mu.Unlock()
	require.NoError(t, c.Close())
	require.ErrorIs(t, within(t, answer).err, client.ErrClosed)
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.ErrorIs(t, err, client.ErrClosed)
	require.ErrorIs(t, c.Declare(wire.Step{Step: 7, Expected: 1}), client.ErrClosed)
	require.Empty(t, c.Problems())
}

// done returns ctx after cancel.
func done(ctx context.Context, cancel func()) context.Context {
	cancel()
	return ctx
}

func TestALostConnectionFailsTheQuestionsOnceItIsLostForGood(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	p := newProxy(t, strings.TrimPrefix(g.url, "ws://"), 1<<30)
	c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r", ReconnectFor: time.Millisecond, DialTimeout: time.Second})
	require.NoError(t, err)
	answer := ask(t, c, wire.Fetch{Step: 7})
	within(t, g.took)
	p.assign("127.0.0.1:1")
	g.cut(false)
	require.ErrorIs(t, within(t, answer).err, client.ErrLost)
	require.NoError(t, ignoreClosed(c.Close()))
}

// ignoreClosed is the error of a connection that was gone before Close.
func ignoreClosed(error) error { return nil }

func TestAServerThatLetsAQuestionPassIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	g := newFakeGateway(t, func(c *fakeConn, _ *wire.Fetch) {
		c.say(&wire.Error{Code: rewards.Malformed, Message: "unknown type fetch"}) // an older server
	})
	c := dialFake(t, g)
	c.SetAnswerGrace(5 * time.Second) // which the complaint surely needs less than
	_, err := c.Rewards(t.Context(), wire.Fetch{Step: 7, WaitMS: 10})
	require.ErrorIs(t, err, client.ErrNoAnswer)
	require.ErrorContains(t, err, "within 5.01s; the server's latest error: malformed: unknown type fetch")
}

func TestQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	c := dialFake(t, g)
	var answers []<-chan asked
	for range 64 {
		answers = append(answers, ask(t, c, wire.Fetch{Step: 7}))
		within(t, g.took)
	}
	_, err := c.Rewards(t.Context(), wire.Fetch{Step: 7})
	require.ErrorIs(t, err, client.ErrTooManyFetches)
	require.NoError(t, c.Close())
	for _, a := range answers {
		require.ErrorIs(t, within(t, a).err, client.ErrClosed)
	}
}

func TestRMScoresOfAChunkHaveNaNWhereThereIsNothing(t *testing.T) {
	t.Parallel()
	r := &wire.Rewards{
		IDs: []string{"a", "b", "c"}, Scores: []*float64{new(0.5), nil, new(-1.0)}, Valid: []bool{true, false, false},
	}
	s, err := client.RMScoresOf(r)
	require.NoError(t, err)
	require.Equal(t, []int{3, 1}, []int{s.Rows, s.Columns})
	require.InDelta(t, 0.5, s.Row(0)[0], 0)
	require.True(t, math.IsNaN(float64(s.Row(1)[0])))
	require.InDelta(t, -1, s.Row(2)[0], 0)
	require.Equal(t, []bool{true, false, false}, s.Valid, "what stands in for a score is none")
	r.Scores[0] = new(1e39)
	_, err = client.RMScoresOf(r)
	require.ErrorIs(t, err, client.ErrScores)
	require.ErrorContains(t, err, `sample "a" (row 0)`)
	_, err = client.RMScoresOf(&wire.Rewards{IDs: []string{"a"}})
	require.ErrorIs(t, err, client.ErrScores)
	s, err = client.RMScoresOf(&wire.Rewards{})
	require.NoError(t, err)
	require.Equal(t, 0, s.Rows)
}
