// Package rig combines a gateway and workers with any queue, for tests: the real loop.Manager and
// workers.Worker, with scorers that fail on demand and buffers that are poisoned when released.
package rig

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Queue is the interface that a rig needs from a queue.
type Queue interface {
	loop.Queue
	loop.Presence
}

// Rig is a gateway with workers.
type Rig struct {
	Manager *loop.Manager
	Buffers *wire.Buffers
	Workers []*Worker
	source  func(worker string) workers.Source
	profile func(worker string) map[string]*rewards.Manager
	worker  Settings
	tracer  *tracing.Tracer
	t       testing.TB
}

// Settings are the settings of a worker.
type Settings struct {
	ID string
	// Places is how many samples of each profile the worker can score at the same time. 0 means
	// one.
	Places       int
	MaxAbandoned int
	Heartbeat    time.Duration
}

// Worker is one worker of a rig. Kill removes it as kill -9 would.
type Worker struct {
	*workers.Worker
	ID   string
	dead atomic.Bool
}

// Options configures a Rig.
type Options struct {
	Loop     loop.Config
	Worker   Settings // ID is set by the rig
	Workers  int
	Queue    Queue
	Source   func(worker string) workers.Source
	Profiles map[string]*rewards.Manager
	// ProfilesOf returns a worker's own profiles, with the names in Profiles. If nil, all workers
	// have Profiles.
	ProfilesOf func(worker string) map[string]*rewards.Manager
	// StepArrived and Log are passed to the manager.
	StepArrived func()
	Log         *slog.Logger
	// Spool is passed to the manager, which first restores the samples in it.
	Spool loop.Spool
	// Tracer is passed to the manager and the workers.
	Tracer *tracing.Tracer
}

// Replace starts a worker with the same settings under a new name.
func (r *Rig) Replace(id string) {
	cfg := r.worker
	cfg.ID = id
	r.Add(r.t, cfg)
}

// New starts a gateway and its workers.
func New(t testing.TB, o Options) *Rig {
	t.Helper()
	r := &Rig{Buffers: &wire.Buffers{Poison: true}, source: o.Source, profile: o.ProfilesOf, worker: o.Worker, tracer: o.Tracer, t: t}
	if r.profile == nil {
		r.profile = func(string) map[string]*rewards.Manager { return o.Profiles }
	}
	for name := range o.Profiles {
		o.Loop.Profiles = append(o.Loop.Profiles, name)
	}
	m, err := loop.New(loop.Options{Config: o.Loop, Queue: o.Queue, Presence: o.Queue, Buffers: r.Buffers, StepArrived: o.StepArrived, Spool: o.Spool, Log: o.Log, Tracer: o.Tracer})
	require.NoError(t, err)
	_, err = m.Restore()
	require.NoError(t, err)
	r.Manager = m
	m.Start(t.Context())
	for i := range o.Workers {
		o.Worker.ID = fmt.Sprintf("w%d", i)
		r.Add(t, o.Worker)
	}
	return r
}

// Source connects an additional worker, which the test implements.
func (r *Rig) Source(worker string) workers.Source { return r.source(worker) }

// Add starts an additional worker.
func (r *Rig) Add(t testing.TB, cfg Settings) *Worker {
	t.Helper()
	w := &Worker{ID: cfg.ID}
	inner, err := workers.New(workers.Options{
		Config: workers.Config{ID: cfg.ID, MaxAbandoned: cfg.MaxAbandoned, Heartbeat: cfg.Heartbeat}, Source: &mortal{Source: r.source(cfg.ID), w: w}, Gateway: &reach{m: r.Manager, w: w},
		Profiles: Served(r.profile(cfg.ID), max(cfg.Places, 1)), Decoder: noDecoder{}, Tracer: r.tracer,
	})
	require.NoError(t, err)
	w.Worker = inner
	inner.Start(t.Context())
	r.Workers = append(r.Workers, w)
	return w
}

// Queues returns the names of the queues of these profiles.
func Queues(managers map[string]*rewards.Manager) []string {
	var queues []string
	for name := range managers {
		queues = append(queues, wire.QueueName(name, ""))
	}
	return queues
}

// Served returns the profiles of these managers for a worker with the given number of places for
// each.
func Served(managers map[string]*rewards.Manager, places int) map[string]workers.Profile {
	out := make(map[string]workers.Profile, len(managers))
	for name, m := range managers {
		out[name] = workers.Profile{Manager: m, Queue: wire.QueueName(name, ""), Capacity: places}
	}
	return out
}

// Kill disconnects a worker: none of its messages arrive any more.
func (w *Worker) Kill() { w.dead.Store(true) }

// Stop ends the workers and the gateway.
func (r *Rig) Stop() {
	var wg sync.WaitGroup
	for _, w := range r.Workers {
		wg.Go(w.Stop)
	}
	r.Manager.Stop()
	wg.Wait()
}

var errDead = errors.New("worker is dead")

// mortal cuts a worker's source off once it is dead.
type mortal struct {
	workers.Source
	w *Worker
}

func (m *mortal) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	if m.w.dead.Load() {
		<-ctx.Done()
		return nil, nil
	}
	got, err := m.Source.Take(ctx, queue, n)
	for i, l := range got {
		got[i] = &mortalLease{l, m.w}
	}
	return got, err
}

func (m *mortal) Announce(info wire.WorkerInfo) {
	if !m.w.dead.Load() {
		m.Source.Announce(info)
	}
}

type mortalLease struct {
	workers.Lease
	w *Worker
}

func (l *mortalLease) Extend(ctx context.Context) error {
	if l.w.dead.Load() {
		return errDead
	}
	return l.Lease.Extend(ctx)
}

func (l *mortalLease) Done() {
	if !l.w.dead.Load() {
		l.Lease.Done()
	}
}

func (l *mortalLease) Return(after time.Duration) {
	if !l.w.dead.Load() {
		l.Lease.Return(after)
	}
}

// reach cuts a worker's gateway off once it is dead.
type reach struct {
	m *loop.Manager
	w *Worker
}

func (g *reach) ClaimGroup(ctx context.Context, t wire.Ticket, worker string) (*wire.Group, error) {
	if g.w.dead.Load() {
		return nil, errDead
	}
	return g.m.ClaimGroup(ctx, t, worker)
}

func (g *reach) Claim(ctx context.Context, t wire.Ticket, worker string) (*wire.Frame, []rewards.ComponentResult, error) {
	if g.w.dead.Load() {
		return nil, nil, errDead
	}
	return g.m.Claim(ctx, t, worker)
}

func (g *reach) Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error {
	if g.w.dead.Load() {
		return errDead
	}
	return g.m.Finish(ctx, t, res)
}

type noDecoder struct{}

func (noDecoder) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	return nil, fmt.Errorf("%w: the rig has no decoder", rewards.BadInput)
}

// Sample returns a sample with a raw payload of n bytes (a multiple of 3), which is derived from
// its id, so that its score can be computed from its own bytes.
func Sample(id string, n int) *rewards.Sample {
	data := make([]byte, n)
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	x := h.Sum64()
	for i := range data {
		x = x*6364136223846793005 + 1442695040888963407
		data[i] = byte(x >> 56)
	}
	return &rewards.Sample{ID: id, Media: []*rewards.Media{{
		Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{1, n / 3, 3}, Data: data,
	}}}
}

// Hash returns the score of a sample: a number in [0, 1) that is computed from its bytes.
func Hash(s *rewards.Sample) float64 {
	h := fnv.New64a()
	for _, m := range s.Media {
		_, _ = h.Write(m.Data) // never fails
	}
	return float64(binary.BigEndian.Uint64(h.Sum(nil))>>11) / (1 << 53)
}
