package outbound_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// patient is an engine whose answers take a minute, and what its health path says.
type patient struct {
	refuses bool
	status  int           // of calls
	health  int           // the status of its health path; 0: it hangs
	looks   int           // at its health path
	calls   int           // that came
	takes   time.Duration // of a call
}

func (p *patient) trip(r *http.Request) (*http.Response, error) {
	look := r.Method == http.MethodGet
	if look {
		p.looks++
	} else {
		p.calls++
	}
	switch {
	case p.refuses:
		return nil, &net.OpError{Op: "dial", Err: errRefused}
	case look && p.health == 0:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case look && p.health == tooLong:
		return reply(200, strings.Repeat(" ", 2<<20)), nil
	case look:
		return reply(p.health, `{"data":[]}`), nil
	}
	select {
	case <-time.After(p.takes):
		return reply(p.status, ""), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// tooLong stands for an answer of 2 MiB.
const tooLong = -1

// atPatient has an upstream whose one endpoint nobody could connect to, and whose probe is due.
func atPatient(t *testing.T, test func(t *testing.T, p *patient, g *outbound.Upstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &patient{refuses: true, status: 200, health: 200, takes: time.Minute}
		g := fake(t, outbound.UpstreamConfig{Attempts: 1, HealthPath: "/v1/models"}, p.trip)
		require.Error(t, returning(t, g))
		require.True(t, g.Dependency().Down)
		time.Sleep(time.Second)
		test(t, p, g)
	})
}

func TestAnEngineIsBackAsSoonAsItsHealthPathSaysSoHoweverLongAnAnswerTakes(t *testing.T) {
	t.Parallel()
	atPatient(t, func(t *testing.T, p *patient, g *outbound.Upstream) {
		t.Helper()
		require.NotEmpty(t, rewards.WaitedFor(returning(t, g)), "it is down still")
		assert.Equal(t, 1, p.looks)
		assert.Equal(t, 1, p.calls, "a probe of a closed port sends no call")
		p.refuses = false
		time.Sleep(time.Second)
		changed, probe := g.Dependency().Changed, make(chan error)
		go func() { probe <- returning(t, g) }()
		synctest.Wait()
		<-changed
		assert.False(t, g.Dependency().Down, "although the call has no answer yet")
		go func() { probe <- returning(t, g) }()
		require.NoError(t, <-probe)
		require.NoError(t, <-probe)
		assert.Equal(t, 2, p.looks)
		assert.Equal(t, 3, p.calls)
		assert.Zero(t, g.Stats().Endpoints[0].InFlight)
	})
}

func TestACallFindsOutWhereTheHealthPathDoesNotTell(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"it is not there": 404, "it wants another method": 405, "it wants a key": 401, "it is a page elsewhere": 302, "it is too long": tooLong} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atPatient(t, func(t *testing.T, p *patient, g *outbound.Upstream) {
				t.Helper()
				p.refuses, p.health = false, status
				probe := make(chan error)
				go func() { probe <- returning(t, g) }()
				time.Sleep(time.Second)
				assert.True(t, g.Dependency().Down)
				require.NoError(t, <-probe)
				assert.False(t, g.Dependency().Down)
			})
		})
	}
}

func TestAnEngineWhoseHealthPathHangsOrFailsIsDownStill(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"it hangs": 0, "it starts": 503} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atPatient(t, func(t *testing.T, p *patient, g *outbound.Upstream) {
				t.Helper()
				p.refuses, p.health = false, status
				start := time.Now()
				err := returning(t, g)
				require.ErrorIs(t, err, rewards.Unavailable)
				assert.NotEmpty(t, rewards.WaitedFor(err))
				assert.LessOrEqual(t, time.Since(start), 2*time.Second)
				assert.True(t, g.Dependency().Down)
				assert.Equal(t, 1, p.calls, "no call was sent")
				time.Sleep(time.Second)
				assert.True(t, g.Dependency().Probe)
				p.health = 200
				require.NoError(t, returning(t, g))
			})
		})
	}
}

func TestAnEngineThatFailedCallsIsProbedByACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &patient{status: 503, health: 200, takes: time.Second}
		g := fake(t, outbound.UpstreamConfig{Attempts: 1, HealthPath: "/v1/models"}, p.trip)
		for range 5 {
			_, err := ask(t, g)
			require.Error(t, err)
		}
		require.True(t, g.Dependency().Down)
		time.Sleep(time.Second)
		require.NotEmpty(t, rewards.WaitedFor(returning(t, g)))
		assert.Zero(t, p.looks, "its health path would have said that all is well")
		p.refuses = true
		time.Sleep(time.Second)
		require.NotEmpty(t, rewards.WaitedFor(returning(t, g)))
		p.refuses, p.status = false, 200
		time.Sleep(time.Second)
		require.NoError(t, returning(t, g))
		assert.Equal(t, 1, p.looks, "since nobody could connect to it")
	})
}

func TestACallThatEndsDuringTheLookAtTheHealthPathSaysNothing(t *testing.T) {
	t.Parallel()
	atPatient(t, func(t *testing.T, p *patient, g *outbound.Upstream) {
		t.Helper()
		p.refuses, p.health = false, 0
		ctx, cancel := context.WithTimeout(rewards.Returning(t.Context()), time.Second)
		defer cancel()
		_, err := g.Do(ctx, &outbound.Call{Body: []byte("question")})
		require.ErrorIs(t, err, rewards.Timeout)
		assert.True(t, g.Dependency().Probe, "the next call looks at once")
		assert.Zero(t, g.Stats().Endpoints[0].InFlight)
	})
}
