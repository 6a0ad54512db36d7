package fabric_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/fabric"
	"github.com/rewardloop/rewardloop/internal/outbound"
)

// part is what a process has: a connection, its fleet, and a group.
type part struct {
	fleet *fabric.Fleet
	js    jetstream.JetStream
	tr    *outbound.Transport
	group *outbound.Group
}

func (b *broker) part(t *testing.T, name string, create bool, cfg outbound.GroupConfig) *part {
	t.Helper()
	p := &part{js: b.js(t)}
	var err error
	p.fleet, err = fabric.NewFleet(t.Context(), p.js, fabric.FleetConfig{Name: name, Create: create})
	require.NoError(t, err)
	t.Cleanup(p.fleet.Close)
	p.tr, err = outbound.NewTransport(outbound.Policy{})
	require.NoError(t, err)
	t.Cleanup(p.tr.Close)
	p.group, err = p.tr.Group(cfg)
	require.NoError(t, err)
	p.tr.Join(p.fleet)
	return p
}

// parts starts n, of which the first makes the bucket.
func (b *broker) parts(t *testing.T, n int, cfg outbound.GroupConfig) []*part {
	t.Helper()
	all := make([]*part, n)
	for i := range all {
		all[i] = b.part(t, fmt.Sprint("process-", i), i == 0, cfg)
	}
	return all
}

func (p *part) share(limit string) float64 {
	for _, s := range p.group.Stats().Shares {
		if s.Limit == limit {
			return s.Part
		}
	}
	return -1
}

// settled waits until each of some processes has its equal part of 900 requests a minute.
func settled(t *testing.T, within time.Duration, some ...*part) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, p := range some {
			s := p.group.Stats()
			assert.Equal(t, len(some), s.Processes)
			assert.False(t, s.Deaf)
			assert.InDelta(t, 900/float64(len(some)), p.share("requests_per_minute"), 1)
		}
	}, within, 20*time.Millisecond)
}

func TestThreeProcessesOfAFleetKeepToOneLimit(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	t.Cleanup(srv.Close)
	const perSecond = 100
	all := newBroker(t).parts(t, 3, outbound.GroupConfig{URLs: []string{srv.URL}, RPM: 60 * perSecond, Concurrency: 30})
	const seconds = 9
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i, p := range all {
		for range 2 + 9*i {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = p.group.Do(ctx, &outbound.Call{})
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(start).Seconds()
	t.Logf("%d requests in %.1f s; alone, each process would have sent %d", served.Load(), took, int(perSecond*(60+took)))
	// Each may start with an eightieth of a minute's worth, before it knows the others.
	assert.LessOrEqual(t, float64(served.Load()), perSecond*took+3*60*perSecond/80+10)
	assert.Greater(t, served.Load(), int64(perSecond*(seconds-4)/2))
	for _, p := range all {
		assert.Equal(t, 3, p.group.Stats().Processes)
	}
}

func TestABreakerOfOneProcessHoldsForTheFleet(t *testing.T) {
	t.Parallel()
	var dead atomic.Bool
	dead.Store(true)
	asked := make([]atomic.Int64, 3)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscan(r.Header.Get("Process"), &i); err == nil {
			asked[i].Add(1)
		}
		if dead.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(srv.Close)
	all := newBroker(t).parts(t, 3, outbound.GroupConfig{URLs: []string{srv.URL}, RPM: 900, Attempts: 1, BreakMin: 2 * time.Second})
	settled(t, 10*time.Second, all...)
	call := func(i int) *outbound.Call {
		return &outbound.Call{Header: http.Header{"Process": {fmt.Sprint(i)}}}
	}
	for range 5 {
		_, err := all[0].group.Do(t.Context(), call(0))
		require.Error(t, err)
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, p := range all[1:] {
			s := p.group.Stats().Endpoints[0]
			assert.Equal(t, outbound.Open, s.Breaker)
			assert.True(t, s.Told)
		}
	}, time.Second, 5*time.Millisecond)
	dead.Store(false)
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			if _, err := p.group.Do(t.Context(), call(i)); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
			assert.EqualValues(t, 6, asked[0].Load(), "not before the first one's probe")
		})
	}
	start := time.Now()
	wg.Wait()
	assert.Less(t, time.Since(start), 3500*time.Millisecond, "at its word, not after twice the pause")
	for _, p := range all {
		assert.Equal(t, outbound.Closed, p.group.Stats().Endpoints[0].Breaker)
	}
}

func TestSharesSurviveComingsAndGoingsAndALostBucket(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	cfg := outbound.GroupConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900}
	// A worker that is there before the bucket is waits for it.
	worker := b.part(t, "worker", false, cfg)
	assert.Zero(t, worker.group.Stats().Processes)
	gateway := b.part(t, "gateway", true, cfg)
	settled(t, 10*time.Second, worker, gateway)

	third := b.part(t, "worker", false, cfg) // Of the same name.
	require.Equal(t, 2, third.group.Stats().Processes, "it knows the others before it has spoken")
	settled(t, 10*time.Second, worker, gateway, third)

	third.tr.Close()
	settled(t, 5*time.Second, worker, gateway)
	third.fleet.Close()
	third.fleet.Close()

	require.NoError(t, gateway.js.DeleteKeyValue(t.Context(), "RL_FLEET"))
	require.Eventually(t, func() bool { return worker.group.Stats().Deaf }, 6*time.Second, 10*time.Millisecond)
	settled(t, 12*time.Second, worker, gateway)
}

func TestSharesSurviveABrokerThatForgetsEverything(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	cfg := outbound.GroupConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900}
	gateway := b.part(t, "gateway", true, cfg)
	worker := b.part(t, "worker", false, cfg)
	settled(t, 10*time.Second, worker, gateway)
	b.stop()
	require.Eventually(t, func() bool { return worker.group.Stats().Deaf && gateway.group.Stats().Deaf }, 6*time.Second, 10*time.Millisecond)
	assert.LessOrEqual(t, worker.share("requests_per_minute")+gateway.share("requests_per_minute"), 900.001)
	b.start()
	settled(t, 20*time.Second, worker, gateway)
}

func TestAFleetSaysWhyItCannotBe(t *testing.T) {
	t.Parallel()
	js := newBroker(t).js(t)
	_, err := fabric.NewFleet(t.Context(), js, fabric.FleetConfig{TTL: time.Second, Replicas: 9})
	require.ErrorContains(t, err, "must stay for 2s or more, not 1s")
	require.ErrorContains(t, err, "9 replicas")
	_, err = fabric.NewFleet(t.Context(), js, fabric.FleetConfig{Create: true, Replicas: 3})
	require.ErrorContains(t, err, "RL_FLEET")
	js.Conn().Close()
	_, err = fabric.NewFleet(t.Context(), js, fabric.FleetConfig{Create: true})
	require.ErrorIs(t, err, nats.ErrConnectionClosed)
}

func TestWhatOthersWriteIntoTheBucketDoesNoHarm(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := b.part(t, "gateway", true, outbound.GroupConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900})
	kv, err := p.js.KeyValue(t.Context(), "RL_FLEET")
	require.NoError(t, err)
	for key, value := range map[string]string{
		"p.x": "{}", "other": "{}", "p.YQ": `{"groups": {"g": {"seq": -1}}}`, "p.Yg": "nonsense", "p.Yw": `{"groups": null}`, "p.!": "",
	} {
		if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
			require.ErrorIs(t, err, jetstream.ErrInvalidKey)
		}
	}
	settled(t, 10*time.Second, p)
}
