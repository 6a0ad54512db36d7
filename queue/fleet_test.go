package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/queue"
)

// part is what a process has: a connection, its fleet, and a group.
type part struct {
	fleet *queue.Fleet
	js    jetstream.JetStream
	tr    *outbound.Transport
	group *outbound.Upstream
}

func (b *broker) part(t *testing.T, name string, create bool, cfg outbound.UpstreamConfig) *part {
	t.Helper()
	js := b.js(t)
	fleet, err := queue.NewFleet(t.Context(), js, queue.FleetConfig{Name: name, Create: create})
	require.NoError(t, err)
	t.Cleanup(fleet.Close)
	p := partOf(t, fleet, cfg)
	p.js = js
	return p
}

// partOf joins a fleet that is there, with a group of its own.
func partOf(t *testing.T, fleet *queue.Fleet, cfg outbound.UpstreamConfig) *part {
	t.Helper()
	p := &part{fleet: fleet}
	var err error
	p.tr, err = outbound.NewTransport(outbound.Policy{})
	require.NoError(t, err)
	t.Cleanup(p.tr.Close)
	p.group, err = p.tr.Upstream(cfg)
	require.NoError(t, err)
	p.tr.Join(p.fleet, false)
	return p
}

// parts starts n, of which the first makes the bucket.
func (b *broker) parts(t *testing.T, n int, cfg outbound.UpstreamConfig) []*part {
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
func settled(t *testing.T, some ...*part) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, p := range some {
			s := p.group.Stats()
			assert.Equal(t, len(some), s.Processes)
			assert.False(t, s.Partitioned)
			assert.InDelta(t, 900/float64(len(some)), p.share("requests_per_minute"), 1)
		}
	}, soon, 20*time.Millisecond)
}

func TestThreeProcessesOfAFleetKeepToOneLimit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	var served atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	t.Cleanup(srv.Close)
	const perSecond = 100
	all := newBroker(t).parts(t, 3, outbound.UpstreamConfig{URLs: []string{srv.URL}, RPM: 60 * perSecond, Concurrency: 30})
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
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const failures = 5
	var dead atomic.Bool
	dead.Store(true)
	var all []*part
	asked := make([]atomic.Int64, 3)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.Header.Get("Process"))
		if assert.NoError(t, err) {
			asked[i].Add(1)
		}
		if i > 0 {
			assert.EqualValues(t, failures+1, asked[0].Load(), "not before the first one's probe")
			assert.Equal(t, outbound.Closed, all[i].group.Stats().Endpoints[0].Breaker, "at the first one's word, not as a probe of its own")
		}
		if dead.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(srv.Close)
	// A process that does not hear the word of the first one's probe makes its own, as long
	// after it as the pause is: so slow may a busy machine be.
	all = newBroker(t).parts(t, len(asked), outbound.UpstreamConfig{URLs: []string{srv.URL}, RPM: 900, Attempts: 1, BreakMin: 5 * time.Second})
	settled(t, all...)
	call := func(i int) *outbound.Call {
		return &outbound.Call{Header: http.Header{"Process": {strconv.Itoa(i)}}}
	}
	for range failures {
		_, err := all[0].group.Do(t.Context(), call(0))
		require.Error(t, err)
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, p := range all[1:] {
			s := p.group.Stats().Endpoints[0]
			assert.Equal(t, outbound.Open, s.Breaker)
			assert.True(t, s.Told)
		}
	}, soon, 5*time.Millisecond)
	dead.Store(false)
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			_, err := p.group.Do(t.Context(), call(i))
			assert.NoError(t, err, i)
		})
	}
	wg.Wait()
	for i, p := range all {
		assert.Equal(t, outbound.Closed, p.group.Stats().Endpoints[0].Breaker)
		assert.EqualValues(t, []int{failures + 1, 1, 1}[i], asked[i].Load())
	}
}

func TestSharesSurviveComingsAndGoingsAndALostBucket(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	b := newBroker(t)
	cfg := outbound.UpstreamConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900}
	// A worker that is there before the bucket is waits for it.
	worker := b.part(t, "worker", false, cfg)
	assert.Zero(t, worker.group.Stats().Processes)
	gateway := b.part(t, "gateway", true, cfg)
	settled(t, worker, gateway)

	third := b.part(t, "worker", false, cfg) // Of the same name.
	require.Equal(t, 2, third.group.Stats().Processes, "it knows the others before it has spoken")
	settled(t, worker, gateway, third)

	third.tr.Close()
	settled(t, worker, gateway)
	third.fleet.Close()
	third.fleet.Close()

	require.NoError(t, gateway.js.DeleteKeyValue(t.Context(), "RL_FLEET"))
	require.Eventually(t, func() bool { return worker.group.Stats().Partitioned }, soon, 10*time.Millisecond)
	settled(t, worker, gateway)
}

func TestSharesSurviveABrokerThatForgetsEverything(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	b := newBroker(t)
	cfg := outbound.UpstreamConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900}
	gateway := b.part(t, "gateway", true, cfg)
	worker := b.part(t, "worker", false, cfg)
	settled(t, worker, gateway)
	b.stop()
	require.Eventually(t, func() bool { return worker.group.Stats().Partitioned && gateway.group.Stats().Partitioned }, soon, 10*time.Millisecond)
	assert.LessOrEqual(t, worker.share("requests_per_minute")+gateway.share("requests_per_minute"), 900.001)
	b.start()
	settled(t, worker, gateway)
}

func TestAFleetSaysWhyItCannotBe(t *testing.T) {
	t.Parallel()
	js := newBroker(t).js(t)
	_, err := queue.NewFleet(t.Context(), js, queue.FleetConfig{Create: true, Replicas: 3})
	require.ErrorContains(t, err, "RL_FLEET")
	js.Conn().Close()
	_, err = queue.NewFleet(t.Context(), js, queue.FleetConfig{Create: true})
	require.ErrorIs(t, err, nats.ErrConnectionClosed)
}

func TestWhatOthersWriteIntoTheBucketDoesNoHarm(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	b := newBroker(t)
	p := b.part(t, "gateway", true, outbound.UpstreamConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900})
	kv, err := p.js.KeyValue(t.Context(), "RL_FLEET")
	require.NoError(t, err)
	for key, value := range map[string]string{
		"p.x": "{}", "other": "{}", "p.YQ": `{"groups": {"g": {"seq": -1}}}`, "p.Yg": "nonsense", "p.Yw": `{"groups": null}`, "p.!": "",
	} {
		if _, err := kv.Put(t.Context(), key, []byte(value)); err != nil {
			require.ErrorIs(t, err, jetstream.ErrInvalidKey)
		}
	}
	settled(t, p)
}

func TestAGatewayAndAWorkerOfANATSAreOneFleet(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Name: "gw"})
	m := join(t, queue.Config{URLs: []string{"nats://" + f.Address()}, Name: "w"})
	all := make([]*part, 2)
	for i, take := range []func(context.Context) (*queue.Fleet, error){f.Fleet, m.Fleet} {
		fleet, err := take(t.Context())
		require.NoError(t, err)
		t.Cleanup(fleet.Close)
		all[i] = partOf(t, fleet, outbound.UpstreamConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900})
	}
	settled(t, all...)
}

func TestAFleetWhoseNATSHasGoneEndsAllTheSame(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	b := newBroker(t)
	p := b.part(t, "gateway", true, outbound.UpstreamConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900})
	settled(t, p)
	b.stop()
	require.Eventually(t, func() bool { return !p.js.Conn().IsConnected() }, soon, time.Millisecond)
	p.tr.Close()
	p.fleet.Close()
}

// counting is a member of a group that counts what it is told and says what a test wants.
type counting struct {
	report outbound.Report
	heard  atomic.Int64
}

func (d *counting) Report() outbound.Report { return d.report }

func (d *counting) Heard(string, *outbound.Report) { d.heard.Add(1) }

func TestASecondGroupOfANameIsNotInTheFleet(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	fleet, err := queue.NewFleet(t.Context(), newBroker(t).js(t), queue.FleetConfig{Name: "p", Create: true})
	require.NoError(t, err)
	t.Cleanup(fleet.Close)
	first, second := &counting{}, &counting{}
	fleet.Join("g", first)
	leave := fleet.Join("g", second)
	require.Eventually(t, func() bool { return first.heard.Load() > 0 }, soon, time.Millisecond)
	leave() // It has no place to give up.
	heard := first.heard.Load()
	require.Eventually(t, func() bool { return first.heard.Load() > heard }, soon, time.Millisecond, "the first one keeps its place")
	require.Zero(t, second.heard.Load())
}

func TestAWordThatIsTooLongForTheFleetIsNotSaidAndThatIsLogged(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	js := newBroker(t).js(t)
	fleet, err := queue.NewFleet(t.Context(), js, queue.FleetConfig{Name: "p", Create: true, Log: slog.New(slog.NewTextHandler(book, nil))})
	require.NoError(t, err)
	t.Cleanup(fleet.Close)
	fleet.Join("g", &counting{report: outbound.Report{Alive: []string{strings.Repeat("x", 300<<10)}}})
	require.Eventually(t, func() bool { return strings.Contains(book.String(), "1 groups need") }, soon, time.Millisecond)
	kv, err := js.KeyValue(t.Context(), "RL_FLEET")
	require.NoError(t, err)
	keys, err := kv.Keys(t.Context())
	require.ErrorIs(t, err, jetstream.ErrNoKeysFound, keys)
}

// A worker is often there before the gateway that makes the bucket.
func TestAProcessWithoutABucketLooksForItOnceASecond(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	b := newBroker(t)
	var asked, said atomic.Int64
	nc, err := nats.Connect(b.url())
	require.NoError(t, err)
	defer nc.Close()
	for subject, n := range map[string]*atomic.Int64{"$JS.API.STREAM.INFO.KV_RL_FLEET": &asked, "$KV.RL_FLEET.>": &said} {
		_, err = nc.Subscribe(subject, func(*nats.Msg) { n.Add(1) })
		require.NoError(t, err)
	}
	require.NoError(t, nc.Flush())
	start := time.Now()
	b.part(t, "worker", false, outbound.UpstreamConfig{URLs: []string{"http://127.0.0.1:9"}, RPM: 900})
	require.Eventually(t, func() bool { return asked.Load() >= 4 }, soon, 10*time.Millisecond)
	seconds := int64(time.Since(start) / time.Second)
	assert.LessOrEqual(t, asked.Load(), seconds+3)
	assert.LessOrEqual(t, said.Load(), seconds+4)
}
