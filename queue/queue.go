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

// Queue is a gateway's side of NATS: it publishes tickets and knows the workers.
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

// Open starts NATS, or connects to it, and makes what tickets need there.
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

// NewSource connects a worker of this process to the queues of NATS that it takes from.
func (f *Queue) NewSource(worker string, queues []string) (*Source, error) {
	for _, queue := range queues {
		if err := f.ensure(context.Background(), queue); err != nil {
			return nil, err
		}
	}
	return newSource(f.bus, worker, queues)
}

// Advertise says where workers of other processes claim what this gateway's tickets are
// for. Until then only those of this process can.
func (f *Queue) Advertise(claim string) { f.claim.Store(&claim) }

// OnRestored has fn called whenever a connection that was lost is back, and with it perhaps
// another NATS, which knows none of the tickets.
func (f *Queue) OnRestored(fn func()) { f.restored.Store(&fn) }

// Alive reports whether a gateway has been heard of late, or could not have been.
func (f *Queue) Alive(gateway string) bool { return f.gateways.alive(gateway) }

// Connected reports whether NATS can be reached now.
func (f *Queue) Connected() bool { return f.nc.IsConnected() }

// Address is where NATS of this process takes others, as host:port; "" where it
// takes nobody.
func (f *Queue) Address() string { return f.address() }

// Fleet makes what limits and breakers of all processes are shared by. It must be closed
// before the Queue.
func (f *Queue) Fleet(ctx context.Context) (*Fleet, error) { return f.openFleet(ctx, true) }

// Close ends this process's part of NATS. Sources must have been closed before.
func (f *Queue) Close() {
	f.keeper.stop()
	if f.bus != nil {
		f.close()
	}
}

// Publish hands a ticket to the stream. It asks for no answer, which would cost a
// tenth of all that a small sample allocates on its way: the gateway publishes a
// ticket again that nobody claims, and counts it.
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

// Revoke tells every source that an attempt is over: a lease of it ends, a ticket
// that is still on its way is swallowed.
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

// Workers returns the live workers, by id.
func (f *Queue) Workers() []wire.WorkerInfo { return f.presence.workers(time.Now()) }
