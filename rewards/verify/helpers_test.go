package verify_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/verify"
)

type options map[string]any

func (o options) raw(tb testing.TB) json.RawMessage {
	tb.Helper()
	raw, err := json.Marshal(o)
	require.NoError(tb, err)
	return raw
}

// network is what the program hands in: upstreams of package outbound.
type network struct{ transport *outbound.Transport }

func (n network) Upstream(urls []string, o service.UpstreamOptions) (outbound.Doer, error) {
	return n.transport.Upstream(outbound.UpstreamConfig{
		URLs: urls, KeyFile: o.KeyFile, Concurrency: o.Concurrency, RPM: o.RPM, Timeout: o.Timeout, Attempts: o.Attempts,
		BackoffMin: time.Millisecond, BackoffMax: time.Millisecond,
	})
}

func overNetwork(t *testing.T) network {
	t.Helper()
	transport, err := outbound.NewTransport(outbound.Policy{})
	require.NoError(t, err)
	t.Cleanup(transport.Close)
	return network{transport}
}

// server keeps what it was sent and answers with what answer gives.
type server struct {
	*httptest.Server
	mu   sync.Mutex
	sent []map[string]any
}

func serve(t *testing.T, answer func(n int) (status int, body string)) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var v map[string]any
		assert.NoError(t, json.Unmarshal(body, &v))
		s.mu.Lock()
		n := len(s.sent)
		s.sent = append(s.sent, v)
		s.mu.Unlock()
		status, out := answer(n)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, out)
	}))
	t.Cleanup(s.Close)
	return s
}

func says(t *testing.T, status int, body string) *server {
	t.Helper()
	return serve(t, func(int) (int, string) { return status, body })
}

func (s *server) requests() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]map[string]any(nil), s.sent...)
}

func (s *server) only(t *testing.T) map[string]any {
	t.Helper()
	sent := s.requests()
	require.Len(t, sent, 1)
	return sent[0]
}

// asking makes a verifier that asks a service.
func asking(t *testing.T, kind string, s *server, o options) rewards.Verifier {
	t.Helper()
	all := options{"url": s.URL}
	maps.Copy(all, o)
	v, err := verify.New(kind, all.raw(t), overNetwork(t))
	require.NoError(t, err)
	return v
}

func sample() *rewards.Sample {
	index := int64(7)
	return &rewards.Sample{
		ID: "s1", Prompt: "how many <singers>?", Response: "12 & more", DataSource: "spider", Index: &index,
		GroundTruth: json.RawMessage(`{"db": "concerts", "n": 12}`),
		ExtraInfo:   json.RawMessage(`{"caption":"a \"fox\"","n":3.50,"deep":{"k":[1,{"x":null}]}}`),
		Media:       []*rewards.Media{{Kind: rewards.Image, Data: []byte{1, 2, 3}}},
	}
}

// fails checks that nothing was found, and the class and text of why.
func fails(t *testing.T, want rewards.Class, result json.RawMessage, err error, says ...string) {
	t.Helper()
	require.Error(t, err)
	assert.Nil(t, result, "nothing is made up")
	assert.Equal(t, want, rewards.ClassOf(err), err.Error())
	for _, text := range says {
		require.ErrorContains(t, err, text)
	}
	assert.Less(t, len(err.Error()), 2000, "what is quoted is bounded")
}

// python is the real program behind python3 on PATH, which may be a shim.
func python(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("SKIPPED: -short: it starts Python")
	}
	named := os.Getenv("REWARDLOOP_PYTHON")
	if named == "" {
		named = "python3"
	}
	out, err := exec.CommandContext(tb.Context(), named, "-c", "import sys, sqlite3; print(sys.executable)").Output()
	if err != nil {
		tb.Skipf("SKIPPED: no Python with sqlite3 on PATH or in REWARDLOOP_PYTHON: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// letters checks JSON letter by letter: order, spaces and digits must stay.
func letters(t *testing.T, want string, got json.RawMessage) {
	t.Helper()
	assert.Equal(t, want, string(got))
}

// verifierFunc adapts a function.
type verifierFunc func(ctx context.Context, s *rewards.Sample) (json.RawMessage, error)

func (f verifierFunc) Verify(ctx context.Context, s *rewards.Sample) (json.RawMessage, error) {
	return f(ctx, s)
}

// finds is a verifier that always finds the same.
func finds(result string) rewards.Verifier {
	return verifierFunc(func(context.Context, *rewards.Sample) (json.RawMessage, error) { return json.RawMessage(result), nil })
}

// failsWith is one that always fails.
func failsWith(err error) rewards.Verifier {
	return verifierFunc(func(context.Context, *rewards.Sample) (json.RawMessage, error) { return nil, err })
}

// waits is one that heeds its context.
func waits() rewards.Verifier {
	return verifierFunc(func(ctx context.Context, _ *rewards.Sample) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
}
