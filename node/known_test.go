package node_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// logged starts a node with a function in Python as its reward, and returns its log.
func logged(t *testing.T, code string, overrides ...string) (book *logbook, addr string) {
	t.Helper()
	cfg, err := config.Load("", append([]string{
		"++server.listen=127.0.0.1:0", "reward.num_workers=2", "pool.python.interpreter=python3",
		"+reward.reward_functions.mine.path=" + function(t, code), "+reward.reward_functions.mine.required=true",
	}, overrides...), nil)
	require.NoError(t, err)
	book = &logbook{}
	n, err := node.New(node.Options{Config: cfg, Version: "test", Log: slog.New(slog.NewTextHandler(book, nil))})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	at, err := n.Listen(t.Context())
	require.NoError(t, err)
	return book, at.String()
}

// submitted sends one text.
func submitted(t *testing.T, addr string) *client.Future {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "known"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	f, err := c.Submit(t.Context(), &rewards.Sample{ID: "a", Response: "hello"}, time.Minute)
	require.NoError(t, err)
	return f
}

func waited(t *testing.T, f *client.Future) *wire.Result {
	t.Helper()
	r, err := f.Wait(t.Context())
	require.NoError(t, err)
	return r
}

// Nobody has to send a sample to learn that a function lacks a module.
func TestAModuleThatAFunctionLacksIsNamedBeforeTheFirstSample(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	book, addr := logged(t, "import sys\nsys.modules['numpy'] = None  # as where not installed\ndef compute_score(solution_image):\n    return 1\n")
	const cause = "waiting for the Python module numpy, which mine.py:compute_score needs"
	var ready struct {
		Rewards []struct{ Reward, State, Why string }
	}
	require.Eventually(t, func() bool {
		ready = seen[struct {
			Rewards []struct{ Reward, State, Why string }
		}](t, addr, "/readyz?reward=default")
		return len(ready.Rewards) == 1 && ready.Rewards[0].State == "stopped"
	}, 10*time.Second, 50*time.Millisecond, "%+v", ready)
	require.Equal(t, cause, ready.Rewards[0].Why)
	require.Contains(t, book.String(), "a reward function failed to score the test sample")
	require.Contains(t, book.String(), `means="install the module numpy`)
	require.Contains(t, book.String(), cause)

	submitted(t, addr)
	require.Eventually(t, func() bool {
		p := seen[struct{ Samples []struct{ Waits string } }](t, addr, "/v1/pending")
		return len(p.Samples) == 1 && p.Samples[0].Waits == cause
	}, 10*time.Second, 50*time.Millisecond)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/?plain", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/html")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(page), "the Python module numpy")
}

// What a function makes of the known sample is no verdict about real ones.
func TestAFunctionThatDislikesTheKnownSampleScoresOthers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	book, addr := logged(t, `
def compute_score(solution_str, data_source):
    if data_source == "rewardloop_known":
        raise ValueError("no such data source")
    return 1
`)
	require.Eventually(t, func() bool { return strings.Contains(book.String(), "ValueError: no such data source") }, 10*time.Second, 20*time.Millisecond)
	require.Contains(t, book.String(), "probe: false")
	r := waited(t, submitted(t, addr))
	require.Equal(t, rewards.Scored, r.Outcome, r.Errors)
	require.NotContains(t, book.String(), "cannot be scored")
}

// A known sample on which the function hangs holds neither the start nor another sample.
func TestAKnownSampleOnWhichAFunctionHangsHoldsNobody(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	book, addr := logged(t, `
import time
def compute_score(solution_str, data_source):
    if data_source == "rewardloop_known":
        time.sleep(1000)
    return 1
`, "+reward.reward_functions.mine.timeout=2s", "pool.python.processes=2")
	r := waited(t, submitted(t, addr))
	require.Equal(t, rewards.Scored, r.Outcome, r.Errors)
	require.Eventually(t, func() bool { return strings.Contains(book.String(), "did not answer within") }, 20*time.Second, 20*time.Millisecond)
}

func TestAFunctionThatWantsNoKnownSampleGetsNone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	book, addr := logged(t, `
def compute_score(solution_str, data_source):
    if data_source == "rewardloop_known":
        raise ValueError("called")
    return 1
`, "+reward.reward_functions.mine.probe=false")
	require.Equal(t, rewards.Scored, waited(t, submitted(t, addr)).Outcome)
	require.NotContains(t, book.String(), "test sample")
}
