package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rewardloop/rewardloop/wire"
)

// Names on the bus. fabric/acl says who may use which.
const (
	streamName      = "RL_TICKETS"
	ticketSubjects  = "rl.ticket."
	allTickets      = ticketSubjects + ">"
	poolSubject     = "rl.ticket.pool." // and the pool
	workerSubject   = "rl.ticket.to."   // and the worker's name, encoded
	pullGroup       = "all"
	revokeSubject   = "rl.revoke"
	presenceSubject = "rl.presence"
	gatewaySubject  = "rl.gateway"
	gatewayInbox    = "_INBOX_RLG"
	workerInbox     = "_INBOX_RLW"
)

// startTimeout bounds the start of the embedded server; it takes 1–10 ms.
const startTimeout = 10 * time.Second

// answerTimeout is how long an answer about the stream is waited for. A cluster without a
// leader gives none, and has one some seconds later; it is asked again.
const answerTimeout = 3 * time.Second

// bus is a process's way to the engine: a server of its own, or the addresses of others.
type bus struct {
	cfg    Config
	inbox  string
	server *server.Server // nil: it runs by itself
	dir    string         // temporary; "": none
	nc     *nats.Conn
	js     jetstream.JetStream
	counts *metrics

	mu   sync.Mutex
	hubs map[string]*hub // of the workers of this process, by consumer; guarded by mu
}

// openBus starts the server, if it is this process's, and connects. restored is called
// from a goroutine of the connection whenever it is back.
func openBus(ctx context.Context, cfg Config, inbox string, restored func()) (_ *bus, err error) {
	b := &bus{cfg: cfg, inbox: inbox, hubs: map[string]*hub{}, counts: newMetrics(cfg.Metrics)}
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
	if b.nc, err = b.connect(ctx, cfg.Name, restored); err != nil {
		return nil, err
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return nil, fmt.Errorf("fabric: jetstream: %w", err)
	}
	if _, err := b.nc.Subscribe(revokeSubject, b.revoke); err != nil { // ends with the connection
		return nil, fmt.Errorf("fabric: revocations: %w", err)
	}
	return b, nil
}

// serve starts the engine in this process.
func (b *bus) serve() error {
	// Where the stream lives in memory the server wants a folder all the same.
	dir := b.cfg.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "rewardloop-engine-"); err != nil {
			return fmt.Errorf("fabric: engine directory: %w", err)
		}
		b.dir = dir
	}
	o := &server.Options{
		ServerName: "rewardloop", DontListen: b.cfg.Listen == "", NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 30,
	}
	if b.cfg.Listen != "" {
		host, port, err := net.SplitHostPort(b.cfg.Listen)
		if err != nil {
			return fmt.Errorf("fabric: nats_listen: %w", err)
		}
		if o.Port, err = strconv.Atoi(port); err != nil {
			return fmt.Errorf("fabric: nats_listen: port %q: %w", port, err)
		}
		if o.Port == 0 { // which means another thing to the server
			o.Port = server.RANDOM_PORT
		}
		o.Host, o.TLSConfig = host, b.cfg.TLS
		if o.TLSConfig != nil {
			o.TLS, o.TLSTimeout = true, 5
			o.TLSVerify = o.TLSConfig.ClientCAs != nil
		}
		// Silent connections are found within as long as one lease.
		o.PingInterval, o.MaxPingsOut = b.cfg.Silence, 2
	}
	if b.cfg.Access != nil {
		b.cfg.Access(o)
	}
	var err error
	if b.server, err = server.NewServer(o); err != nil {
		return fmt.Errorf("fabric: engine: %w", err)
	}
	if b.cfg.Listen != "" { // who is refused, and why, is in the log
		b.server.SetLoggerV2(serverLog{b.cfg.Log, b.counts}, false, false, false)
	}
	b.server.Start()
	if !b.server.ReadyForConnections(startTimeout) {
		return fmt.Errorf("fabric: the engine was not ready within %v; is %s free?", startTimeout, b.cfg.Listen)
	}
	return nil
}

// revoke ends the leases of an attempt that is over, in this process.
func (b *bus) revoke(m *nats.Msg) {
	var key wire.AttemptKey
	if foreign(m, revokeSubject) || json.Unmarshal(m.Data, &key) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.hubs {
		h.revoke(key)
	}
}

// foreign reports whether a message was brought by the server itself, of a stream and not
// as it was sent: nobody here asks it to, but whoever has a worker's key can have it answer
// a question of his, or deliver what a consumer of his has, into any subject.
func foreign(m *nats.Msg, subject string) bool {
	return m.Header.Get("Nats-Stream") != "" || !strings.HasPrefix(m.Subject, subject)
}

// connect makes this process's connection. All of its parts share it: a thousand of them
// would each cost a system call for every message.
func (b *bus) connect(ctx context.Context, name string, restored func()) (*nats.Conn, error) {
	log := b.cfg.Log.With("connection", name)
	options := append([]nats.Option{
		nats.Name(name), nats.CustomInboxPrefix(b.inbox),
		// What is sent while nobody listens is refused at once: its sender has a plan.
		nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(100*time.Millisecond, 500*time.Millisecond),
		nats.PingInterval(b.cfg.Silence), nats.MaxPingsOutstanding(2), nats.Timeout(5 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.counts.disconnected.Inc()
			if err != nil {
				log.WarnContext(ctx, "the engine's connection is lost; looking for it again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.InfoContext(ctx, "the engine's connection is back", "server", nc.ConnectedUrlRedacted())
			if restored != nil {
				restored()
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.counts.denied.WithLabelValues(reasonFor(err)).Inc()
			log.ErrorContext(ctx, "the engine refuses", "subject", subject, "error", err)
		}),
	}, b.cfg.Credentials...)
	url := nats.DefaultURL
	switch {
	case b.server != nil:
		options = append(options, nats.InProcessServer(b.server))
	default:
		url = strings.Join(b.cfg.URLs, ",")
		if b.cfg.TLS != nil {
			options = append(options, nats.Secure(b.cfg.TLS))
		}
	}
	return b.dial(ctx, url, name, options)
}

// dial connects, and waits for servers that are not there yet. Being refused is final.
func (b *bus) dial(ctx context.Context, url, name string, options []nats.Option) (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Patience)
	defer cancel()
	for warned := false; ; warned = true {
		nc, err := nats.Connect(url, options...)
		if err == nil {
			return nc, nil
		}
		err = fmt.Errorf("fabric: connection of %s to %s: %w", name, redacted(b.cfg.URLs), explained(err))
		if b.server != nil || !absent(err) {
			return nil, err
		}
		if !warned {
			b.cfg.Log.WarnContext(ctx, "the engine is not there yet; waiting for it", "within", b.cfg.Patience, "error", err)
		}
		t := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, err
		case <-t.C:
		}
	}
}

// absent reports that nobody answers at the addresses, or not yet.
func absent(err error) bool {
	var silent net.Error
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.As(err, &silent) && silent.Timeout()
}

// explained adds to a refusal what to do about it.
func explained(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return fmt.Errorf("%w: name this role's key with fabric.nkey_file or fabric.creds_file; `rewardloop fabric acl` makes them", err)
	case errors.Is(err, nats.ErrSecureConnRequired):
		return fmt.Errorf("%w: the engine speaks TLS: write tls://, and its CA as fabric.tls_ca", err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w: the engine does not speak TLS: write nats:// and leave fabric.tls_ca out", err)
	}
	return err
}

// redacted is addresses without names and passwords in them.
func redacted(urls []string) string {
	if len(urls) == 0 {
		return "the engine in this process"
	}
	out := make([]string, len(urls))
	for i, u := range urls {
		scheme, rest, ok := strings.Cut(u, "://")
		if !ok {
			scheme, rest = "nats", u
		}
		out[i] = scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
	}
	return strings.Join(out, ",")
}

// address is where the engine in this process listens; "" where it does not.
func (b *bus) address() string {
	if b.server == nil || b.cfg.Listen == "" || b.server.Addr() == nil {
		return ""
	}
	return b.server.Addr().String()
}

// openFleet makes what limits and breakers of all processes are shared by; create says that
// this one may make the bucket. It must be closed before this process's part of the engine.
func (b *bus) openFleet(ctx context.Context, create bool) (*Fleet, error) {
	return NewFleet(ctx, b.js, FleetConfig{Name: b.cfg.Name, Create: create, Replicas: b.cfg.Replicas, Log: b.cfg.Log})
}

func (b *bus) close() {
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
