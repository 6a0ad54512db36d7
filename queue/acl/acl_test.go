package acl_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/queue/acl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// made calls Create in a folder of its own.
func made(t *testing.T, cfg acl.Config) string {
	t.Helper()
	cfg.Dir = filepath.Join(t.TempDir(), "access")
	_, err := acl.Create(cfg)
	require.NoError(t, err)
	return cfg.Dir
}

// options are those of a server that listens on a free port.
func options(t *testing.T) *server.Options {
	t.Helper()
	return &server.Options{
		ServerName: "acl", Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 20,
	}
}

func started(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(o)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(10*time.Second))
	return s
}

// bus is a server with the users of a folder, as an embedded one has them.
func bus(t *testing.T, dir string) *server.Server {
	t.Helper()
	users, err := acl.Load(filepath.Join(dir, "acl.conf"))
	require.NoError(t, err)
	o := options(t)
	users.Apply(o)
	return started(t, o)
}

// including is a server that was started with a configuration of its owner's, which
// includes one of the files.
func including(t *testing.T, dir, file string) *server.Server {
	t.Helper()
	at := filepath.Join(dir, "nats-server.conf")
	require.NoError(t, os.WriteFile(at, []byte("listen: 127.0.0.1:-1\njetstream { store_dir: \""+t.TempDir()+"\" }\ninclude "+file+"\n"), 0o600))
	o, err := server.ProcessConfigFile(at)
	require.NoError(t, err)
	o.NoSigs, o.NoLog = true, true
	return started(t, o)
}

// client is a connection, and what the server complained of on it.
type client struct {
	*nats.Conn
	js       jetstream.JetStream
	complain chan error
}

var inbox = map[acl.Role]string{acl.Gateway: "_INBOX_RLG", acl.Worker: "_INBOX_RLW"}

func dial(t *testing.T, s *server.Server, role acl.Role, opts ...nats.Option) *client {
	t.Helper()
	c := &client{complain: make(chan error, 16)}
	opts = append(opts, nats.CustomInboxPrefix(inbox[role]), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.complain <- err }))
	nc, err := nats.Connect(s.ClientURL(), opts...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	c.Conn = nc
	c.js, err = jetstream.New(nc)
	require.NoError(t, err)
	return c
}

// keyed connects with a role's nkey.
func keyed(t *testing.T, s *server.Server, dir string, role acl.Role) *client {
	t.Helper()
	key, err := acl.NKey(filepath.Join(dir, acl.SeedFile(role)))
	require.NoError(t, err)
	return dial(t, s, role, key)
}

// refused wants the server's complaint about a subject.
func (c *client) refused(t *testing.T, way, subject string) {
	t.Helper()
	select {
	case err := <-c.complain:
		require.ErrorIs(t, err, nats.ErrPermissionViolation)
		require.Contains(t, err.Error(), way+" to \""+subject+`"`)
	case <-time.After(10 * time.Second):
		require.Fail(t, "not refused", "%s to %s", way, subject)
	}
}

// content wants that nothing was complained of.
func (c *client) content(t *testing.T) {
	t.Helper()
	require.NoError(t, c.FlushTimeout(10*time.Second))
	select {
	case err := <-c.complain:
		require.NoError(t, err)
	default:
	}
}

// declare is what a gateway does first.
func declare(t *testing.T, g *client) jetstream.Stream {
	t.Helper()
	ctx := t.Context()
	stream, err := g.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "RL_TICKETS", Subjects: []string{"rl.ticket.>"}, Storage: jetstream.MemoryStorage, Retention: jetstream.WorkQueuePolicy,
		Duplicates: 2 * time.Second,
	})
	require.NoError(t, err)
	for durable, subject := range map[string]string{"q-_": "rl.ticket._", "q-ocr": "rl.ticket.ocr"} {
		_, err = g.js.CreateOrUpdateConsumer(ctx, "RL_TICKETS", jetstream.ConsumerConfig{
			Durable: durable, FilterSubject: subject, AckPolicy: jetstream.AckExplicitPolicy, MemoryStorage: true,
			PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"all"},
		})
		require.NoError(t, err)
	}
	_, err = g.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "RL_FLEET", Storage: jetstream.MemoryStorage, TTL: time.Minute})
	require.NoError(t, err)
	return stream
}

// try connects once and returns what a user would see.
func try(s *server.Server, opts ...nats.Option) error {
	nc, err := nats.Connect(s.ClientURL(), append(opts, nats.Timeout(5*time.Second))...)
	if nc != nil {
		nc.Close()
	}
	if err == nil {
		return errors.New("it was let in")
	}
	return err
}
