package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
)

// serving starts a server on a free port and returns it with its address.
func serving(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	p := start(t, "", nil, nil, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	return p, p.address(t)
}

// address is where a server that has been started serves.
func (p *process) address(t *testing.T) string {
	t.Helper()
	p.stderr.await(t, "msg=serving")
	m := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.stderr.String())
	require.NotNil(t, m, p.stderr.String())
	return m[1]
}

func dial(t *testing.T, addr string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "test", ReconnectFor: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // the server may be gone
	return c
}

// waiting submits a sample that waits for a group whose other member never comes, and
// returns when it does.
func waiting(t *testing.T, c *client.Client, addr string, deadline time.Duration) *client.Future {
	t.Helper()
	file, _ := drawing(t, 0)
	f, err := c.Submit(t.Context(), &rewards.Sample{
		ID: "waits", UID: "u", GroupSize: 2,
		Media: []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(file)}, Data: file}},
	}, deadline)
	require.NoError(t, err)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); ; <-tick.C {
		var state struct {
			Samples []loop.PendingSample `json:"samples"`
		}
		require.NoError(t, json.Unmarshal(get(t, "http://"+addr+"/v1/pending"), &state))
		if len(state.Samples) == 1 && state.Samples[0].Stage == "waiting_for_group_mean" {
			return f
		}
		require.Less(t, time.Since(begun), 30*time.Second, "the sample is not held: %+v", state.Samples)
	}
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", b)
	return b
}

func TestAServerThatIsToldToStopFinishesWhatIsInFlightAndTakesNothingNew(t *testing.T) {
	t.Parallel()
	_, fails := drawing(t, 0)
	p, addr := serving(t, "-c", imputing(t, t.TempDir(), fails, ""))
	c := dial(t, addr)
	f := waiting(t, c, addr, 2*time.Second)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.stderr.await(t, "draining")
	select {
	case <-p.exited:
		t.Fatalf("it did not wait for the sample: %s", p.stderr)
	default:
	}
	res, err := f.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors) // by the component that did not fail
	require.Equal(t, exitOK, p.code(t), p.stderr)
	require.Contains(t, p.stderr.String(), "every sample was answered")
}

// What started a server and was killed cannot tell it to stop, and is not there to read its log.
func TestAServerWhoseStarterIsGoneFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	_, fails := drawing(t, 0)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	p := start(t, "", r, nil, "serve", "--listen", "127.0.0.1:0", "--until-stdin-closes", "-c", imputing(t, t.TempDir(), fails, ""))
	addr := p.address(t)
	c := dial(t, addr)
	f := waiting(t, c, addr, 2*time.Second)
	require.NoError(t, w.Close())
	p.stderr.await(t, "the program that started this process ended")
	res, err := f.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
	require.Equal(t, exitOK, p.code(t), p.stderr)
}

func TestASecondSignalStopsAServerAtOnce(t *testing.T) {
	t.Parallel()
	_, fails := drawing(t, 0)
	p, addr := serving(t, "-c", imputing(t, t.TempDir(), fails, ""))
	c := dial(t, addr)
	f := waiting(t, c, addr, time.Minute)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.stderr.await(t, "draining")
	begun := time.Now()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitFailure, p.code(t), p.stderr)
	require.Less(t, time.Since(begun), 20*time.Second) // and neither drain_timeout nor the deadline
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := f.Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the client keeps the sample for the next server")
}

func TestAServerWhoseAddressIsTakenExitsWith1(t *testing.T) {
	t.Parallel()
	_, addr := serving(t, "-c", "testdata/cfg.yaml")
	p := start(t, "", nil, nil, "serve", "-c", "testdata/cfg.yaml", "--listen", addr)
	require.Equal(t, exitFailure, p.code(t))
	require.Contains(t, p.stderr.String(), "address already in use")
}
