package fabric

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Names on the bus.
const (
	streamName      = "RL_TICKETS"
	consumerName    = "slots"
	pullGroup       = "all"
	ticketSubject   = "rl.ticket.any"
	workerSubject   = "rl.ticket.to." // and the worker's name, encoded
	revokeSubject   = "rl.revoke"
	presenceSubject = "rl.presence"
)

// Config bounds the engine. The zero value of a field takes its default.
type Config struct {
	// Lease is how long a worker may be silent before its tickets go to others.
	// Defaults to 15 s.
	Lease time.Duration
	// PullMin and PullMax bound the random life of a pull request. Default to 10 ms
	// and 100 ms.
	PullMin, PullMax time.Duration
	// Gone is how long a worker may be silent before it no longer counts as live.
	// Defaults to 5 s; workers announce themselves every second.
	Gone time.Duration
	// MaxTickets bounds the stream. Defaults to 1,000,000 (about 300 MB).
	MaxTickets int64
	// Addressed says that every ticket names the one worker it is for (Ticket.To), as
	// under loop.RandomBlind. Sources then ask for those only.
	Addressed bool
	// Log takes what goes wrong in the background; nil: discarded.
	Log *slog.Logger
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.PullMin = cmp.Or(c.PullMin, 10*time.Millisecond)
	c.PullMax = cmp.Or(c.PullMax, 100*time.Millisecond)
	c.Gone = cmp.Or(c.Gone, 5*time.Second)
	c.MaxTickets = cmp.Or(c.MaxTickets, 1_000_000)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Lease < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("fabric: a lease of %v is too short; want 100 ms or more", c.Lease))
	}
	if c.PullMin <= 0 || c.PullMax <= c.PullMin {
		errs = append(errs, fmt.Errorf("fabric: pull requests need 0 < pull_min < pull_max, not %v and %v", c.PullMin, c.PullMax))
	}
	if c.MaxTickets < 1 {
		errs = append(errs, errors.New("fabric: max_tickets must be positive"))
	}
	return errors.Join(errs...)
}

// Fabric is the engine embedded in this process.
type Fabric struct {
	cfg      Config
	server   *server.Server
	dir      string
	nc       *nats.Conn
	js       jetstream.JetStream
	presence *presence

	mu      sync.Mutex
	workers map[string]int // sources of each, which has a consumer of its own; guarded by mu
}

var (
	_ loop.Engine    = (*Fabric)(nil)
	_ loop.Presence  = (*Fabric)(nil)
	_ workers.Source = (*Source)(nil)
	_ workers.Lease  = (*lease)(nil)
)

// startTimeout bounds the start of the embedded server; it takes 1–10 ms.
const startTimeout = 10 * time.Second

// Open starts the engine.
func Open(ctx context.Context, cfg Config) (_ *Fabric, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	f := &Fabric{cfg: cfg, workers: map[string]int{}}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// The stream lives in memory; the server wants a directory all the same.
	if f.dir, err = os.MkdirTemp("", "rewardloop-engine-"); err != nil {
		return nil, fmt.Errorf("fabric: engine directory: %w", err)
	}
	f.server, err = server.NewServer(&server.Options{
		ServerName: "rewardloop", DontListen: true, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: f.dir, JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("fabric: engine: %w", err)
	}
	f.server.Start()
	if !f.server.ReadyForConnections(startTimeout) {
		return nil, fmt.Errorf("fabric: the engine was not ready within %v", startTimeout)
	}
	if f.nc, err = f.connect("gateway"); err != nil {
		return nil, err
	}
	if f.js, err = jetstream.New(f.nc); err != nil {
		return nil, fmt.Errorf("fabric: jetstream: %w", err)
	}
	if err = f.declare(ctx); err != nil {
		return nil, err
	}
	if f.presence, err = watch(f.nc, cfg.Gone); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Fabric) connect(name string) (*nats.Conn, error) {
	nc, err := nats.Connect("", nats.InProcessServer(f.server), nats.Name(name), nats.ReconnectBufSize(-1), nats.MaxReconnects(-1))
	if err != nil {
		return nil, fmt.Errorf("fabric: connection of %s: %w", name, err)
	}
	return nc, nil
}

// declare makes the stream and its consumer.
func (f *Fabric) declare(ctx context.Context) error {
	_, err := f.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"rl.ticket.>"}, Storage: jetstream.MemoryStorage,
		Retention: jetstream.WorkQueuePolicy, MaxMsgs: f.cfg.MaxTickets, Discard: jetstream.DiscardNew,
		// A ticket that is published again within 2 s is the same one. The ids of that
		// time are what the window costs, in memory that the garbage collector walks:
		// 20,000 at 10,000 tickets/s. A later repetition is refused at the claim.
		Duplicates: 2 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("fabric: stream: %w", err)
	}
	if err := f.consumer(ctx, consumerName, ticketSubject); err != nil {
		return err
	}
	f.mu.Lock()
	known := slices.Collect(maps.Keys(f.workers))
	f.mu.Unlock()
	for _, worker := range known {
		if err := f.consumer(ctx, consumerOf(worker), subjectOf(worker)); err != nil {
			return err
		}
	}
	return nil
}

// subjectOf and consumerOf are of the tickets for one worker, whose name may hold what
// neither may.
func subjectOf(worker string) string { return workerSubject + encoded(worker) }

func consumerOf(worker string) string { return "to-" + encoded(worker) }

func encoded(worker string) string { return base64.RawURLEncoding.EncodeToString([]byte(worker)) }

// consumer makes what hands out the tickets of a subject.
func (f *Fabric) consumer(ctx context.Context, name, subject string) error {
	_, err := f.js.CreateOrUpdateConsumer(ctx, streamName, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: subject, AckPolicy: jetstream.AckExplicitPolicy, AckWait: f.cfg.Lease, MemoryStorage: true,
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

// seat makes the consumer of a worker's own tickets.
func (f *Fabric) seat(worker string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	f.mu.Lock()
	f.workers[worker]++
	f.mu.Unlock()
	return f.consumer(ctx, consumerOf(worker), subjectOf(worker))
}

// unseat forgets a worker that has gone, and the tickets that only it could have taken:
// their gateway has drawn others for them, or does when it sees that it is gone.
func (f *Fabric) unseat(worker string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	f.mu.Lock()
	f.workers[worker]--
	left := f.workers[worker]
	if left <= 0 {
		delete(f.workers, worker)
	}
	f.mu.Unlock()
	if left > 0 { // it came back before its old connection was given up
		return
	}
	err := f.js.DeleteConsumer(ctx, streamName, consumerOf(worker))
	if err == nil {
		var stream jetstream.Stream
		if stream, err = f.js.Stream(ctx, streamName); err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(subjectOf(worker)))
		}
	}
	if err != nil {
		f.cfg.Log.Debug("tickets of a worker that has gone stay behind", "worker", worker, "error", err)
	}
}

// Close ends the engine. Sources must have been closed before.
func (f *Fabric) Close() {
	if f.nc != nil {
		f.nc.Close()
	}
	if f.server != nil {
		f.server.Shutdown()
		f.server.WaitForShutdown()
	}
	if f.dir != "" {
		_ = os.RemoveAll(f.dir) // a temporary directory; the system clears it otherwise
	}
}

// Publish hands a ticket to the stream. It asks for no answer, which would cost a
// tenth of all that a small sample allocates on its way: the gateway publishes a
// ticket again that nobody claims, and counts it.
func (f *Fabric) Publish(_ context.Context, t wire.Ticket) error {
	data, err := t.Encode()
	if err != nil {
		return fmt.Errorf("fabric: ticket of sample %q: %w", t.ID, err)
	}
	id := t.Run + "/" + strconv.FormatUint(t.Epoch, 36) + "/" + t.ID + "/" + strconv.Itoa(t.Attempt)
	subject := ticketSubject
	if t.To != "" {
		subject = subjectOf(t.To)
	}
	msg := &nats.Msg{Subject: subject, Header: nats.Header{nats.MsgIdHdr: {id}}, Data: data}
	if err := f.nc.PublishMsg(msg); err != nil {
		return fmt.Errorf("fabric: ticket of sample %q: %w", t.ID, err)
	}
	return nil
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
