package fabric

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Fabric is a gateway's side of the engine: it publishes tickets and knows the workers.
type Fabric struct {
	*bus

	presence *presence
	gateways *gateways
	keeper   *keeper
	restored atomic.Pointer[func()]
	claim    atomic.Pointer[string] // where its tickets' payloads are claimed; nil: in this process

	mu    sync.Mutex
	seats map[string]int // sources in this process by worker, where tickets are addressed; guarded by mu
}

var (
	_ loop.Engine    = (*Fabric)(nil)
	_ loop.Presence  = (*Fabric)(nil)
	_ workers.Source = (*Source)(nil)
	_ workers.Lease  = (*lease)(nil)
)

// Open starts the engine, or connects to it, and makes what tickets need there.
func Open(ctx context.Context, cfg Config) (_ *Fabric, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Fabric{seats: map[string]int{}}
	f.keeper = newKeeper(f)
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if f.bus, err = openBus(ctx, cfg, gatewayInbox, f.keeper.lost); err != nil {
		return nil, err
	}
	dctx, cancel := context.WithTimeout(ctx, cfg.Patience)
	defer cancel()
	if err := f.settle(dctx); err != nil {
		return nil, err
	}
	if f.gateways, err = listen(f.nc, cfg.Gone); err != nil {
		return nil, err
	}
	if f.presence, err = watch(f.nc, cfg.Gone, f.keeper.appeared); err != nil {
		return nil, err
	}
	f.keeper.start()
	return f, nil
}

// settle declares what this process needs. A cluster that has just begun has no leader for
// some seconds.
func (f *Fabric) settle(ctx context.Context) error {
	for {
		err := f.declareAll(ctx)
		if err == nil || f.server != nil || refused(err) {
			return err
		}
		f.cfg.Log.WarnContext(ctx, "the engine is not ready; trying again", "error", err)
		t := time.NewTimer(retryAfter)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

// declareAll makes the stream and what the workers of this process need.
func (f *Fabric) declareAll(ctx context.Context) error {
	if err := f.declare(ctx); err != nil {
		return err
	}
	if !f.cfg.Addressed {
		return f.consumer(ctx, consumerOfPool(f.cfg.Pool), poolSubject+f.cfg.Pool)
	}
	f.mu.Lock()
	seated := slices.Collect(maps.Keys(f.seats))
	f.mu.Unlock()
	for _, worker := range seated {
		if err := f.consumer(ctx, consumerOf(worker), subjectOf(worker)); err != nil {
			return err
		}
	}
	return nil
}

// refused reports an answer that will not change by asking again.
func refused(err error) bool {
	return errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || errors.Is(err, nats.ErrPermissionViolation)
}

// declare makes the stream.
func (f *Fabric) declare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	storage := jetstream.MemoryStorage
	if f.cfg.Durable {
		storage = jetstream.FileStorage
	}
	_, err := f.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{allTickets}, Storage: storage, Replicas: f.cfg.Replicas,
		Retention: jetstream.WorkQueuePolicy, MaxMsgs: f.cfg.MaxTickets, Discard: jetstream.DiscardNew,
		// A ticket that is published again within 2 s is the same one. The ids of that
		// time are what the window costs, in memory that the garbage collector walks:
		// 20,000 at 10,000 tickets/s. A later repetition is refused at the claim.
		Duplicates: 2 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("fabric: stream: %w", err)
	}
	return nil
}

// subjectOf and consumerOf are of the tickets for one worker, whose name may hold what
// neither may; consumerOfPool is of those for a pool.
func subjectOf(worker string) string { return workerSubject + encoded(worker) }

func consumerOf(worker string) string { return "to-" + encoded(worker) }

func consumerOfPool(pool string) string { return "pool-" + pool }

func encoded(worker string) string { return base64.RawURLEncoding.EncodeToString([]byte(worker)) }

// consumer makes what hands out the tickets of a subject.
func (f *Fabric) consumer(ctx context.Context, name, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := f.js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: subject, AckPolicy: jetstream.AckExplicitPolicy, AckWait: f.cfg.Lease, MemoryStorage: !f.cfg.Durable,
		MaxAckPending: -1, // what is out is bounded by the slots that asked
		MaxDeliver:    -1, // the gateway counts attempts
		MaxWaiting:    1 << 14,
		// Requests say themselves whether they wait at the front or at the back.
		PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{pullGroup},
	})
	if err != nil {
		return fmt.Errorf("fabric: consumer %s: %w", name, err)
	}
	return nil
}

// NewSource connects a worker of this process to the engine.
func (f *Fabric) NewSource(worker string) (*Source, error) {
	if f.cfg.Addressed {
		if err := f.seat(worker); err != nil {
			return nil, err
		}
	}
	s, err := newSource(f.bus, worker, func() int { return len(f.Workers()) })
	if err != nil {
		return nil, err
	}
	if f.cfg.Addressed {
		s.gone = f.unseat
	}
	return s, nil
}

// seat makes the consumer of a worker's own tickets.
func (f *Fabric) seat(worker string) error {
	f.mu.Lock()
	f.seats[worker]++
	f.mu.Unlock()
	return f.consumer(context.Background(), consumerOf(worker), subjectOf(worker))
}

// unseat forgets a worker that has gone, and the tickets that only it could have taken:
// their gateway has drawn others for them, or does when it sees that it is gone.
func (f *Fabric) unseat(worker string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	f.mu.Lock()
	f.seats[worker]--
	left := f.seats[worker]
	if left <= 0 {
		delete(f.seats, worker)
	}
	f.mu.Unlock()
	if left > 0 { // it came back before its old connection was given up
		return
	}
	err := f.js.DeleteConsumer(ctx, streamName, consumerOf(worker))
	if err == nil {
		err = f.purge(ctx, worker)
	}
	if err != nil {
		f.cfg.Log.Debug("tickets of a worker that has gone stay behind", "worker", worker, "error", err)
	}
}

// purge drops the tickets that only one worker could have taken.
func (f *Fabric) purge(ctx context.Context, worker string) error {
	stream, err := f.js.Stream(ctx, streamName)
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(subjectOf(worker)))
}

// Advertise says where workers of other processes claim what this gateway's tickets are
// for. Until then only those of this process can.
func (f *Fabric) Advertise(claim string) { f.claim.Store(&claim) }

// OnRestored has fn called whenever a connection that was lost is back, and with it perhaps
// another engine, which knows none of the tickets.
func (f *Fabric) OnRestored(fn func()) { f.restored.Store(&fn) }

// Alive reports whether a gateway has been heard of late, or could not have been.
func (f *Fabric) Alive(gateway string) bool { return f.gateways.alive(gateway) }

// Connected reports whether the engine can be reached now.
func (f *Fabric) Connected() bool { return f.nc.IsConnected() }

// Address is where the engine of this process takes others, as host:port; "" where it
// takes nobody.
func (f *Fabric) Address() string { return f.address() }

// Fleet makes what limits and breakers of all processes are shared by. It must be closed
// before the Fabric.
func (f *Fabric) Fleet(ctx context.Context) (*Fleet, error) { return f.openFleet(ctx, true) }

// Close ends this process's part of the engine. Sources must have been closed before.
func (f *Fabric) Close() {
	f.keeper.stop()
	if f.bus != nil {
		f.close()
	}
}

// Publish hands a ticket to the stream. It asks for no answer, which would cost a
// tenth of all that a small sample allocates on its way: the gateway publishes a
// ticket again that nobody claims, and counts it.
func (f *Fabric) Publish(_ context.Context, t wire.Ticket) error {
	if at := f.claim.Load(); at != nil && f.cfg.Sign != nil {
		t.Claim, t.Token = *at, f.cfg.Sign(t.Key())
	}
	data, err := t.Encode()
	if err != nil {
		return fmt.Errorf("fabric: ticket of sample %q: %w", t.ID, err)
	}
	id := t.Gateway + "/" + t.Run + "/" + strconv.FormatUint(t.Epoch, 36) + "/" + t.ID + "/" + strconv.Itoa(t.Attempt)
	msg := &nats.Msg{Subject: subjectFor(t), Header: nats.Header{nats.MsgIdHdr: {id}}, Data: data}
	if err := f.nc.PublishMsg(msg); err != nil {
		return fmt.Errorf("fabric: ticket of sample %q: %w", t.ID, err)
	}
	return nil
}

// subjectFor is where a ticket goes.
func subjectFor(t wire.Ticket) string {
	switch {
	case t.To != "":
		return subjectOf(t.To)
	case t.Pool != "":
		return poolSubject + t.Pool
	}
	return poolSubject + poolAny
}

// Revoke tells every source that an attempt is over: a lease of it ends, a ticket
// that is still on its way is swallowed.
func (f *Fabric) Revoke(_ context.Context, key wire.AttemptKey) error {
	data, err := json.Marshal(key)
	if err != nil {
		return fmt.Errorf("fabric: revoke of sample %q: %w", key.ID, err)
	}
	if err := f.nc.Publish(revokeSubject, data); err != nil {
		return fmt.Errorf("fabric: revoke of sample %q: %w", key.ID, err)
	}
	return nil
}

// Workers returns the live workers, by id.
func (f *Fabric) Workers() []wire.WorkerInfo { return f.presence.workers(time.Now()) }
