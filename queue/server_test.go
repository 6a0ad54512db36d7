package queue_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// logbook is a log that is read while it is written.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logbook) log() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// says waits for a line.
func (l *logbook) says(t *testing.T, line string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(l.String(), line) }, soon, time.Millisecond, "%s", l)
}

func TestANATSThatCannotStartSaysWhyAtOnce(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for want, cfg := range map[string]queue.Config{
		"address already in use": {Listen: taken.Addr().String()},
		"not a directory":        {Dir: filepath.Join(file, "queue")},
	} {
		_, err := queue.Open(t.Context(), cfg)
		require.ErrorContains(t, err, want)
	}
}

func TestTicketsOfADurableQueueOutliveIt(t *testing.T) {
	t.Parallel()
	cfg := queue.Config{Durable: true, Dir: t.TempDir(), Listen: "127.0.0.1:0"}
	f, err := queue.Open(t.Context(), cfg)
	require.NoError(t, err)
	s, err := f.NewSource("w", []string{anyQueue})
	require.NoError(t, err)
	for _, id := range []string{"a", "b"} {
		require.NoError(t, f.Publish(t.Context(), ticketOf("gw", id)))
	}
	require.Equal(t, "a", takeFrom(t, s).ID)
	s.Disconnect()
	f.Close()
	_, source := open(t, cfg)
	require.Equal(t, "b", takeFrom(t, source(t, "w").(*queue.Source)).ID, "and what had its result does not come again")
}

func TestAStreamOfAnotherKindIsRefusedWithWhatToDoAboutIt(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	_, _ = open(t, queue.Config{URLs: []string{b.url()}, Name: "one"})
	_, err := queue.Open(t.Context(), queue.Config{URLs: []string{b.url()}, Name: "two", Durable: true, Patience: time.Hour})
	require.ErrorContains(t, err, "gateways of one NATS need the same queue.durable")
	_, err = queue.Open(t.Context(), queue.Config{URLs: []string{newBroker(t).url()}, Replicas: 3, Patience: time.Hour})
	require.ErrorContains(t, err, "queue.replicas of more than 1 needs a cluster")
}

// guarded has NATS ask for a name and a password. It refuses its own gateway when
// that has not read for WriteDeadline, which is 10 s by default.
func guarded(o *server.Options) {
	o.Username, o.Password, o.WriteDeadline = "me", "right", 100*time.Millisecond
}

func TestWhoHasNoKeyIsToldHowToNameOne(t *testing.T) {
	t.Parallel()
	_, err := queue.Open(t.Context(), queue.Config{Access: guarded})
	require.ErrorContains(t, err, "NATS in this process", "its own gateway needs one, too")
	require.ErrorContains(t, err, "queue.nkey_file or queue.creds_file")
	book, reg := &logbook{}, prometheus.NewRegistry()
	f, _ := open(t, queue.Config{
		Listen: "127.0.0.1:0", Access: guarded, Credentials: []nats.Option{nats.UserInfo("me", "right")}, Log: book.log(), Metrics: reg,
	})
	_, err = queue.Join(t.Context(), queue.Config{URLs: []string{f.Address()}, Credentials: []nats.Option{nats.UserInfo("me", "wrong")}, Patience: time.Hour})
	require.ErrorIs(t, err, nats.ErrAuthorization)
	require.ErrorContains(t, err, "nats://"+f.Address())
	require.ErrorContains(t, err, "queue.nkey_file or queue.creds_file")
	book.says(t, "the NATS server of this process reports a problem")
	require.Equal(t, map[string]float64{"key": 1, "subject": 0, "tls": 0, "other": 0}, reasons(t, reg, "rewardloop_nats_refused_total"))
}

// reasons returns a metric by its one label.
func reasons(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				out[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return out
}

func TestAMessageThatIsRefusedIsLoggedAndCounted(t *testing.T) {
	t.Parallel()
	narrow := func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "gw", Password: "x"},
			{Username: "w", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"rl.presence"}}}},
		}
	}
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Access: narrow, Credentials: []nats.Option{nats.UserInfo("gw", "x")}})
	book, reg := &logbook{}, prometheus.NewRegistry()
	m := join(t, queue.Config{URLs: []string{"nats://w:x@" + f.Address()}, Log: book.log(), Metrics: reg})
	connect(t, m, "w")
	book.says(t, "the NATS server refused")
	require.Contains(t, book.String(), "rl.presence")
	require.Equal(t, map[string]float64{"key": 0, "subject": 1, "tls": 0, "other": 0}, reasons(t, reg, "rewardloop_nats_denied_total"))
}

// certified returns the two sides of a connection by TLS.
func certified(t *testing.T) (served, trusting *tls.Config) {
	t.Helper()
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	served = &tls.Config{Certificates: srv.TLS.Certificates, RootCAs: roots, MinVersion: tls.VersionTLS12}
	return served, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

func TestANATSWithACertificateIsSpokenToByTLSOnly(t *testing.T) {
	t.Parallel()
	served, trusting := certified(t)
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", TLS: served})
	s := connect(t, join(t, queue.Config{URLs: []string{"tls://" + f.Address()}, TLS: trusting}), "w")
	require.NoError(t, f.Publish(t.Context(), ticketOf("gw", "a")))
	require.Equal(t, "a", takeFrom(t, s).ID)

	_, err := queue.Join(t.Context(), queue.Config{URLs: []string{"nats://" + f.Address()}, Patience: time.Hour})
	require.ErrorContains(t, err, "write tls:// with the host name in NATS's certificate, and set queue.tls_ca to its CA")
	plain, _ := open(t, queue.Config{Listen: "127.0.0.1:0"})
	_, err = queue.Join(t.Context(), queue.Config{URLs: []string{"tls://" + plain.Address()}, TLS: trusting, Patience: time.Hour})
	require.ErrorContains(t, err, "write nats:// and leave queue.tls_ca out")
}

// A queue that cannot be made when its first worker appears is made once it can be.
func TestAQueueThatCannotBeMadeYetIsMadeOnceItCan(t *testing.T) {
	t.Parallel()
	b, book := newBroker(t), &logbook{}
	f, _ := open(t, queue.Config{URLs: []string{b.url()}, Name: "gw", Log: book.log()})
	js := b.js(t)
	stream, err := js.Stream(t.Context(), "RL_TICKETS")
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), "RL_TICKETS"))
	s := connect(t, join(t, queue.Config{URLs: []string{b.url()}}), "w", "p")
	s.Announce(serving("odd", "A b"))
	book.says(t, "a worker requested a queue with an invalid name")
	book.says(t, "tickets (one for each waiting sample) cannot be delivered to workers of a queue; retrying")
	_, err = js.CreateStream(t.Context(), stream.CachedInfo().Config)
	require.NoError(t, err)
	first := ticketOf("gw", "a")
	first.Queue = "p"
	require.NoError(t, f.Publish(t.Context(), first))
	require.Equal(t, "a", takeFrom(t, s, "p").ID)
}

func TestWhatIsSaidWithoutAConnectionIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	gw, _ := open(t, queue.Config{URLs: []string{b.url()}, Name: "gw"})
	require.True(t, gw.Connected())
	require.Empty(t, gw.Address(), "it is the broker's")
	require.True(t, gw.Alive("nobody"), "it has not listened for long")
	s := connect(t, join(t, queue.Config{URLs: []string{b.url()}}), "w")
	require.NoError(t, gw.Publish(t.Context(), ticketOf("gw", "a")))
	var leases []workers.Lease
	require.Eventually(t, func() bool {
		leases, _ = s.Take(t.Context(), anyQueue, 1)
		return len(leases) > 0
	}, soon, time.Millisecond)
	b.stop()
	require.Eventually(t, func() bool { return !gw.Connected() && leases[0].Extend(t.Context()) != nil }, soon, time.Millisecond)
	require.ErrorContains(t, leases[0].Extend(t.Context()), `lease of sample "a"`)
	require.ErrorContains(t, gw.Publish(t.Context(), ticketOf("gw", "b")), `ticket of sample "b"`)
	require.ErrorContains(t, gw.Revoke(t.Context(), leases[0].Ticket().Key()), `revoke of sample "a"`)
	s.Announce(wire.WorkerInfo{ID: "w"})
	got, err := s.Take(t.Context(), anyQueue, 1)
	require.NoError(t, err, "a worker goes on asking")
	require.Empty(t, got)

	own, err := queue.Open(t.Context(), queue.Config{})
	require.NoError(t, err)
	own.Close()
	_, err = own.NewSource("w", []string{anyQueue})
	require.ErrorIs(t, err, nats.ErrConnectionClosed)
}

func TestANATSThatIsNotReadyIsAskedAgainForAsLongAsPatienceSays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	b, book := brokerOf(t, &broker{t: t, port: -1, plain: true}), &logbook{}
	_, err := queue.Open(t.Context(), queue.Config{URLs: []string{b.url()}, Patience: 3 * time.Second})
	require.ErrorContains(t, err, "start nats-server with -js")
	nc, err := nats.Connect(b.url())
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Subscribe("$JS.API.>", func(m *nats.Msg) { // as a cluster without a leader
		assert.NoError(t, m.Respond([]byte(`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`)))
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	_, err = queue.Open(t.Context(), queue.Config{URLs: []string{b.url()}, Patience: 3 * time.Second, Log: book.log()})
	require.ErrorContains(t, err, "temporarily unavailable")
	require.Contains(t, book.String(), "NATS is not ready; retrying")
}

func TestANATSThatComesBackWithoutAStoreIsAskedUntilItHasOne(t *testing.T) {
	t.Parallel()
	b, book := newBroker(t), &logbook{}
	gw, _ := open(t, queue.Config{URLs: []string{b.url()}, Name: "gw", Log: book.log()})
	back := make(chan struct{}, 8)
	gw.OnRestored(func() { back <- struct{}{} })
	b.stop()
	b.plain = true
	b.start()
	book.says(t, "the NATS stream of tickets is not ready; retrying")
	require.Empty(t, back)
	b.stop()
	b.plain = false
	b.start()
	select {
	case <-back:
	case <-time.After(soon):
		require.Fail(t, "the gateway was not told")
	}
}
