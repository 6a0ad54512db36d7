package stub_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/trainer_modes/stub"
)

const childKind = "REWARDLOOP_STUB_CHILD"

// child serves until in ends, and says on out where.
func child(kind string, in io.Reader, out io.Writer) error {
	url, stop := "", func() error { return nil }
	switch kind {
	case "stub":
		s, err := stub.Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			return err
		}
		url, stop = s.URL(), s.Close
	case "nethttp":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		srv := &http.Server{Handler: http.HandlerFunc(plain), ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = srv.Serve(l) }() // ends with stop
		url, stop = "http://"+l.Addr().String(), srv.Close
	}
	fmt.Fprintln(out, url)
	_, err := io.Copy(io.Discard, in)
	return errors.Join(err, stop())
}

// plain is the same service as one would write it with net/http.
func plain(w http.ResponseWriter, r *http.Request) {
	var c struct {
		Response string     `json:"response"`
		Label    stub.Truth `json:"label"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	v, scoreErr := stub.Score(c.Response)
	if err = errors.Join(err, scoreErr); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	time.Sleep(time.Duration(c.Label.WaitMS * float64(time.Millisecond)))
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, v)
}

// BenchmarkStub reports what a call costs the process of the service: 2,048 connections,
// each asks for an answer after 100 ms and then again.
func BenchmarkStub(b *testing.B) {
	for _, kind := range []string{"stub", "nethttp"} {
		b.Run(kind, func(b *testing.B) { calls(b, kind, 2048, 100) })
	}
}

func calls(b *testing.B, kind string, connections int, waitMS float64) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childKind+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	addr := strings.TrimPrefix(strings.TrimSpace(url), "http://")

	var left atomic.Int64
	left.Store(int64(b.N))
	errs := make([]error, connections)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = ask(addr, &left, waitMS) })
	}
	wg.Wait()
	require.NoError(b, errors.Join(errs...))
	require.NoError(b, in.Close())
	require.NoError(b, cmd.Wait())
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(b.N), "stub-cpu-µs/call")
}

// ask makes calls over one connection for as long as some are left.
func ask(addr string, left *atomic.Int64, waitMS float64) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	body := fmt.Sprintf(`{"prompt":"s3p17","response":"0.123456 -1.234567 0.000123 0.999999","label":{"wait_ms":%v}}`, waitMS)
	request := []byte(fmt.Sprintf("POST /rm HTTP/1.1\r\nHost: %s\r\nUser-Agent: rewardloop\r\nContent-Length: %d\r\n"+
		"Accept-Encoding: identity\r\nContent-Type: application/json\r\n\r\n%s", addr, len(body), body))
	r := bufio.NewReaderSize(conn, 512)
	for left.Add(-1) >= 0 {
		if _, err := conn.Write(request); err != nil {
			return err
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
			return errors.Join(err, fmt.Errorf("status %d", resp.StatusCode))
		}
	}
	return nil
}
