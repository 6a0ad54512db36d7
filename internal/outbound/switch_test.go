package outbound_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

// named answers after a second with the host that was asked.
func named(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Second) // Of the bubble.
	return reply(200, r.URL.Host), nil
}

func TestAnUpstreamThatIsReplacedEndsItsCallsAndTheNextGoToItsSuccessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := outbound.NewTestTransport(tripFunc(named))
		g, err := tr.Upstream(outbound.UpstreamConfig{Name: "e", URLs: []string{"http://old"}, Concurrency: 1})
		require.NoError(t, err)
		s := outbound.NewSwitch(g)
		answers := make(chan string, 2)
		for range 2 { // One is under way, one waits for its place.
			go func() {
				a, err := s.Do(t.Context(), &outbound.Call{})
				if err != nil {
					t.Error(err)
					return
				}
				answers <- string(a.Body)
			}()
		}
		synctest.Wait()
		require.NoError(t, tr.Replace(s, outbound.UpstreamConfig{Name: "e", URLs: []string{"http://new"}, Concurrency: 3}))
		require.Equal(t, 3, s.Concurrency())
		a, err := s.Do(t.Context(), &outbound.Call{})
		require.NoError(t, err)
		require.Equal(t, "new", string(a.Body))
		require.Equal(t, "old", <-answers)
		require.Equal(t, "old", <-answers)
		require.Len(t, tr.Upstreams(), 1, "the former one is in no figure any more")
		require.NoError(t, tr.Replace(s, outbound.UpstreamConfig{Name: "e", URLs: []string{"http://new"}, Concurrency: 5}), "limits alone may change")
		require.Equal(t, 5, s.Concurrency())
		tr.Close()
		require.Error(t, tr.Replace(s, outbound.UpstreamConfig{URLs: []string{"http://new"}}))
	})
}

func TestAnUpstreamThatCannotBeReplacedStaysAsItIs(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	tr := outbound.NewTestTransport(tripFunc(func(r *http.Request) (*http.Response, error) {
		asked.Add(1)
		return reply(200, r.URL.Host), nil
	}))
	made := func(name, url string) *outbound.Switch {
		g, err := tr.Upstream(outbound.UpstreamConfig{Name: name, URLs: []string{url}})
		require.NoError(t, err)
		return outbound.NewSwitch(g)
	}
	one, _, shared := made("one", "http://one"), made("two", "http://two"), made("three", "http://three")
	made("too", "http://three")
	for want, of := range map[string]struct {
		s   *outbound.Switch
		cfg outbound.UpstreamConfig
	}{
		"no URL":                             {one, outbound.UpstreamConfig{Name: "one"}},
		"has these servers":                  {one, outbound.UpstreamConfig{Name: "one", URLs: []string{"http://two"}}},
		"no such file":                       {one, outbound.UpstreamConfig{Name: "one", URLs: []string{"http://four"}, KeyFile: "/nowhere/at/all"}},
		"another entry of the configuration": {shared, outbound.UpstreamConfig{Name: "three", URLs: []string{"http://five"}}},
	} {
		require.ErrorContains(t, tr.Replace(of.s, of.cfg), want)
	}
	a, err := one.Do(t.Context(), &outbound.Call{})
	require.NoError(t, err)
	require.Equal(t, "one", string(a.Body))
	require.Len(t, tr.Upstreams(), 3)
	require.Equal(t, int64(1), asked.Load())
}

func TestAnUpstreamThatComesBackSharesItsLimitsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		p, g := b.start(t, "p0", outbound.UpstreamConfig{Name: "e", URLs: []string{"http://a"}, Concurrency: 8}, named)
		_, other := b.start(t, "p1", outbound.UpstreamConfig{Name: "e", URLs: []string{"http://a"}, Concurrency: 8}, named)
		time.Sleep(10 * time.Second)
		require.InDelta(t, 8, sum(places, g, other), 1)
		s := outbound.NewSwitch(g)
		for i, url := range []string{"http://b", "http://a"} {
			require.NoError(t, p.tr.Replace(s, outbound.UpstreamConfig{Name: "e", URLs: []string{url}, Concurrency: 8}), fmt.Sprint(i))
			time.Sleep(10 * time.Second)
		}
		require.Len(t, p.tr.Upstreams(), 1)
		require.InDelta(t, 8, sum(places, p.tr.Upstreams()[0], other), 1, "both are one upstream again")
	})
}
