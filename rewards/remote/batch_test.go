package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// lengthServer is an OpenRLHF server without a network: the reward of a query is its
// length. "poison" fails the request, "nan" its own score, "hang" waits for ctx.
type lengthServer struct {
	mu    sync.Mutex
	sizes []int // of the requests
	took  time.Duration
	done  atomic.Int32 // requests whose context ended
}

func (l *lengthServer) Do(ctx context.Context, c *outbound.Call) (*outbound.Answer, error) {
	var in struct {
		Prompts []string `json:"prompts"`
	}
	if err := json.Unmarshal(c.Body, &in); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.sizes = append(l.sizes, len(in.Prompts))
	l.mu.Unlock()
	var out strings.Builder
	for i, p := range in.Prompts {
		switch p {
		case "poison":
			return &outbound.Answer{Status: 500, Body: []byte("ValueError: poison")}, nil
		case "panic":
			panic("as told")
		case "hang":
			<-ctx.Done()
			l.done.Add(1)
			return nil, fmt.Errorf("%w: %w", rewards.Timeout, ctx.Err())
		}
		if i > 0 {
			out.WriteString(",")
		}
		if p == "nan" {
			out.WriteString("NaN")
			continue
		}
		fmt.Fprint(&out, len(p))
	}
	select {
	case <-time.After(l.took):
	case <-ctx.Done():
		l.done.Add(1)
		return nil, fmt.Errorf("%w: %w", rewards.Timeout, ctx.Err())
	}
	a := &outbound.Answer{Status: 200, Body: []byte(`{"rewards":[` + out.String() + `]}`)}
	return a, c.Check(a)
}

func batching(t *testing.T, l *lengthServer, o options) rewards.Scorer {
	t.Helper()
	sc, err := buildNamed(t, "http", &groups{doer: l}, options{"protocol": "openrlhf", "url": "http://h", "batch_wait": "20ms", "batch": 4}.with(o))
	require.NoError(t, err)
	return sc
}

type outcome struct {
	prompt string
	score  rewards.Score
	err    error
	at     time.Duration
}

// all scores the prompts at the same time.
func all(ctx context.Context, sc rewards.Scorer, prompts ...string) []outcome {
	out := make([]outcome, len(prompts))
	var wg sync.WaitGroup
	begin := time.Now()
	for i, p := range prompts {
		wg.Go(func() {
			score, err := sc.Score(ctx, &rewards.Sample{ID: fmt.Sprint(i), Prompt: p})
			out[i] = outcome{p, score, err, time.Since(begin)}
		})
	}
	wg.Wait()
	return out
}

func requireOwnScores(t *testing.T, out []outcome) {
	t.Helper()
	for _, o := range out {
		require.NoError(t, o.err, o.prompt)
		require.InDelta(t, len(o.prompt), o.score.Value, 0, "the score of %q", o.prompt)
	}
}

func TestSamplesShareARequestUntilItIsFullOrItsTimeIsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lengthServer{}
		out := all(t.Context(), batching(t, l, nil), "a", "bb", "ccc", "dddd", "eeeee", "ffffff")
		requireOwnScores(t, out)
		assert.ElementsMatch(t, []int{4, 2}, l.sizes)
		late := 0
		for _, o := range out {
			if o.at == 20*time.Millisecond {
				late++
			} else {
				assert.Zero(t, o.at, "a full batch does not wait")
			}
		}
		assert.Equal(t, 2, late, "the rest waits for its time")
	})
}

func TestWithoutBatchWaitEverySampleHasItsOwnRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lengthServer{}
		requireOwnScores(t, all(t.Context(), batching(t, l, options{"batch_wait": 0}), "a", "bb", "ccc"))
		assert.Equal(t, []int{1, 1, 1}, l.sizes)
	})
}

func TestAPoisonousSampleHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct {
		prompt string
		class  rewards.Class
		sizes  []int
	}{{"poison", rewards.Unavailable, []int{4, 1, 1, 1, 1}}, {"nan", rewards.InvalidScore, []int{4}}} {
		synctest.Test(t, func(t *testing.T) {
			l := &lengthServer{}
			out := all(t.Context(), batching(t, l, nil), "a", bad.prompt, "ccc", "dddd")
			requireFailure(t, bad.class, out[1].score, out[1].err)
			requireOwnScores(t, append(out[:1:1], out[2:]...))
			assert.Equal(t, bad.sizes, l.sizes, "a batch that fails as a whole is sent again one by one, once")
		})
	}
}

func TestABatchThatPanicsIsNotTheEndOfTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lengthServer{}
		sc := batching(t, l, options{"batch": 2})
		var first, second error
		var wg sync.WaitGroup
		wg.Go(func() { _, first = sc.Score(t.Context(), &rewards.Sample{Prompt: "fine"}) })
		wg.Go(func() {
			defer func() { second = fmt.Errorf("%v", recover()) }() // the manager's, alone again
			_, _ = sc.Score(t.Context(), &rewards.Sample{Prompt: "panic"})
		})
		wg.Wait()
		require.NoError(t, first)
		require.ErrorContains(t, second, "as told")
	})
}

func TestASampleThatLeavesTakesOnlyItselfAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lengthServer{took: time.Second}
		sc := batching(t, l, options{"batch": 3})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var left outcome
		var wg sync.WaitGroup
		wg.Go(func() { left = all(ctx, sc, "gone")[0] })
		stay := all(t.Context(), sc, "a", "bb")
		wg.Wait()
		requireOwnScores(t, stay)
		requireFailure(t, rewards.Timeout, left.score, left.err)
		assert.Equal(t, 500*time.Millisecond, left.at)
		assert.Equal(t, []int{3}, l.sizes)
		assert.Zero(t, l.done.Load(), "the request went on for the others")
	})
}

func TestASampleThatLeavesBeforeTheBatchIsSentIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lengthServer{}
		sc := batching(t, l, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		out := all(ctx, sc, "gone")
		requireFailure(t, rewards.Timeout, out[0].score, out[0].err)
		synctest.Wait()
		assert.Empty(t, l.sizes, "nobody was left")
		requireOwnScores(t, all(t.Context(), sc, "a", "bb"))
		assert.Equal(t, []int{2}, l.sizes)
	})
}

func TestWhenAllHaveLeftTheRequestIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lengthServer{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out := all(ctx, batching(t, l, options{"batch": 2}), "hang", "a")
		for _, o := range out {
			requireFailure(t, rewards.Timeout, o.score, o.err)
		}
		synctest.Wait()
		assert.EqualValues(t, 1, l.done.Load())
	})
}

func TestCloseFailsWhatWaitsAndWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lengthServer{}
		sc := batching(t, l, options{"batch": 2})
		var out []outcome
		var wg sync.WaitGroup
		wg.Go(func() { out = all(t.Context(), sc, "hang") })
		<-time.After(time.Second)
		waiting := make(chan error, 1)
		wg.Go(func() {
			_, err := sc.Score(t.Context(), &rewards.Sample{Prompt: "a"})
			waiting <- err
		})
		synctest.Wait()
		closer, ok := sc.(rewards.Closer)
		require.True(t, ok)
		require.NoError(t, closer.Close())
		require.ErrorIs(t, <-waiting, rewards.Unavailable)
		wg.Wait()
		require.Error(t, out[0].err)
		_, err := sc.Score(t.Context(), &rewards.Sample{Prompt: "a"})
		require.ErrorIs(t, err, rewards.Unavailable)
		require.NoError(t, closer.Close(), "twice")
	})
}

func TestNoScoreGoesToAnotherSampleHoweverTheyComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lengthServer{took: 3 * time.Millisecond}
		sc := batching(t, l, options{"batch": 7, "batch_wait": 0.002})
		var wg sync.WaitGroup
		for i := range 400 {
			wg.Go(func() {
				<-time.After(time.Duration(i*i%50) * time.Millisecond / 3)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%11)*time.Millisecond)
				defer cancel()
				prompt := fmt.Sprintf("%0*d", 1+i%97, 0)
				if i%37 == 0 {
					prompt = "poison"
				}
				score, err := sc.Score(ctx, &rewards.Sample{ID: fmt.Sprint(i), Prompt: prompt})
				if prompt == "poison" {
					assert.Error(t, err)
					return
				}
				if err != nil {
					assert.True(t, errors.Is(err, context.DeadlineExceeded) || rewards.ClassOf(err) == rewards.Timeout, err)
					return
				}
				assert.InDelta(t, len(prompt), score.Value, 0)
			})
		}
		wg.Wait()
	})
}
