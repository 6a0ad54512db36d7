package queue

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/internal/redact"
)

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
				log.WarnContext(ctx, "the connection to NATS was lost; reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.InfoContext(ctx, "the connection to NATS was restored", "server", nc.ConnectedUrlRedacted())
			restored()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.counts.denied.WithLabelValues(reasonFor(err)).Inc()
			log.ErrorContext(ctx, "the NATS server refused a connection or a message of this process; check the key and the role", "subject", subject, "error", err)
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
		nc, err := b.connectAs(url, options)
		if err == nil {
			return nc, nil
		}
		err = fmt.Errorf("queue: connection of %s to %s: %w", name, redacted(b.cfg.URLs), explained(err))
		if b.server != nil || !absent(err) {
			return nil, err
		}
		if !warned {
			b.cfg.Log.WarnContext(ctx, "NATS cannot be reached yet; retrying", "within", b.cfg.Patience, "error", err)
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

// connectAs shows OwnKey, and connects without it to a server that asks for none.
func (b *bus) connectAs(url string, options []nats.Option) (*nats.Conn, error) {
	key, err := b.ownKey()
	if err != nil {
		return nil, err
	}
	if key == nil {
		nc, err := nats.Connect(url, options...)
		if !errors.Is(err, nats.ErrAuthorization) {
			return nc, err
		}
		// The server may have made its keys since ownKey looked for them.
		made, again := b.ownKey()
		if made == nil {
			return nil, errors.Join(err, again)
		}
		key = made
	}
	nc, err := nats.Connect(url, append(slices.Clone(options), key)...)
	if errors.Is(err, nats.ErrNkeysNotSupported) {
		return nats.Connect(url, options...)
	}
	return nc, err
}

// ownKey is OwnKey's answer now; nil: there is none.
func (b *bus) ownKey() (nats.Option, error) {
	if b.cfg.OwnKey == nil {
		return nil, nil
	}
	return b.cfg.OwnKey()
}

// absent reports that nobody answers at the addresses, or not yet.
func absent(err error) bool {
	var silent net.Error
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.As(err, &silent) && silent.Timeout()
}

// explained adds to a refusal what to do about it.
func explained(err error) error {
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, io.ErrClosedPipe): // so does NATS in this process refuse
		return fmt.Errorf("%w: name this role's key with queue.nkey_file or queue.creds_file; `rewardloop queue acl` makes the keys, and a gateway that made its own keys logs where they are", err)
	case errors.As(err, &untrusted): // with nats://, too: NATS says that it speaks TLS
		return fmt.Errorf("%w: write tls:// with the host name in NATS's certificate, and set queue.tls_ca to its CA", err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w: the NATS server does not use TLS: write nats:// and leave queue.tls_ca out", err)
	}
	return err
}

// redacted is addresses without names and passwords in them.
func redacted(urls []string) string {
	if len(urls) == 0 {
		return "NATS in this process"
	}
	out := make([]string, len(urls))
	for i, u := range urls {
		if !strings.Contains(u, "://") {
			u = "nats://" + u
		}
		out[i] = redact.URL(u)
	}
	return strings.Join(out, ",")
}
