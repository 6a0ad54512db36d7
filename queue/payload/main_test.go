package payload_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gatewayName = "gateway-1"

// soon is how long a busy machine may take for what happens at once.
const soon = 20 * time.Second

// store is a gateway with payloads and nothing else.
type store struct {
	buffers wire.Buffers

	mu       sync.Mutex
	frames   map[string]*wire.Frame // one reference of its own each
	partials map[string][]rewards.ComponentResult
	groups   map[string]*wire.Group // Members: frames of the store
	claims   map[string]int
	results  []*wire.Result
	finishes int
	finish   func(*wire.Result) error // nil: take it
	hold     chan struct{}            // claims wait for it
}

func newStore() *store {
	return &store{
		buffers: wire.Buffers{Poison: true}, frames: map[string]*wire.Frame{}, groups: map[string]*wire.Group{}, claims: map[string]int{},
		partials: map[string][]rewards.ComponentResult{},
	}
}

// add puts a sample of about size bytes into the store and returns its ticket.
func (s *store) add(tb testing.TB, id string, size int) wire.Ticket {
	tb.Helper()
	pixels := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{byte(size), byte(len(id)), id[len(id)-1]})
	_, _ = rng.Read(pixels)
	m, err := wire.Encode(&rewards.Sample{
		ID: id, Run: "run", Prompt: "a red square",
		Media: []*rewards.Media{{Kind: rewards.Latent, Encoding: rewards.Raw, Layout: "L", DType: "F32", Shape: []int{max(1, size/4)}, Data: pixels[:max(1, size/4)*4]}},
	}, wire.Options{})
	require.NoError(tb, err)
	f, err := wire.NewFrame(m, &s.buffers)
	require.NoError(tb, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.frames[id]; old != nil {
		old.Release()
	}
	s.frames[id] = f
	return wire.Ticket{ID: id, Run: "run", Epoch: 3, Gateway: gatewayName, Attempt: 1, Bytes: f.Size(), Deadline: time.Now().Add(time.Minute)}
}

func (s *store) Claim(ctx context.Context, t wire.Ticket, _ string) (*wire.Frame, []rewards.ComponentResult, error) {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[t.ID]++
	f := s.frames[t.ID]
	if f == nil || t.Attempt != 1 {
		return nil, nil, wire.ErrGone
	}
	return f.Retain(), s.partials[t.ID], nil
}

func (s *store) ClaimGroup(_ context.Context, t wire.Ticket, _ string) (*wire.Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[t.ID]++
	g := s.groups[t.ID]
	if g == nil {
		return nil, wire.ErrGone
	}
	out := *g
	for _, m := range g.Members {
		m.Frame.Retain()
	}
	return &out, nil
}

func (s *store) Finish(_ context.Context, _ wire.Ticket, res *wire.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishes++
	if s.finish != nil {
		if err := s.finish(res); err != nil {
			return err
		}
	}
	s.results = append(s.results, res)
	return nil
}

func (s *store) taken() []*wire.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*wire.Result{}, s.results...)
}

// empty releases the store's own references and requires that nobody else has any.
func (s *store) empty(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	for id, f := range s.frames {
		f.Release()
		delete(s.frames, id)
	}
	s.mu.Unlock()
	assert.Eventually(tb, func() bool { return s.buffers.Live() == 0 }, soon, time.Millisecond, "frames that are still held: %d bytes", s.buffers.Live())
}

// rig is a gateway with a claim address.
type rig struct {
	t      testing.TB
	store  *store
	key    *payload.Key
	server *payload.Server
	http   *httptest.Server
	reg    *prometheus.Registry
	lost   chan []string
}

type option func(*payload.ServerOptions)

func newRig(tb testing.TB, opts ...option) *rig {
	tb.Helper()
	return newTLSRig(tb, false, opts...)
}

func newTLSRig(tb testing.TB, encrypted bool, opts ...option) *rig {
	tb.Helper()
	r := &rig{t: tb, store: newStore(), key: payload.NewKey(), reg: prometheus.NewRegistry(), lost: make(chan []string, 16)}
	opt := payload.ServerOptions{
		Gateway: r.store, Name: gatewayName, Key: r.key, Metrics: r.reg, Lost: func(names []string) { r.lost <- names },
	}
	for _, f := range opts {
		f(&opt)
	}
	var err error
	r.server, err = payload.NewServer(opt)
	require.NoError(tb, err)
	r.http = httptest.NewUnstartedServer(r.server)
	if encrypted {
		r.http.StartTLS()
	} else {
		r.http.Start()
	}
	tb.Cleanup(func() {
		r.server.Close()
		r.http.Close()
		r.store.empty(tb)
	})
	return r
}

func (r *rig) url() string { return "ws" + strings.TrimPrefix(r.http.URL, "http") + "/v1/claim" }

// ticket adds a sample and returns a ticket that is ready to be claimed.
func (r *rig) ticket(id string, size int) wire.Ticket { return r.sign(r.store.add(r.t, id, size)) }

func (r *rig) sign(t wire.Ticket) wire.Ticket {
	t.Claim, t.Token = r.url(), r.key.Sign(t.Key(), time.Now().Add(time.Minute))
	return t
}

// worker is a client with poisoned buffers of its own.
type worker struct {
	*payload.Client

	buffers *wire.Buffers
	reg     *prometheus.Registry
}

func newWorker(tb testing.TB, opts ...func(*payload.ClientOptions)) *worker {
	tb.Helper()
	w := &worker{buffers: &wire.Buffers{Poison: true}, reg: prometheus.NewRegistry()}
	opt := payload.ClientOptions{Config: payload.Config{DialPatience: soon}, Buffers: w.buffers, Metrics: w.reg}
	for _, f := range opts {
		f(&opt)
	}
	var err error
	w.Client, err = payload.NewClient(opt)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		w.Close()
		assert.Zero(tb, w.buffers.Live(), "bytes that the worker still holds")
	})
	return w
}

// counter returns the sum of a metric over its labels; want restricts them.
func counter(tb testing.TB, reg *prometheus.Registry, name string, want ...string) float64 {
	tb.Helper()
	families, err := reg.Gather()
	require.NoError(tb, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for _, w := range want {
				ok := false
				for _, l := range m.GetLabel() {
					ok = ok || l.GetValue() == w
				}
				if !ok {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

func scored(t wire.Ticket, by string, score float64) *wire.Result {
	return &wire.Result{
		ID: t.ID, Outcome: rewards.Scored, RewardScore: &score, Worker: by, Attempt: t.Key(), TimingMS: map[string]float64{"score": 1.5},
		ExtraInfo: map[string]any{"acc": score, "n": int64(4)},
	}
}

func name(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// unpoisoned leaves the memory of large payloads as it is: under the race detector filling
// 100 MiB takes longer than everything else.
func unpoisoned(r *rig, w *worker, size int) {
	if size > 8<<20 {
		r.store.buffers.Poison, w.buffers.Poison = false, false
	}
}
