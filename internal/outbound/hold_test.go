package outbound_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// two is an upstream of two endpoints that answer after a second with their name.
func two(t *testing.T) *outbound.Upstream {
	t.Helper()
	return fake(t, outbound.UpstreamConfig{Name: "judge", URLs: []string{"http://a", "http://b"}, HealthPath: "/v1/models"}, named)
}

func TestAnEndpointThatIsHeldTakesNoRequestsUntilItIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := two(t)
		g.Hold("http://a", "it is starting", false)
		g.Hold("http://none", "nobody has this address", false)
		for range 5 {
			a, err := g.Do(t.Context(), &outbound.Call{})
			require.NoError(t, err)
			require.Equal(t, "b", string(a.Body))
		}
		assert.False(t, g.Dependency().Down)
		g.Hold("http://b", "it sleeps", false)
		d := g.Dependency()
		assert.True(t, d.Down)
		assert.False(t, d.Probe, "nobody is to try")
		assert.Equal(t, "http://a: it is starting", d.Last)
		assert.Equal(t, "it is starting", d.Held)
		for _, f := range g.Look(t.Context()) {
			require.NoError(t, f.Err, "whoever holds an endpoint knows")
		}
		require.ErrorContains(t, returning(t, g), "all 2 endpoints are out of service: http://a: it is starting")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := g.Do(ctx, &outbound.Call{})
		require.ErrorContains(t, err, "it is starting", "a wait that ends says for what it was")

		answers := make(chan string, 1)
		go func() { // ends with its answer
			a, err := g.Do(t.Context(), &outbound.Call{})
			if assert.NoError(t, err) {
				answers <- string(a.Body)
			}
		}()
		synctest.Wait()
		g.Release("http://a")
		assert.Equal(t, "a", <-answers, "the call has waited here and goes on at once")
	})
}

func TestARequestUnderWayEndsThoughItsEndpointIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a"}}, named)
		go func() { // ends before the answer
			time.Sleep(time.Second / 2) // Of the bubble.
			g.Hold("http://a", "it goes to sleep", false)
		}()
		a, err := g.Do(t.Context(), &outbound.Call{})
		require.NoError(t, err)
		assert.Equal(t, "a", string(a.Body))
		assert.True(t, g.Dependency().Down)
	})
}

func TestWhatNoEndpointWillEverDoFailsAtOnceAndIsTheEnginesFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := two(t)
		g.Hold("http://a", "it gives no log probabilities", true)
		a, err := g.Do(t.Context(), &outbound.Call{})
		require.NoError(t, err)
		assert.Equal(t, "b", string(a.Body))
		g.Hold("http://b", "it gives none either", true)
		began := time.Now()
		_, err = g.Do(t.Context(), &outbound.Call{})
		require.ErrorContains(t, err, "all 2 endpoints lack a feature that the judges need: http://a: it gives no log probabilities")
		assert.Zero(t, time.Since(began))
		blame, permanent := rewards.BlameOf(err)
		assert.Equal(t, rewards.BlameDependency, blame)
		assert.True(t, permanent)
		assert.False(t, g.Dependency().Down, "nobody is to wait for it")
	})
}

func TestAReleaseOutweighsWhatTheBreakerHadFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refuses := true
		g := fake(t, outbound.UpstreamConfig{URLs: []string{"http://a"}, Attempts: 1, HealthPath: "/v1/models", BreakMin: time.Hour, BreakMax: time.Hour}, func(r *http.Request) (*http.Response, error) {
			if refuses {
				return nil, errRefused
			}
			return named(r)
		})
		g.Look(t.Context())
		require.True(t, g.Dependency().Down)
		refuses = false
		g.Release("http://a")
		require.False(t, g.Dependency().Down)
		_, err := g.Do(t.Context(), &outbound.Call{})
		require.NoError(t, err)
	})
}
