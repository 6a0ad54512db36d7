package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Queue is a gateway's side of NATS: it publishes tickets and has the list of live workers.
type Queue struct {
	*bus

	presence *presence
	gateways *gateways
	keeper   *keeper
	restored atomic.Pointer[func()]
	claim    atomic.Pointer[string] // where its tickets' payloads are claimed; nil: in this process
	queues   queues

	mu     sync.Mutex
	roused map[string]time.Time // when it last said that tickets come, by queue; guarded by mu
}

var (
	_ loop.Queue     = (*Queue)(nil)
	_ loop.Presence  = (*Queue)(nil)
	_ workers.Source = (*Source)(nil)
	_ workers.Lease  = (*lease)(nil)
)

// Open starts NATS, or connects to it, and creates the stream for tickets.
func Open(ctx context.Context, cfg Config) (_ *Queue, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Queue{queues: queues{made: map[string]time.Time{}}, roused: map[string]time.Time{}}
	f.keeper = newKeeper(f)
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if f.bus, err = openBus(ctx, cfg, gatewayInbox, f.keeper.restored); err != nil {
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
	if f.presence, err = watch(f.nc, cfg.Gone, f.keeper.changed); err != nil {
		return nil, err
	}
	f.keeper.start()
	return f, nil
}

// NewSource connects a worker of this process to its queues of NATS.
func (f *Queue) NewSource(worker string, queues []string) (*Source, error) {
	for _, queue := range queues {
		if err := f.ensure(context.Background(), queue); err != nil {
			return nil, err
		}
	}
	return newSource(f.bus, worker, queues)
}

// Advertise sets the address at which workers of other processes claim the payloads of this
// gateway's tickets. Before Advertise, only workers of this process can claim them.
func (f *Queue) Advertise(claim string) { f.claim.Store(&claim) }

// OnRestored sets fn, which is called whenever a lost connection is restored. NATS may then be
// another server that has none of the tickets.
func (f *Queue) OnRestored(fn func()) { f.restored.Store(&fn) }

// Alive reports whether a gateway has announced itself recently, or could not have been received.
func (f *Queue) Alive(gateway string) bool { return f.gateways.alive(gateway) }

// Connected reports whether the process is connected to NATS.
func (f *Queue) Connected() bool { return f.nc.IsConnected() }

// Address returns the host:port at which the NATS server of this process accepts connections, or ""
// if it accepts none.
func (f *Queue) Address() string { return f.address() }

// Fleet returns the state that all processes share for limits and breakers. It must be closed
// before the Queue.
func (f *Queue) Fleet(ctx context.Context) (*Fleet, error) { return f.openFleet(ctx, true) }

// Close ends the connection, and this process's own server if it has one. All Sources must be
// closed before.
func (f *Queue) Close() {
	f.keeper.stop()
	if f.bus != nil {
		f.close()
	}
}

// Publish publishes a ticket in the stream. It does not request an acknowledgement, which would
// cost a tenth of all memory allocations for a small sample: the gateway publishes an unclaimed
// ticket again, and counts the repetition.
func (f *Queue) Publish(_ context.Context, t wire.Ticket) error {
	if at := f.claim.Load(); at != nil && f.cfg.Sign != nil {
		t.Claim, t.Token = *at, f.cfg.Sign(t.Key())
	}
	data, err := t.Encode()
	if err != nil {
		return fmt.Errorf("queue: ticket of sample %q: %w", t.ID, err)
	}
	id := t.Gateway + "/" + t.Run + "/" + strconv.FormatUint(t.Epoch, 36) + "/" + t.ID + "/" + strconv.Itoa(t.Attempt)
	if err := f.rouse(t.Queue); err != nil {
		return fmt.Errorf("queue: ticket of sample %q: %w", t.ID, err)
	}
	msg := &nats.Msg{Subject: ticketSubjects + t.Queue, Header: nats.Header{nats.MsgIdHdr: {id}}, Data: data}
	if err := f.nc.PublishMsg(msg); err != nil {
		return fmt.Errorf("queue: ticket of sample %q: %w", t.ID, err)
	}
	return nil
}

// rouseEvery is how often a gateway says of a queue to which it publishes that tickets come.
// A process that hears nothing for livelyFor asks seldom, although others get the tickets.
const rouseEvery = livelyFor / 2

// rouse says to the processes that take from a queue that tickets come, and for how many
// workers. Where the word is lost a process goes on asking seldom: its share is smaller for a
// while, and the ticket goes to another, or to its slow pull.
func (f *Queue) rouse(queue string) error {
	now := time.Now()
	f.mu.Lock()
	before, known := f.roused[queue]
	lately := known && now.Sub(before) < rouseEvery
	valid := known || isQueueName(queue)
	if valid && !lately {
		if len(f.roused) >= mostQueues {
			clear(f.roused)
		}
		f.roused[queue] = now
	}
	f.mu.Unlock()
	switch {
	case !valid:
		return fmt.Errorf("%q is not a valid queue name: make the name with wire.QueueName", queue)
	case lately:
		return nil
	}
	if err := f.nc.Publish(wakeSubject+queue, strconv.AppendInt(nil, int64(f.presence.serving(queue)), 10)); err != nil {
		f.cfg.Log.Debug("workers of a queue were not notified of new samples", "queue", queue, "error", err)
	}
	return nil
}

// Revoke notifies every source that an attempt has ended. Sources end its lease, or drop its ticket
// if it is still in transit.
func (f *Queue) Revoke(_ context.Context, key wire.AttemptKey) error {
	data, err := json.Marshal(key)
	if err != nil {
		return fmt.Errorf("queue: revoke of sample %q: %w", key.ID, err)
	}
	if err := f.nc.Publish(revokeSubject, data); err != nil {
		return fmt.Errorf("queue: revoke of sample %q: %w", key.ID, err)
	}
	return nil
}

// Workers returns the live workers, sorted by id.
func (f *Queue) Workers() []wire.WorkerInfo { return f.presence.workers(time.Now()) }
