package outbound_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// returning asks for a sample that may go back to its queue.
func returning(t *testing.T, g *outbound.Upstream) error {
	t.Helper()
	_, err := g.Do(rewards.Returning(t.Context()), &outbound.Call{Body: []byte("question")})
	return err
}

func TestACallWhoseSampleMayBeReturnedDoesNotWaitForAProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{over: 8 * time.Second, start: time.Now()}
		g := fake(t, outbound.UpstreamConfig{Name: "judge", Attempts: 1, BreakMax: 4 * time.Second}, o.trip)
		assert.Equal(t, "judge", g.Dependency().Name)
		assert.False(t, g.Dependency().Down)
		for range 4 {
			_, err := ask(t, g)
			require.ErrorIs(t, err, rewards.Unavailable)
			assert.Empty(t, rewards.WaitedFor(err))
			assert.False(t, g.Dependency().Down, "a call that failed does not make it down")
		}
		changed := g.Dependency().Changed
		_, err := ask(t, g)
		require.Error(t, err)
		<-changed
		d := g.Dependency()
		assert.True(t, d.Down)
		assert.False(t, d.Probe)
		assert.Equal(t, time.Now().Add(time.Second), d.Due)
		assert.Contains(t, d.Last, "refused")

		start := time.Now()
		for range 100 {
			err := returning(t, g)
			require.ErrorIs(t, err, rewards.Unavailable)
			assert.Equal(t, "judge", rewards.WaitedFor(err))
			blame, permanent := rewards.BlameOf(err)
			assert.Equal(t, rewards.BlameDependency, blame)
			assert.False(t, permanent)
		}
		assert.Zero(t, time.Since(start))
		assert.Len(t, o.asked, 5, "nothing was sent")

		time.Sleep(time.Second)
		assert.True(t, g.Dependency().Probe)
		assert.Equal(t, "judge", rewards.WaitedFor(returning(t, g)), "it was the probe, and failed")
		assert.Len(t, o.asked, 6)
		assert.False(t, g.Dependency().Probe)
		time.Sleep(10 * time.Second)
		require.NoError(t, returning(t, g), "it was the probe, and found the endpoint well")
		assert.False(t, g.Dependency().Down)
	})
}

func TestOneCallProbesAndTheOthersAreReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := false
		g := fake(t, outbound.UpstreamConfig{Attempts: 1}, func(r *http.Request) (*http.Response, error) {
			if !hang {
				return nil, &net.OpError{Op: "dial", Err: errRefused}
			}
			time.Sleep(time.Second)
			return reply(200, ""), nil
		})
		require.Error(t, returning(t, g))
		assert.True(t, g.Dependency().Down, "it could not be connected to, and the call had no further attempt")
		hang = true
		time.Sleep(time.Second)
		probe := make(chan error)
		go func() { probe <- returning(t, g) }()
		synctest.Wait()
		d := g.Dependency()
		assert.True(t, d.Down)
		assert.False(t, d.Probe)
		assert.Zero(t, d.Due, "one is under way")
		assert.NotEmpty(t, rewards.WaitedFor(returning(t, g)))
		require.NoError(t, <-probe)
		require.NoError(t, returning(t, g))
	})
}

func TestACallThatMeetsTheOpeningOfTheBreakerIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{}, func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return nil, errRefused
		})
		errs := make(chan error)
		for range 8 { // more than open the breaker
			go func() { errs <- returning(t, g) }()
		}
		for range 8 {
			assert.NotEmpty(t, rewards.WaitedFor(<-errs))
		}
		assert.EqualValues(t, 8, g.Stats().Endpoints[0].Requests, "none was sent again")
	})
}

func TestASampleThatAnEngineDislikesIsNotReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{}, func(*http.Request) (*http.Response, error) { return reply(500, "no"), nil })
		for range 4 {
			err := returning(t, g)
			require.ErrorIs(t, err, rewards.Unavailable)
			assert.Empty(t, rewards.WaitedFor(err))
		}
		assert.False(t, g.Dependency().Down)
	})
}

func TestItIsKnownForHowLongNothingWasAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		g := fake(t, outbound.UpstreamConfig{}, func(r *http.Request) (*http.Response, error) {
			select {
			case <-answer:
			case <-r.Context().Done():
			}
			return reply(200, ""), nil
		})
		assert.Zero(t, g.Dependency().Unanswered)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		for range 3 {
			go func() {
				_, _ = g.Do(ctx, &outbound.Call{})
				done <- struct{}{}
			}()
		}
		time.Sleep(7 * time.Second)
		assert.Equal(t, 7*time.Second, g.Dependency().Unanswered)
		assert.Equal(t, 7*time.Second, g.Stats().Unanswered)
		answer <- struct{}{}
		<-done
		assert.Zero(t, g.Stats().Unanswered)
		time.Sleep(2 * time.Second)
		assert.Equal(t, 2*time.Second, g.Stats().Unanswered, "since the last answer")
		cancel()
		<-done
		<-done
		assert.Zero(t, g.Stats().Unanswered)
	})
}
