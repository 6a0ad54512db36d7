package queue

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startTimeout bounds the start of the embedded server; it takes 1–10 ms.
const startTimeout = 10 * time.Second

// serve starts NATS in this process.
func (b *bus) serve() error {
	// Where the stream lives in memory the server wants a folder all the same.
	dir := b.cfg.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "rewardloop-queue-"); err != nil {
			return fmt.Errorf("queue: directory: %w", err)
		}
		b.dir = dir
	}
	o := &server.Options{
		ServerName: "rewardloop", DontListen: b.cfg.Listen == "", NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 30,
	}
	if b.cfg.Listen != "" {
		o.Host, o.Port = hostPort(b.cfg.Listen)
		if o.Port == 0 { // which means another thing to the server
			o.Port = server.RANDOM_PORT
		}
		o.TLSConfig = b.cfg.TLS
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
		return fmt.Errorf("queue: NATS: %w", err)
	}
	said := serverLog{log: slog.New(slog.DiscardHandler), metrics: b.counts, end: make(chan string, 1)}
	if b.cfg.Listen != "" { // who is refused, and why, is in the log
		said.log = b.cfg.Log
	}
	b.server.SetLoggerV2(said, false, false, false)
	b.server.Start()
	select {
	case why := <-said.end:
		return fmt.Errorf("queue: NATS: %s", why)
	default:
	}
	if !b.server.ReadyForConnections(startTimeout) {
		return fmt.Errorf("queue: NATS was not ready within %v", startTimeout)
	}
	return nil
}

// address is where NATS in this process listens; "" where it does not.
func (b *bus) address() string {
	if b.server == nil || b.cfg.Listen == "" || b.server.Addr() == nil {
		return ""
	}
	return b.server.Addr().String()
}

// serverLog has what NATS in this process says of those who connect among the
// process's own lines, and counts whom it refuses. Its notices are about itself and not
// worth a line. That it cannot go on it says in no other way, either.
type serverLog struct {
	log     *slog.Logger
	metrics *metrics
	end     chan string // capacity 1: why it cannot go on
}

func (l serverLog) complaint(format string, v []any) {
	text := fmt.Sprintf(format, v...)
	if reason, refusal := reasonOf(text); refusal {
		l.metrics.refused.WithLabelValues(reason).Inc()
	}
	l.log.Warn("the NATS server of this process reports a problem", "message", text)
}

func (l serverLog) Noticef(format string, v ...any) {
	l.log.Debug("message of the NATS server of this process", "message", fmt.Sprintf(format, v...))
}

func (l serverLog) Warnf(format string, v ...any) { l.complaint(format, v) }

func (l serverLog) Errorf(format string, v ...any) { l.complaint(format, v) }

func (l serverLog) Fatalf(format string, v ...any) {
	l.complaint(format, v)
	select {
	case l.end <- fmt.Sprintf(format, v...):
	default:
	}
}

func (l serverLog) Debugf(string, ...any) {}

func (l serverLog) Tracef(string, ...any) {}
