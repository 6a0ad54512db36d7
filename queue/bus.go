package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rewardloop/rewardloop/wire"
)

// Names on the bus. queue/acl says who may use which.
const (
	streamName      = "RL_TICKETS"
	ticketSubjects  = "rl.ticket." // and the queue
	allTickets      = ticketSubjects + ">"
	pullSubject     = "$JS.API.CONSUMER.MSG.NEXT." + streamName + "." // and the consumer
	pullGroup       = "all"
	wakeSubject     = "rl.wake." // and the queue
	revokeSubject   = "rl.revoke"
	presenceSubject = "rl.presence"
	gatewaySubject  = "rl.gateway"
	gatewayInbox    = "_INBOX_RLG"
	workerInbox     = "_INBOX_RLW"
)

// answerTimeout is how long an answer about the stream is waited for. A cluster without a
// leader gives none, and has one some seconds later; it is asked again.
const answerTimeout = 3 * time.Second

// longestMail is how many messages may wait for the hubs of a process. One that comes beyond
// them is dropped: a ticket lapses then and comes again.
const longestMail = 16 << 10

// bus is a process's way to NATS: a server of its own, or the addresses of others.
type bus struct {
	cfg    Config
	inbox  string
	server *server.Server // nil: it runs by itself
	dir    string         // temporary; "": none
	nc     *nats.Conn
	js     jetstream.JetStream
	counts *metrics

	attempts *attempts
	fast     answers        // to fast pulls
	slow     answers        // to slow pulls
	mail     chan *nats.Msg // for hubs: tickets and what else answers pulls, and wakes, as they come
	end      context.CancelFunc

	mu   sync.Mutex
	hubs map[string]*hub // of the workers of this process, by queue; guarded by mu
}

// answers are where what answers pulls of one kind comes.
type answers struct {
	inbox string
	sub   *nats.Subscription
}

// openBus starts the server, if it is this process's, and connects. restored is called
// from a goroutine of the connection whenever it is back.
func openBus(ctx context.Context, cfg Config, inbox string, restored func()) (_ *bus, err error) {
	b := &bus{
		cfg: cfg, inbox: inbox, hubs: map[string]*hub{}, counts: newMetrics(cfg.Metrics),
		attempts: newAttempts(remembered), mail: make(chan *nats.Msg, longestMail),
	}
	reading, end := context.WithCancel(context.WithoutCancel(ctx))
	b.end = end
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if len(cfg.URLs) == 0 {
		if err := b.serve(); err != nil {
			return nil, err
		}
	}
	if b.nc, err = b.connect(ctx, cfg.Name, func() {
		b.restored()
		restored()
	}); err != nil {
		return nil, err
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return nil, fmt.Errorf("queue: jetstream: %w", err)
	}
	if _, err := b.nc.Subscribe(revokeSubject, b.revoke); err != nil { // ends with the connection
		return nil, fmt.Errorf("queue: revocations: %w", err)
	}
	for _, to := range []*answers{&b.fast, &b.slow} {
		to.inbox = b.nc.NewInbox()
		if to.sub, err = b.nc.ChanSubscribe(to.inbox+".*", b.mail); err != nil {
			return nil, fmt.Errorf("queue: answers to requests for tickets: %w", err)
		}
	}
	go b.read(reading) // ends with close
	return b, nil
}

// restored tells the hubs that the connection was lost and is back.
func (b *bus) restored() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.hubs {
		h.restored()
	}
}

// revoke ends the leases of an attempt that is over, in this process.
func (b *bus) revoke(m *nats.Msg) {
	var key wire.AttemptKey
	if foreign(m, revokeSubject) || json.Unmarshal(m.Data, &key) != nil {
		return
	}
	b.attempts.revoke(key)
}

// foreign reports whether a message was brought by the server itself, of a stream and not
// as it was sent: nobody here asks it to, but whoever has a worker's key can have it answer
// a question of his, or deliver what a consumer of his has, into any subject.
func foreign(m *nats.Msg, subject string) bool {
	return m.Header.Get("Nats-Stream") != "" || !strings.HasPrefix(m.Subject, subject)
}

// openFleet makes what limits and breakers of all processes are shared by; create says that
// this one may make the bucket. It must be closed before this process's part of NATS.
func (b *bus) openFleet(ctx context.Context, create bool) (*Fleet, error) {
	return newFleet(ctx, b.js, fleetConfig{Name: b.cfg.Name, Create: create, Replicas: b.cfg.Replicas, Log: b.cfg.Log})
}

func (b *bus) close() {
	b.end()
	if b.nc != nil {
		b.nc.Close()
	}
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir) // a temporary directory; the system clears it otherwise
	}
}
