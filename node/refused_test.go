package node_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/queue/acl"
	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/wire"
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

// Everybody who is not let in, or who asks for what is not his: refused, in the gateway's
// log, and in a counter of its metrics.
func TestWhoIsNotLetInIsRefusedLoggedAndCounted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	dir := t.TempDir()
	_, err := acl.Create(acl.Config{Dir: dir, Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	file := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(file("token"), []byte("right"), 0o600))
	book := &logbook{}
	cfg, err := config.Load("", []string{
		incompressible, "reward.num_workers=0", "++server.listen=127.0.0.1:0", "++server.token_file=" + file("token"), "++queue.name=gw",
		"++queue.nats_listen=127.0.0.1:0", "++queue.acl_file=" + file("acl.conf"), "++queue.nkey_file=" + file("gateway.nk"),
		"++queue.tls_cert=" + file("server.pem"), "++queue.tls_key=" + file("server-key.pem"), "++queue.tls_ca=" + file("ca.pem"),
		"++server.tls_cert=" + file("server.pem"), "++server.tls_key=" + file("server-key.pem"),
	}, os.LookupEnv)
	require.NoError(t, err)
	gateway, err := node.New(node.Options{Config: cfg, Version: "test", Log: slog.New(slog.NewTextHandler(book, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	require.NoError(t, err)
	require.NoError(t, gateway.Start(t.Context()))
	t.Cleanup(gateway.Stop)
	at, err := gateway.Listen(t.Context())
	require.NoError(t, err)
	addr, nats := at.String(), "tls://"+gateway.NATS()
	pem, err := os.ReadFile(file("ca.pem"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	trust := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	short := []string{incompressible, "++queue.tls_ca=" + file("ca.pem")}

	stranger := claimed(t, wire.AttemptKey{Gateway: gateway.Loop.Gateway(), Run: "r", Epoch: 1, ID: "x", Attempt: 1})
	for name, c := range map[string]struct {
		try            func(t *testing.T)
		metric, logged string
	}{
		"a wrong token": {func(t *testing.T) {
			t.Helper()
			_, err := client.Dial(t.Context(), client.Config{URL: "wss://" + addr, Run: "r", Token: "wrong", TLS: trust})
			require.ErrorContains(t, err, "401")
		}, `rewardloop_http_requests_total\{code="401",route="/v1/stream"\} [1-9]`, "token"},
		"a wrong nkey": {func(t *testing.T) {
			t.Helper()
			_, err := joining(t, "x", nats, append(short, "++queue.nkey_file="+foreignKey(t))...)
			require.ErrorContains(t, err, "Authorization Violation")
		}, `rewardloop_nats_refused_total\{reason="key"\} [1-9]`, "authentication error"},
		"a foreign subject": {func(t *testing.T) {
			t.Helper()
			key, err := acl.NKey(file("worker.nk"))
			require.NoError(t, err)
			cfg := queue.Config{URLs: []string{nats}, Name: "x", TLS: trust, Patience: time.Second}
			cfg.Credentials = append(cfg.Credentials, key)
			_, err = queue.Open(t.Context(), cfg) // a worker's key for a gateway's part
			require.Error(t, err)
		}, `rewardloop_nats_refused_total\{reason="subject"\} [1-9]`, "Violation"},
		"a claim with a token of nobody": {func(t *testing.T) {
			t.Helper()
			require.ErrorIs(t, stranger(payload.NewKey(), time.Now().Add(time.Minute), "wss://"+addr, trust), payload.ErrToken)
		}, `rewardloop_claim_refused_total\{reason="token"\} [1-9]`, "claim"},
		"a plain client at the port of NATS": {func(t *testing.T) {
			t.Helper()
			_, err := joining(t, "x", "nats://"+gateway.NATS(), incompressible, "++queue.nkey_file="+file("worker.nk"))
			require.Error(t, err)
		}, `rewardloop_nats_refused_total\{reason="tls"\} [1-9]`, "TLS"},
		"a plain client at the port of the gateway": {func(t *testing.T) {
			t.Helper()
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, "GET /v1/claim HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			answer, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Contains(t, string(answer), "400")
		}, `rewardloop_http_tls_failures_total [1-9]`, "TLS handshake error"},
	} {
		c.try(t)
		assert.Eventually(t, func() bool { return strings.Contains(book.String(), c.logged) }, 5*time.Second, 10*time.Millisecond, "%s: %s", name, book)
		assert.Regexp(t, c.metric, securely(t, addr, trust), name)
	}
	assert.NotContains(t, book.String(), "right\"")
}

// claimed asks for an attempt with a token that a key has signed.
func claimed(t *testing.T, attempt wire.AttemptKey) func(key *payload.Key, until time.Time, url string, trust *tls.Config) error {
	t.Helper()
	return func(key *payload.Key, until time.Time, url string, trust *tls.Config) error {
		c, err := payload.NewClient(payload.ClientOptions{Config: payload.Config{DialPatience: 20 * time.Second}, TLS: trust})
		if err != nil {
			return err
		}
		defer c.Close()
		f, _, err := c.Claim(t.Context(), wire.Ticket{
			Gateway: attempt.Gateway, Run: attempt.Run, Epoch: attempt.Epoch, ID: attempt.ID, Attempt: attempt.Attempt, Bytes: 10,
			Claim: url + "/v1/claim", Token: key.Sign(attempt, until), Deadline: time.Now().Add(time.Minute),
		}, "w")
		if err == nil {
			f.Release()
			return fmt.Errorf("it was given sample %q", attempt.ID)
		}
		return err
	}
}

// securely reads the metrics over TLS.
func securely(t *testing.T, addr string, trust *tls.Config) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+"/metrics", http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer right")
	resp, err := (&http.Transport{DisableKeepAlives: true, TLSClientConfig: trust.Clone()}).RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}
