package queue_test

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// broker is a NATS server that runs by itself, and can be killed and started anew at the
// same address.
type broker struct {
	t     *testing.T
	port  int
	plain bool // the next start is without JetStream
	s     *server.Server
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	return brokerOf(t, &broker{t: t, port: -1})
}

func brokerOf(t *testing.T, b *broker) *broker {
	t.Helper()
	b.start()
	t.Cleanup(b.stop)
	return b
}

// start is for a server that knows nothing of the one before.
func (b *broker) start() {
	b.t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: b.port, JetStream: !b.plain, StoreDir: b.t.TempDir(), NoSigs: true, NoLog: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 20,
	})
	require.NoError(b.t, err)
	s.Start()
	require.True(b.t, s.ReadyForConnections(10*time.Second))
	_, port, err := net.SplitHostPort(s.Addr().String())
	require.NoError(b.t, err)
	b.port, err = strconv.Atoi(port)
	require.NoError(b.t, err)
	b.s = s
}

func (b *broker) stop() {
	b.s.Shutdown()
	b.s.WaitForShutdown()
}

func (b *broker) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", b.port) }

func (b *broker) js(t *testing.T) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(b.url(),
		nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}
