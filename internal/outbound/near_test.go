package outbound_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

// three are three endpoints that answer after a second, or as long as their name says.
func three(t *testing.T, slow map[string]time.Duration) *outbound.Upstream {
	t.Helper()
	return fake(t, outbound.UpstreamConfig{URLs: []string{"http://a", "http://b", "http://c"}, Concurrency: 1000}, func(r *http.Request) (*http.Response, error) {
		d, ok := slow[r.URL.Host]
		if !ok {
			d = time.Second
		}
		time.Sleep(d) // Of the bubble.
		return reply(200, r.URL.Host), nil
	})
}

// askMany sends so many calls at once and returns who answered, and how long each took.
func askMany(t *testing.T, g *outbound.Upstream, n int, near func(i int) string) (by map[string]int, took []time.Duration) {
	t.Helper()
	by = map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			began := time.Now()
			a, err := g.Do(t.Context(), &outbound.Call{Near: near(i)})
			mu.Lock()
			defer mu.Unlock()
			if assert.NoError(t, err) {
				by[string(a.Body)]++
				took = append(took, time.Since(began))
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return by, took
}

func TestCallsThatAreNearGoToOneEndpointWhileItHasNotClearlyMoreToDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := three(t, nil)
		chosen := map[string]bool{}
		for n := range 30 {
			by := map[string]int{}
			for range 8 { // One after the other.
				once, _ := askMany(t, g, 1, func(int) string { return fmt.Sprint("prompt ", n) })
				for name := range once {
					by[name]++
					chosen[name] = true
				}
			}
			require.Len(t, by, 1, "prompt %d: %v", n, by)
		}
		assert.Len(t, chosen, 3, "prompts are spread")
		by, _ := askMany(t, g, 300, func(int) string { return "many at once" })
		for name, n := range by {
			assert.Less(t, n, 125, "%s had %d of 300", name, n)
		}
		assert.Len(t, by, 3)
	})
}

func TestCallsWhoseEndpointIsHeldGoToAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := three(t, nil)
		near := func(int) string { return "prompt" }
		before, _ := askMany(t, g, 1, near)
		for name := range before {
			g.Hold("http://"+name, "it sleeps", false)
			after, _ := askMany(t, g, 2, near)
			assert.NotContains(t, after, name)
		}
	})
}

// Of three replicas one is slow: 99 of 100 answers come as fast as from the two good ones alone.
func TestASlowReplicaOfThreeDoesNotMakeTheLastOneOfAHundredSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near := func(i int) string { return fmt.Sprint("prompt ", i/8) }
		p99 := func(g *outbound.Upstream) time.Duration {
			askMany(t, g, 100, near) // It takes a few answers to know.
			var all []time.Duration
			for range 100 {
				_, took := askMany(t, g, 48, near)
				all = append(all, took...)
			}
			slices.Sort(all)
			return all[len(all)*99/100]
		}
		for _, slow := range []time.Duration{3 * time.Second, 10 * time.Second, time.Minute} {
			g := three(t, map[string]time.Duration{"c": slow})
			assert.LessOrEqual(t, p99(g), 1200*time.Millisecond, "slow: %v", slow)
		}
	})
}

func TestAReplicaThatIsFastAgainIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := map[string]time.Duration{"c": 10 * time.Second}
		g := three(t, slow)
		near := func(int) string { return "" }
		askMany(t, g, 100, near)
		by, _ := askMany(t, g, 100, near)
		require.Less(t, by["c"], 10)
		slow["c"] = time.Second
		for range 100 {
			askMany(t, g, 100, near)
		}
		by, _ = askMany(t, g, 300, near)
		assert.Greater(t, by["c"], 60)
	})
}
