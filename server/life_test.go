package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/server"
)

// oneAttempt makes the first failure final.
func oneAttempt() loop.Config { return loop.Config{MaxAttempts: 1} }

// patience bounds what a test waits for something that must happen.
const patience = 20 * time.Second

func receive(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		require.Fail(t, "timed out", what)
	}
}

// slowly posts to the slow profile in the background; the result is nil if the request failed.
func (s *site) slowly(ctx context.Context, body []byte) <-chan *reply {
	done := make(chan *reply, 1)
	req := s.request(ctx, http.MethodPost, "/scorers/slow", body)
	go func() {
		resp, err := s.client.Do(req)
		if err != nil {
			done <- nil
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		done <- &reply{resp, b}
	}()
	return done
}

func answerOf(t *testing.T, c <-chan *reply) *reply {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(patience):
		require.Fail(t, "no answer")
		return nil
	}
}

func TestAClosedRequestCancelsItsSamples(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := s.slowly(ctx, pickled(t, "images", jpegs(3)))
	for range 3 {
		receive(t, s.started, "a slow scorer to begin")
	}
	cancel()
	assert.Nil(t, answerOf(t, done))
	for range 3 {
		receive(t, s.cancelled, "a slow scorer to be cancelled")
	}
	require.Eventually(t, func() bool { return s.loop.InFlight() == 0 }, patience, time.Millisecond)
}

func TestIdenticalRequestsShareOneScoring(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	body := pickled(t, "images", jpegs(1))
	ctx, cancel := context.WithCancel(t.Context())
	first := s.slowly(ctx, body)
	receive(t, s.started, "the slow scorer to begin")
	second := s.slowly(t.Context(), body)
	third := s.slowly(t.Context(), body)
	require.Eventually(t, func() bool {
		return strings.Contains(string(s.get("/metrics").body), "rewardloop_http_requests_in_flight 3")
	}, patience, 5*time.Millisecond)
	cancel() // the one that began it leaves; the others still wait
	assert.Nil(t, answerOf(t, first))
	close(s.release)
	for _, c := range []<-chan *reply{second, third} {
		assert.Equal(t, []float64{7}, answerOf(t, c).scores(t))
	}
	assert.Equal(t, []float64{7}, s.post("/scorers/slow", body).scores(t), "answered from memory")
	assert.Equal(t, 1, s.called("slow"))
	assert.Empty(t, s.cancelled)
	s.post("/scorers/slow", pickled(t, "images", jpegs(2))).scores(t)
	assert.Equal(t, 3, s.called("slow"), "another body is scored on its own")
	assert.Contains(t, string(s.get("/metrics").body), "rewardloop_http_joined_requests_total 3")
	assert.Contains(t, string(s.get("/metrics").body), "rewardloop_http_body_bytes 0")
}

func TestTransientFailuresAreNotRemembered(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: oneAttempt()})
	body := pickled(t, "images", jpegs(1))
	for range 2 {
		s.post("/scorers/fail-unavailable", body).refused(t, 503)
		s.post("/scorers/fail-bad_input", body).refused(t, 422)
	}
	assert.Equal(t, 2, s.called("fail-unavailable"))
	assert.Equal(t, 1, s.called("fail-bad_input"))
}

func TestASampleWithoutAWorkerFailsAsTransient(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{workers: -1, server: func(o *server.Options) { o.Config.SampleTimeout = 50 * time.Millisecond }})
	message, failed := s.post("/", pickled(t, "images", jpegs(2))).refused(t, 503)
	assert.Equal(t, []int64{0, 1}, failed)
	assert.Contains(t, message, "no worker serves")
}

func TestOverloadIsRefusedAsTransient(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{loop: loop.Config{MaxBytes: 1 << 20, MessageBytes: 1 << 20, CreditBytes: 1 << 18}})
	big := make([]byte, 700<<10)
	copy(big, "\xff\xd8\xff")
	other := append([]byte(nil), big...)
	other[100] = 1
	message, _ := s.post("/scorers/slow", pickled(t, "images", [][]byte{big, other})).refused(t, 503)
	assert.Contains(t, message, "max_bytes")
	require.Eventually(t, func() bool { return s.loop.InFlight() == 0 }, patience, time.Millisecond, "the sample that was taken is taken back")

	small := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.PickleBytes, o.Config.JSONBytes, o.Config.BodiesBytes = 1<<20, 1<<19, 1<<20
	}})
	conn := dial(t, small)
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 1<<20)
	_, err := conn.Write(make([]byte, 900<<10))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return strings.Contains(string(small.get("/metrics").body), "rewardloop_http_body_bytes 1.048576e+06")
	}, patience, 5*time.Millisecond)
	message, _ = small.post("/", pickled(t, "images", [][]byte{big})).refused(t, 503)
	assert.Contains(t, message, "bodies")
}

func dial(t *testing.T, s *site) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func readReply(t *testing.T, r *bufio.Reader) reply {
	t.Helper()
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return reply{resp, b}
}

func TestAGigabyteIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.DiscardTimeout = 100 * time.Millisecond }})
	conn := dial(t, s)
	begun := time.Now()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n")
	message, _ := readReply(t, bufio.NewReader(conn)).refused(t, http.StatusRequestEntityTooLarge)
	assert.Contains(t, message, "1073741824")
	assert.Less(t, time.Since(begun), patience/2)
}

func TestATooLargeBodyIsReadAwaySoThatTheConnectionLives(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.PickleBytes = 1 << 20 }})
	body := pickled(t, "images", jpegs(1))
	for _, chunked := range []bool{false, true} {
		conn := dial(t, s)
		r := bufio.NewReader(conn)
		go func() { // ends with the connection
			const size = 8 << 20
			if chunked {
				fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", size)
				_, _ = conn.Write(make([]byte, size))
				fmt.Fprint(conn, "\r\n0\r\n\r\n")
			} else {
				fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size)
				_, _ = conn.Write(make([]byte, size))
			}
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}()
		readReply(t, r).refused(t, http.StatusRequestEntityTooLarge)
		readReply(t, r).scores(t)
	}
}

func TestAHeaderThatDripsAndABodyThatStalls(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.HeaderTimeout, o.Config.BodyTimeout, o.Config.DiscardTimeout = 100*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	}})
	drip := dial(t, s)
	fmt.Fprint(drip, "POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	rest, err := io.ReadAll(drip) // the server closes it
	require.NoError(t, err)
	assert.NotContains(t, string(rest), "200 OK")

	stall := dial(t, s)
	fmt.Fprint(stall, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc")
	readReply(t, bufio.NewReader(stall)).refused(t, http.StatusRequestTimeout)
}

func TestScoringOutlastsTheTimeoutsOfHeaderAndBody(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.HeaderTimeout, o.Config.BodyTimeout, o.Config.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	}})
	done := s.slowly(t.Context(), pickled(t, "images", jpegs(1)))
	receive(t, s.started, "the slow scorer")
	select {
	case <-s.cancelled:
		require.Fail(t, "a deadline of the body cancelled the scoring")
	case <-time.After(300 * time.Millisecond): // six times each timeout
	}
	close(s.release)
	assert.Equal(t, []float64{7}, answerOf(t, done).scores(t))
}

func TestDrainRefusesNewSamplesAndWaitsForTheOldOnes(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	done := s.slowly(t.Context(), pickled(t, "images", jpegs(1)))
	receive(t, s.started, "the slow scorer")
	assert.Equal(t, 200, s.get("/readyz").StatusCode)

	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Drain(short), "1 requests")
	message, _ := s.post("/", pickled(t, "images", jpegs(1))).refused(t, 503)
	assert.Contains(t, message, "draining")
	assert.Equal(t, 503, s.post("/v1/score", []byte(`{}`)).StatusCode)
	assert.Equal(t, 503, s.get("/readyz").StatusCode)
	assert.Equal(t, 200, s.get("/healthz").StatusCode)
	assert.Contains(t, string(s.get("/v1/pending").body), `"total":1`)

	drained := make(chan error, 1)
	go func() { drained <- s.Drain(context.WithoutCancel(t.Context())) }()
	close(s.release)
	assert.Equal(t, []float64{7}, answerOf(t, done).scores(t))
	require.NoError(t, <-drained)
	require.NoError(t, s.Stop(t.Context()))
	_, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr().String())
	require.Error(t, err)
	require.Error(t, s.Start(t.Context(), nil))
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	done := s.slowly(t.Context(), pickled(t, "images", jpegs(1)))
	receive(t, s.started, "the slow scorer")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Stop(ctx), "cut off")
	assert.Nil(t, answerOf(t, done))
	receive(t, s.cancelled, "the sample to be cancelled")
}

func TestAConnectionBeyondTheLimitIsClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Config.MaxConns = 1 }})
	first := dial(t, s)
	fmt.Fprint(first, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	assert.Equal(t, 200, readReply(t, bufio.NewReader(first)).StatusCode)
	second := dial(t, s)
	_, err := second.Read(make([]byte, 1))
	require.Error(t, err)
}
