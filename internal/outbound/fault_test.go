package outbound_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestStatusesThatMayPassAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504, 507, 599} {
		var asked counter
		g := served(t, outbound.UpstreamConfig{}, func(w http.ResponseWriter, r *http.Request) {
			body := new(bytes.Buffer)
			_, _ = body.ReadFrom(r.Body)
			if asked.next() < 3 {
				w.WriteHeader(status)
				return
			}
			fmt.Fprint(w, "answer to ", body)
		})
		answer, err := ask(t, g)
		require.NoError(t, err, status)
		assert.Equal(t, "answer to question", string(answer.Body), "each attempt sends the body")
		assert.Equal(t, 3, answer.Attempts)
		s := g.Stats().Endpoints[0]
		assert.EqualValues(t, 3, s.Requests)
		assert.EqualValues(t, 2, s.Retries)
		assert.EqualValues(t, 2, s.Failures[rewards.Unavailable])
	}
}

func TestAStatusThatDoesNotPassIsAnErrorWithTheAnswersBeginning(t *testing.T) {
	t.Parallel()
	var asked counter
	g := served(t, outbound.UpstreamConfig{Name: "judge"}, func(w http.ResponseWriter, _ *http.Request) {
		asked.next()
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "over\x00loaded\n\r  now \xff", strings.Repeat("x", 10_000))
	})
	_, err := ask(t, g)
	require.ErrorIs(t, err, rewards.Unavailable)
	require.ErrorContains(t, err, "outbound: judge: "+g.Stats().Endpoints[0].Endpoint+" answered 503 Service Unavailable: over loaded now ?xxx")
	require.ErrorContains(t, err, "attempt 3 of 3")
	assert.Less(t, len(err.Error()), 400)
	assert.Equal(t, 3, asked.count())
}

func TestStatusesThatWouldOnlyRepeatAreErrorsAtOnce(t *testing.T) {
	t.Parallel()
	for status, class := range map[int]rewards.Class{
		400: rewards.BadInput, 413: rewards.BadInput, 422: rewards.BadInput,
		401: rewards.Internal, 403: rewards.Internal, 404: rewards.Internal, 405: rewards.Internal, 410: rewards.Internal,
		451: rewards.Internal, 501: rewards.Internal, 505: rewards.Internal, 300: rewards.Internal, 304: rewards.Internal, 307: rewards.Internal,
	} {
		var asked counter
		g := served(t, outbound.UpstreamConfig{}, func(w http.ResponseWriter, _ *http.Request) {
			asked.next()
			w.WriteHeader(status)
		})
		_, err := ask(t, g)
		assert.Equal(t, class, rewards.ClassOf(err), "%d: %v", status, err)
		require.ErrorContains(t, err, strconv.Itoa(status))
		assert.Equal(t, 1, asked.count(), status)
	}
}

func TestTheCallerMayTakeOtherStatusesForAnswers(t *testing.T) {
	t.Parallel()
	g := served(t, outbound.UpstreamConfig{}, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
		fmt.Fprint(w, "as it is")
	})
	all := func(int) bool { return true }
	never := func(*outbound.Answer) error { return rewards.Internal }
	for _, status := range []int{400, 401, 429, 500, 503} {
		answer, err := g.Do(t.Context(), &outbound.Call{Path: "/?status=" + strconv.Itoa(status), Statuses: all, Check: never})
		require.NoError(t, err)
		assert.Equal(t, status, answer.Status)
		assert.Equal(t, "as it is", string(answer.Body))
	}
	_, err := g.Do(t.Context(), &outbound.Call{Path: "/?status=302", Statuses: all})
	require.ErrorIs(t, err, rewards.Internal, "a redirect never is")
}

func TestAHeaderThatCannotBeSentIsTheCallsFaultAndNotTheEndpoints(t *testing.T) {
	t.Parallel()
	var asked counter
	g := served(t, outbound.UpstreamConfig{BreakAfter: 1}, func(http.ResponseWriter, *http.Request) { asked.next() })
	for want, h := range map[string]http.Header{
		`"X Y" is not the name`:                  {"X Y": {"v"}},
		`"" is not the name`:                     {"": {"v"}},
		"X-Replica contains a control character": {"X-Replica": {"a\x01b"}},
		"X-Line contains a control character":    {"X-Line": {"fine", "a\r\nX-More: b"}},
	} {
		_, err := g.Do(t.Context(), &outbound.Call{Header: h})
		require.ErrorIs(t, err, rewards.Internal)
		require.ErrorContains(t, err, want)
	}
	s := g.Stats().Endpoints[0]
	assert.Equal(t, outbound.Closed, s.Breaker)
	assert.EqualValues(t, 4, s.Requests, "none was tried again")
	_, err := g.Do(t.Context(), &outbound.Call{Header: http.Header{"X-Tab": {"a\tb é \xff"}}})
	require.NoError(t, err)
	assert.Equal(t, 1, asked.count())
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	g := open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{"http://" + l.Addr().String()}})
	_, err = ask(t, g)
	require.ErrorIs(t, err, rewards.Unavailable)
	require.ErrorContains(t, err, "connection refused")
	assert.EqualValues(t, 3, g.Stats().Endpoints[0].Requests)
}

// once is a handler that spoils the first answer and gives the right one then.
func once(spoil http.HandlerFunc) http.HandlerFunc {
	var asked counter
	return func(w http.ResponseWriter, r *http.Request) {
		if asked.next() == 1 {
			spoil(w, r)
			return
		}
		fmt.Fprint(w, `{"scores": [1, 2]}`)
	}
}

// raw writes bytes to the connection and closes it, with a reset if that is asked for.
func raw(text string, reset bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte(text))
		if reset {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		c.Close()
	}
}

// scores is a Check: JSON with two scores.
func scores(a *outbound.Answer) error {
	var body struct {
		Scores []float64 `json:"scores"`
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return fmt.Errorf("%w: the answer is no JSON: %w", rewards.Unavailable, err)
	}
	if len(body.Scores) != 2 {
		return fmt.Errorf("%w: %d scores for 2 samples", rewards.Unavailable, len(body.Scores))
	}
	return nil
}

func TestASpoiltAnswerIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]http.HandlerFunc{
		"closed without an answer":    raw("", false),
		"reset without an answer":     raw("", true),
		"closed within the body":      raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"sco", false),
		"reset within the body":       raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"sco", true),
		"closed within a chunk":       raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{\"sco", false),
		"no HTTP":                     raw("220 smtp.example.com ESMTP\r\n", false),
		"endless headers":             raw("HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 100), false),
		"HTML":                        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>gateway</html>") },
		"empty":                       func(http.ResponseWriter, *http.Request) {},
		"no content":                  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"wrong count":                 func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"scores": [1]}`) },
		"truncated before it is sent": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"scores": [1, 2`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := served(t, outbound.UpstreamConfig{}, once(spoil))
			answer, err := g.Do(t.Context(), &outbound.Call{Body: []byte("q"), Check: scores})
			require.NoError(t, err)
			assert.Equal(t, 2, answer.Attempts)

			g = served(t, outbound.UpstreamConfig{Attempts: 2}, spoil)
			_, err = g.Do(t.Context(), &outbound.Call{Body: []byte("q"), Check: scores})
			require.ErrorIs(t, err, rewards.Unavailable)
			assert.EqualValues(t, 2, g.Stats().Endpoints[0].Failures[rewards.Unavailable])
		})
	}
}

func TestWhatCheckSaysOfTheSampleIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, class := range []rewards.Class{rewards.InvalidScore, rewards.BadInput, rewards.Internal} {
		g := served(t, outbound.UpstreamConfig{BreakAfter: 1}, func(http.ResponseWriter, *http.Request) {})
		_, err := g.Do(t.Context(), &outbound.Call{Check: func(*outbound.Answer) error {
			return fmt.Errorf("%w: said by check", class)
		}})
		assert.Equal(t, class, rewards.ClassOf(err))
		require.ErrorContains(t, err, "said by check")
		s := g.Stats().Endpoints[0]
		assert.EqualValues(t, 1, s.Requests)
		assert.Equal(t, outbound.Closed, s.Breaker, "the endpoint did answer")
	}
}

// drip writes a byte every millisecond until the client has gone.
func drip(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := w.Write([]byte("x")); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

func TestABodyThatDripsEndsWithTheAttemptsTime(t *testing.T) {
	t.Parallel()
	g := served(t, outbound.UpstreamConfig{Timeout: 100 * time.Millisecond, Attempts: 2}, drip)
	_, err := ask(t, g)
	require.ErrorIs(t, err, rewards.Timeout)
	require.ErrorContains(t, err, "did not answer within 100ms (its answer broke off after")
	assert.EqualValues(t, 2, g.Stats().Endpoints[0].Requests)
}

func TestABodyThatDoesNotComeBehindAnErrorIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	start := time.Now()
	g := served(t, outbound.UpstreamConfig{Attempts: 1}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("xxx"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	_, err := ask(t, g)
	require.ErrorIs(t, err, rewards.Unavailable)
	require.ErrorContains(t, err, "502 Bad Gateway: xxx")
	assert.Less(t, time.Since(start), 30*time.Second, "and not the attempt's 120 s")
}

func TestABodyOfAGigabyteCostsItsBound(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	chunk := make([]byte, 1<<20)
	for name, declared := range map[string]string{"declared": strconv.Itoa(1 << 30), "chunked": ""} {
		g := served(t, outbound.UpstreamConfig{}, func(w http.ResponseWriter, _ *http.Request) {
			if declared != "" {
				w.Header().Set("Content-Length", declared)
			}
			for range 1 << 10 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ask(t, g)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, rewards.Internal, name)
		require.ErrorContains(t, err, "more than 8388608 bytes")
		assert.EqualValues(t, 1, g.Stats().Endpoints[0].Requests, "another attempt would be the same")
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), name)
	}
}

func TestABodyOfExactlyItsBoundIsAnAnswer(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 511, 512, 4095, 4096, 4097, 65_536, 65_537, 300_000} {
		for _, flush := range []bool{false, true} {
			g := served(t, outbound.UpstreamConfig{}, func(w http.ResponseWriter, _ *http.Request) {
				if flush { // No Content-Length.
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
				} else {
					w.Header().Set("Content-Length", strconv.Itoa(n))
				}
				_, _ = w.Write(bytes.Repeat([]byte("z"), n))
			})
			answer, err := g.Do(t.Context(), &outbound.Call{MaxBytes: max(int64(n), 1)})
			require.NoError(t, err, "%d bytes", n)
			assert.Len(t, answer.Body, n)
			if n > 1 {
				_, err = g.Do(t.Context(), &outbound.Call{MaxBytes: int64(n) - 1})
				require.ErrorIs(t, err, rewards.Internal, "%d bytes", n)
			}
		}
	}
}

func TestACompressedAnswerIsRefusedUnread(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 8 {
		_, err := z.Write(make([]byte, 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	g := served(t, outbound.UpstreamConfig{}, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	_, err := g.Do(t.Context(), &outbound.Call{Header: http.Header{"Accept-Encoding": {"gzip"}}})
	require.ErrorIs(t, err, rewards.Internal)
	require.ErrorContains(t, err, `Content-Encoding "gzip"`)
	assert.EqualValues(t, 1, g.Stats().Endpoints[0].Requests)
}

func TestACertificateMustBeTrusted(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = quiet()
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, err := ask(t, open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{srv.URL}}))
	require.ErrorIs(t, err, rewards.Internal)
	require.ErrorContains(t, err, "certificate")
	require.ErrorContains(t, err, "CA file")

	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	require.NoError(t, os.WriteFile(ca, block, 0o600))
	answer, err := ask(t, open(t, outbound.Policy{CAFile: ca}, outbound.UpstreamConfig{URLs: []string{srv.URL}}))
	require.NoError(t, err)
	assert.Equal(t, "HTTP/1.1", string(answer.Body))
}

func TestHTTPSToAServerThatSpeaksHTTPSaysSo(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	_, err := ask(t, open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{strings.Replace(srv.URL, "http", "https", 1)}}))
	require.ErrorIs(t, err, rewards.Internal)
	require.ErrorContains(t, err, "begin its URL with http://")
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var opened counter
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/503" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, strings.Repeat("busy ", 1000))
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.next()
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	g := open(t, outbound.Policy{}, outbound.UpstreamConfig{URLs: []string{srv.URL}, Attempts: 1, BreakAfter: 1000})
	for i := range 40 {
		_, err := g.Do(t.Context(), &outbound.Call{Path: []string{"", "/503"}[i%2]})
		assert.Equal(t, i%2 == 1, err != nil)
	}
	assert.Equal(t, 1, opened.count(), "a refusal is read to its end")
}
