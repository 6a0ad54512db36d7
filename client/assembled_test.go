package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// Steps through the real gateway.

// member is sample i of a step whose groups have four members.
func member(step int64, i int) *rewards.Sample {
	s := rig.Sample(fmt.Sprintf("%d/%d", step, i), 3*(100+i))
	s.Step, s.Split = step, rewards.Train
	s.Index, s.UID, s.GroupSize = new(int64(i)), fmt.Sprintf("%d/g%d", step, i/4), 4
	return s
}

// own checks that every row has its own sample's score, by its own bytes.
func own(t *testing.T, r *wire.Rewards) {
	t.Helper()
	for i, id := range r.IDs {
		assert.Equal(t, fmt.Sprintf("%d/%d", r.Step, *r.Indices[i]), id)
		assert.Equal(t, fmt.Sprintf("%d/g%d", r.Step, *r.Indices[i]/4), r.UIDs[i])
		assert.Equal(t, rewards.Scored, r.Outcomes[i])
		assert.True(t, r.Valid[i])
		assert.InDelta(t, rig.Hash(member(r.Step, int(*r.Indices[i]))), *r.Scores[i], 0)
	}
}

// idle scores by hash, after so many milliseconds as the sample's row modulo 7.
func idle() rewards.Component {
	component := hashComponent()
	component.Scorer = rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		select {
		case <-time.After(time.Duration(*s.Index%7) * time.Millisecond):
		case <-ctx.Done():
			return rewards.Score{}, ctx.Err()
		}
		return rewards.Score{Value: rig.Hash(s)}, nil
	})
	return component
}

// submit sends samples of a step, in this order.
func submit(t *testing.T, c *client.Client, step int64, order []int) []*client.Future {
	t.Helper()
	var futures []*client.Future
	for _, i := range order {
		f, err := c.Submit(t.Context(), member(step, i), 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	return futures
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestOverlappingStepsAreHandedOutWholeEachSampleOnceThroughCutConnections(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const samples = 320
	n := newNode(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 4}, Profiles: profile(t, idle())})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	var readers sync.WaitGroup
	for step := range int64(3) {
		require.NoError(t, c.Declare(wire.Step{Step: step, Expected: samples}))
		readers.Go(func() {
			seen := map[string]bool{}
			number := int64(0)
			order := []string{"", wire.ByIndex, wire.ByCompletion}[step]
			for r, err := range c.Chunks(t.Context(), wire.Fetch{Step: step, Groups: 16, Order: order}) {
				if err != nil {
					t.Error(err)
					return
				}
				assert.Equal(t, number, r.Chunk)
				assert.Equal(t, int64(16), r.Groups)
				own(t, r)
				for i, id := range r.IDs {
					assert.False(t, seen[id], id)
					seen[id] = true
					if order == wire.ByIndex {
						assert.Equal(t, number*64+int64(i), *r.Indices[i])
					}
				}
				number++
				again, err := c.Rewards(t.Context(), wire.Fetch{Step: step, Groups: 16, Chunk: r.Chunk})
				if err != nil {
					t.Error(err)
					return
				}
				assert.Equal(t, r.IDs, again.IDs, "a chunk is the same when it is read again")
				assert.Equal(t, r.Scores, again.Scores)
			}
			assert.Len(t, seen, samples)
			assert.Equal(t, int64(samples/64), number)
		})
	}
	var futures []*client.Future
	for i := range samples {
		for step := range int64(3) {
			futures = append(futures, submit(t, c, step, []int{(i*7 + int(step)) % samples})...)
		}
		if i%80 == 60 {
			_, err := futures[len(futures)-40].Wait(t.Context())
			require.NoError(t, err)
			n.cut()
		}
	}
	readers.Wait()
	require.Empty(t, c.Problems())
	require.NoError(t, c.Close())
}

func TestOneWholeChunkComesOnceTheStepIsOver(t *testing.T) {
	t.Parallel()
	n := newNode(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 4}, Profiles: profile(t, idle())})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	require.NoError(t, c.Declare(wire.Step{Step: 1, Expected: 40}))
	_, err = submit(t, c, 1, upTo(39))[0].Wait(t.Context()) // the gateway has heard of the step
	require.NoError(t, err)
	r, err := c.Rewards(t.Context(), wire.Fetch{Step: 1})
	require.NoError(t, err)
	require.False(t, r.Ready)
	require.Empty(t, r.IDs)
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: 1, Chunk: 2})
	require.ErrorIs(t, err, rewards.Malformed)
	submit(t, c, 1, []int{39})
	n2 := 0
	for r, err := range c.Chunks(t.Context(), wire.Fetch{Step: 1}) {
		require.NoError(t, err)
		n2++
		require.True(t, r.Done)
		require.Equal(t, wire.StepComplete, r.State)
		require.Len(t, r.IDs, 40)
		own(t, r)
		s, err := client.RMScoresOf(r)
		require.NoError(t, err)
		require.Equal(t, 40, s.Rows)
		for i := range 40 {
			require.InDelta(t, rig.Hash(member(1, i)), s.Row(i)[0], 1e-7)
		}
	}
	require.Equal(t, 1, n2)
	require.NoError(t, c.Close())
}

// hung hangs on rows of which the remainder by 10 is 3.
func hung() rewards.Component {
	component := hashComponent()
	component.Scorer = rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		if *s.Index%10 == 3 {
			<-ctx.Done()
			return rewards.Score{}, ctx.Err()
		}
		return rewards.Score{Value: rig.Hash(s)}, nil
	})
	return component
}

func TestAStepThatIsNotCompleteEndsAtItsDeadlineAsItsPolicySays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{hung()}, Timeout: time.Minute})
	require.NoError(t, err)
	n := newNode(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 16}, Profiles: map[string]*rewards.Manager{"": m}})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	// Of 40 rows 3, 13, 23 and 33 hang, and 38 and 39 never come.
	ids := func(step int64) []string {
		var all []string
		for i := range 40 {
			all = append(all, member(step, i).ID)
		}
		return all
	}
	for step, policy := range []string{wire.DeadlineMask, wire.DeadlineFail, wire.DeadlineShortfall} {
		// What does not hang has its score before the deadline begins, however busy the machine.
		for i, f := range submit(t, c, int64(step), upTo(38)) {
			if i%10 != 3 {
				requireScored(t, f)
			}
		}
		require.NoError(t, c.Declare(wire.Step{Step: int64(step), IDs: ids(int64(step)), DeadlineMS: 2000, OnDeadline: policy}))
	}
	whole := func(step int64) (*wire.Rewards, error) {
		var last *wire.Rewards
		var lastErr error
		for r, err := range c.Chunks(t.Context(), wire.Fetch{Step: step}) {
			last, lastErr = r, err
		}
		return last, lastErr
	}
	lacking := []int64{3, 13, 23, 33, 38, 39}

	masked, err := whole(0)
	require.NoError(t, err)
	require.Equal(t, wire.StepShort, masked.State)
	require.Equal(t, ids(0), masked.IDs, "a row for every sample, in order of the batch")
	s, err := client.RMScoresOf(masked)
	require.NoError(t, err)
	for i := range 40 {
		want := !slices.Contains(lacking, int64(i))
		require.Equal(t, want, s.Valid[i], i)
		require.Equal(t, want, s.Row(i)[0] == s.Row(i)[0], "NaN where there is no score: row %d", i)
	}
	require.Len(t, masked.Without, 6)

	failed, err := whole(1)
	require.ErrorIs(t, err, client.ErrStepFailed)
	for _, i := range lacking {
		require.ErrorContains(t, err, fmt.Sprintf("%q", member(1, int(i)).ID))
	}
	require.ErrorContains(t, err, "6 of 40 samples have no result")
	require.Empty(t, failed.IDs)

	short, err := whole(2)
	require.NoError(t, err)
	require.Equal(t, wire.StepShort, short.State)
	require.Len(t, short.IDs, 34)
	own(t, short)
	require.NoError(t, c.Close())
}

func TestAStepOfAStoppedGatewayIsLostAndCanBeMadeAgainAtTheNext(t *testing.T) {
	t.Parallel()
	first := newNode(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 16}, Profiles: profile(t, idle())})
	second := newNode(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 16}, Profiles: profile(t, idle())})
	p := newProxy(t, strings.TrimPrefix(first.url, "ws://"), 1<<30)
	c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r"})
	require.NoError(t, err)
	require.NoError(t, c.Declare(wire.Step{Step: 1, Expected: 40}))
	for _, f := range submit(t, c, 1, upTo(20)) {
		_, err := f.Wait(t.Context())
		require.NoError(t, err)
	}
	chunk, err := c.Rewards(t.Context(), wire.Fetch{Step: 1, Groups: 4, WaitMS: 10_000})
	require.NoError(t, err)
	require.Len(t, chunk.IDs, 16)
	waiting := ask(t, c, wire.Fetch{Step: 1, Chunk: 1, Groups: 4, WaitMS: 60_000})
	p.assign(strings.TrimPrefix(second.url, "ws://"))
	first.Manager.Stop()
	first.cut()
	require.ErrorIs(t, within(t, waiting).err, client.ErrStepLost)
	rest := submit(t, c, 1, upTo(40)[20:])
	for _, f := range rest {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome)
	}
	_, err = c.Rewards(t.Context(), wire.Fetch{Step: 1})
	require.ErrorIs(t, err, client.ErrStepLost, "the next gateway has half of the step and does not know it")
	require.NoError(t, c.Declare(wire.Step{Step: 1, Expected: 40}))
	submit(t, c, 1, upTo(20))
	r, err := c.Rewards(t.Context(), wire.Fetch{Step: 1, WaitMS: 20_000})
	require.NoError(t, err)
	require.Len(t, r.IDs, 40)
	own(t, r)
	require.NoError(t, c.Close())
}
