package stub_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/trainer_modes/stub"
)

func serve(t *testing.T) *stub.Stub {
	t.Helper()
	s, err := stub.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// dial is a connection that is written to by hand.
func dial(t *testing.T, s *stub.Stub) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn, bufio.NewReader(conn)
}

func post(body string) string {
	return fmt.Sprintf("POST /rm HTTP/1.1\r\nHost: here\r\ncontent-LENGTH: %d\r\n\r\n%s", len(body), body)
}

func answer(t *testing.T, r *bufio.Reader) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestTheScoreIsMinusTheSquaredDistanceToTheTarget(t *testing.T) {
	t.Parallel()
	for response, want := range map[string]float64{
		"0.5 -0.5 1 -1":      0,
		"0.5 -0.5 1 -1 0.5":  0,
		"0 0 0 0":            -2.5,
		" 1.5\t-0.5\n":       -1,
		"0.100000 -0.200000": -((0.1-0.5)*(0.1-0.5) + (-0.2+0.5)*(-0.2+0.5)),
	} {
		got, err := stub.Score(response)
		require.NoError(t, err, response)
		assert.InDelta(t, want, got, 1e-15, response)
	}
	for _, response := range []string{"", " ", "one", "NaN", "Inf", "1e10", "0,5", strings.Repeat("1 ", 65)} {
		_, err := stub.Score(response)
		require.Error(t, err, response)
	}
}

func TestOneConnectionCarriesManyCallsHoweverTheirBytesCome(t *testing.T) {
	t.Parallel()
	s := serve(t)
	conn, r := dial(t, s)
	one := post(`{"prompt":"p","response":"0 0 0 0","label":{"wait_ms":0}}`)
	other := post(`{"label": {"wait_ms": 1}, "response": "0.5", "prompt": "a \"quoted\" one", "more": [1]}`)
	_, err := io.WriteString(conn, one+other+one) // three at once
	require.NoError(t, err)
	for _, want := range []string{"-2.5", "-0", "-2.5"} {
		status, body := answer(t, r)
		assert.Equal(t, 200, status)
		assert.Equal(t, want, body)
	}
	for _, b := range []byte(other) { // byte by byte
		_, err := conn.Write([]byte{b})
		require.NoError(t, err)
	}
	_, body := answer(t, r)
	assert.Equal(t, "-0", body)
	large := post(`{"prompt":"` + strings.Repeat("x", 60_000) + `","response":"0 0 0 0","label":null}`)
	_, err = io.WriteString(conn, large+one)
	require.NoError(t, err)
	for range 2 {
		_, body = answer(t, r)
		assert.Equal(t, "-2.5", body)
	}
	assert.EqualValues(t, 6, s.Answered())
}

func TestTheAnswerComesAfterTheTimeThatTheSampleAsksFor(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, 100)
	for i := range errs {
		wg.Go(func() {
			body := fmt.Sprintf(`{"prompt":"","response":"%d","label":{"wait_ms":%v}}`, i, 100.5+float64(i))
			resp, err := http.Post(s.URL(), "application/json", strings.NewReader(body))
			if err != nil {
				errs[i] = err
				return
			}
			took := time.Since(start)
			got, err := io.ReadAll(resp.Body)
			want, _ := stub.Score(fmt.Sprint(i))
			errs[i] = errors.Join(err, resp.Body.Close())
			if string(got) != fmt.Sprint(want) || took < time.Duration(100+i)*time.Millisecond {
				errs[i] = fmt.Errorf("%d: %s after %v", i, got, took)
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	assert.Less(t, time.Since(start), 5*time.Second, "side by side")
	http.DefaultClient.CloseIdleConnections()
}

func TestASampleThatIsToFailFailsAloneAndTheConnectionStays(t *testing.T) {
	t.Parallel()
	s := serve(t)
	conn, r := dial(t, s)
	for body, want := range map[string]int{
		`{"response":"1","label":{"wait_ms":1,"status":500}}`:           500,
		`{"prompt":"","response":"1","label":{"wait_ms":0}}`:            200,
		`{"response":"1","label":{"status":418}}`:                       418,
		`{"response":"1","label":{"status":200}}`:                       400,
		`{"response":"one","label":{"wait_ms":0}}`:                      400,
		`{"prompt":"","response":"1","label":{"wait_ms":-1}}`:           400,
		`{"prompt":"","response":"1","label":{"wait_ms":1e7}}`:          400,
		`{"prompt":"","response":"1","label":{"wait_ms":NaN}}`:          400,
		`{"response":"1","label":[]}`:                                   400,
		`{"response":"1"`:                                               400,
		`{"prompt":"\","response":"1","label":{"wait_ms":0}}`:           400,
		`{"prompt":"a\",","response":"1","label":{"wait_ms":0},"b":{}}`: 200,
	} {
		_, err := io.WriteString(conn, post(body))
		require.NoError(t, err)
		status, said := answer(t, r)
		assert.Equal(t, want, status, "%s: %s", body, said)
	}
}

func TestWhatIsNoRequestOfOursIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: here\r\n\r\n":                                    405,
		"POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n":                            405,
		"POST / HTTP/1.1\r\nHost: here\r\n\r\n":                                   411,
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":          411,
		"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab":     400,
		"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n":                           400,
		"POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n":                        413,
		"POST / HTTP/1.1\r\nX: " + strings.Repeat("x", 10_000):                    431,
		"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\nabcde": 400,
	} {
		conn, r := dial(t, s)
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		status, _ := answer(t, r)
		assert.Equal(t, want, status, "%.80q", request)
		_, err = r.ReadByte()
		require.ErrorIs(t, err, io.EOF, "where the next request begins is not known")
		require.NoError(t, conn.Close())
	}
}

func TestCloseEndsWhatWaitsHangsOrIdlesAndMayBeCalledTwice(t *testing.T) {
	t.Parallel()
	s, err := stub.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	var ends []*bufio.Reader
	for _, sent := range []string{
		post(`{"response":"1","label":{"wait_ms":600000}}`), post(`{"response":"1","label":{"hang":true}}`), "POST / HT", "",
	} {
		conn, r := dial(t, s)
		_, err := io.WriteString(conn, post(`{"response":"1"}`)+sent)
		require.NoError(t, err)
		_, body := answer(t, r)
		require.Equal(t, "-0.25", body)
		ends = append(ends, r)
	}
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	for _, r := range ends {
		_, err := r.ReadByte()
		require.Error(t, err)
	}
	_, err = net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	require.Error(t, err)
}
