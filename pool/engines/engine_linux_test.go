package engines_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/engines"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// begin starts an engine whose servers are stubs that misbehave as args say, and that ends with the test.
func begin(t *testing.T, change func(*engines.Config), args ...string) *engines.Engine {
	t.Helper()
	e := made(t, change, args...)
	require.NoError(t, e.Start(nil))
	return e
}

// made is such an engine that is not started yet.
func made(t *testing.T, change func(*engines.Config), args ...string) *engines.Engine {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cfg := engines.Config{
		Name: "judge", Kind: engines.VLLM, Model: "models/tiny", Served: "tiny", Servers: 1, Python: self, Args: args, Folder: t.TempDir(),
		StopTimeout: time.Second, HealthEvery: 20 * time.Millisecond, HealthTimeout: 500 * time.Millisecond, CanaryTimeout: time.Second,
		PauseMin: 10 * time.Millisecond, PauseMax: 100 * time.Millisecond, Canary: canary, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	e, err := engines.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, e.Stop(ctx))
		for _, s := range e.Status() {
			assert.Equal(t, engines.Stopped, s.State)
		}
	})
	return e
}

// canary asks a question; a model that the server does not know, it will never know.
func canary(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model": "tiny", "messages": []}`))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%w: %s", engines.ErrUnable, text)
	}
	return err
}

func ready(t *testing.T, e *engines.Engine, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, e.Ready(ctx, n))
}

// eventually waits until the only server's status is as wanted.
func eventually(t *testing.T, e *engines.Engine, as func(engines.Status) bool) engines.Status {
	t.Helper()
	late := time.After(patience)
	for {
		changed := e.Changed()
		s := e.Status()[0]
		if as(s) {
			return s
		}
		select {
		case <-changed:
		case <-late:
			require.FailNow(t, "the server never became that", "%+v", s)
		}
	}
}

func TestServersStartAndAnswerAtTheirOwnAddresses(t *testing.T) {
	t.Parallel()
	e := begin(t, func(c *engines.Config) { c.Servers = 2 }, "--stub-start=200ms")
	require.ErrorContains(t, e.Start(nil), "started twice")
	urls := e.URLs()
	require.Len(t, urls, 2)
	assert.NotEqual(t, urls[0], urls[1])
	ready(t, e, 2)
	assert.Equal(t, urls, e.URLs())
	for _, u := range urls {
		require.NoError(t, canary(t.Context(), u))
		assert.Contains(t, u, "http://127.0.0.1:")
	}
}

func TestAServerThatEndsIsStartedAgainUnderItsAddress(t *testing.T) {
	t.Parallel()
	e := begin(t, nil)
	ready(t, e, 1)
	before := e.Status()[0]
	require.NoError(t, syscall.Kill(-before.PID, syscall.SIGKILL)) // its keeper, as the kernel would for memory
	again := eventually(t, e, func(s engines.Status) bool { return s.State == engines.Ready && s.Starts == 2 })
	assert.Equal(t, before.URL, again.URL)
	assert.NotEqual(t, before.PID, again.PID)
	assert.Contains(t, again.Why, "the command ended: signal: killed")
	require.NoError(t, canary(t.Context(), again.URL))
}

func TestAServerThatNeverStartsIsTriedAgainWithItsLastWordsAsTheReason(t *testing.T) {
	t.Parallel()
	e := begin(t, nil, "--stub-exits=3")
	s := eventually(t, e, func(s engines.Status) bool { return s.Starts > 2 && s.State == engines.Paused })
	assert.Contains(t, s.Why, "exit status 3")
	assert.Contains(t, s.Why, "RuntimeError: no card has room for models/tiny")
	text, err := os.ReadFile(s.Log)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, bytes.Count(text, []byte("no card has room")), 2, "the log has what all of them said")
}

func TestAServerThatStartsTooSlowlyIsEnded(t *testing.T) {
	t.Parallel()
	e := begin(t, func(c *engines.Config) { c.StartTimeout = 300 * time.Millisecond }, "--stub-start=1h")
	s := eventually(t, e, func(s engines.Status) bool { return s.Starts == 2 })
	assert.Contains(t, s.Why, "the server was not ready after 3")
}

func TestAServerThatKeepsEndingIsStartedAgainAndAgain(t *testing.T) {
	t.Parallel()
	e := begin(t, nil, "--stub-flap=50ms")
	s := eventually(t, e, func(s engines.Status) bool { return s.Starts >= 4 })
	assert.Contains(t, s.Why, "exit status 9")
}

func TestAServerThatFallsSilentIsEndedAndStartedAgain(t *testing.T) {
	t.Parallel()
	e := begin(t, func(c *engines.Config) { c.HealthTimeout = 50 * time.Millisecond }, "--stub-hang-after=2")
	ready(t, e, 1) // with one answer
	require.NoError(t, canary(t.Context(), e.URLs()[0]))
	s := eventually(t, e, func(s engines.Status) bool { return s.Starts >= 2 && s.State == engines.Ready })
	assert.Contains(t, s.Why, "the server was ready and no longer answers")
}

func TestASuspectIsAskedAQuestionAndEndedIfItDoesNotAnswer(t *testing.T) {
	t.Parallel()
	e := begin(t, func(c *engines.Config) { c.HealthEvery, c.CanaryTimeout = time.Hour, 200*time.Millisecond })
	ready(t, e, 1)
	url := e.URLs()[0]
	e.Suspect(url) // unjustly
	require.NoError(t, canary(t.Context(), url))
	assert.Equal(t, 1, e.Status()[0].Starts)
	answer, err := http.Post(url+"/sleep", "", http.NoBody)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	e.Suspect(url) // its health is good, and questions hang
	e.Suspect("http://127.0.0.1:1")
	s := eventually(t, e, func(s engines.Status) bool { return s.Starts == 2 && s.State == engines.Ready })
	assert.Contains(t, s.Why, "the canary")
	require.NoError(t, canary(t.Context(), url))
}

func TestAnEngineThatCannotDoWhatIsAskedIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	e := begin(t, nil, "--stub-name=another")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := e.Ready(ctx, 1)
	require.ErrorIs(t, err, engines.ErrUnable)
	require.ErrorContains(t, err, `The model "tiny" does not exist`)
	s := e.Status()[0]
	assert.Equal(t, engines.Unable, s.State)
	assert.Equal(t, 1, s.Starts)
	_, err = http.Get(s.URL + "/health") //nolint:bodyclose // there is no answer
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "it is ended: it would hold the cards for nothing")
}

func TestAServerWhosePortIsTakenGetsAnotherOne(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var moved []string
	e := begin(t, func(c *engines.Config) {
		c.Moved = func(urls []string) {
			mu.Lock()
			defer mu.Unlock()
			moved = urls
		}
		c.PauseMin = 500 * time.Millisecond
	})
	ready(t, e, 1)
	before := e.Status()[0]
	require.NoError(t, syscall.Kill(-before.PID, syscall.SIGKILL))
	eventually(t, e, func(s engines.Status) bool { return s.State == engines.Paused })
	at, err := url.Parse(before.URL)
	require.NoError(t, err)
	var l net.Listener
	require.Eventually(t, func() bool { l, err = net.Listen("tcp", at.Host); return err == nil }, patience, time.Millisecond)
	defer l.Close()
	s := eventually(t, e, func(s engines.Status) bool { return s.State == engines.Ready && s.Starts == 2 })
	assert.NotEqual(t, before.URL, s.URL)
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{s.URL}, moved)
}

func TestNothingIsLeftOfAServerThatIgnoresSIGTERMAndStartsOthers(t *testing.T) {
	t.Parallel()
	e := begin(t, func(c *engines.Config) { c.StopTimeout = 200 * time.Millisecond }, "--stub-ignores-sigterm", "--stub-leaves-a-process")
	ready(t, e, 1)
	text, err := os.ReadFile(e.Status()[0].Log)
	require.NoError(t, err)
	left, err := strconv.Atoi(string(regexp.MustCompile(`left behind: (\d+)`).FindSubmatch(text)[1]))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(left, 0))
	require.NoError(t, e.Stop(t.Context()))
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(left, 0), syscall.ESRCH) }, patience, time.Millisecond)
}

// The kernel that lacks memory ends one process, and asks nobody what it has started: vLLM's EngineCore has the card's memory.
func TestNothingIsLeftOfAServerWhoseKeeperAloneIsKilled(t *testing.T) {
	t.Parallel()
	e := begin(t, nil, "--stub-starts-a-process")
	ready(t, e, 1)
	before := e.Status()[0]
	text, err := os.ReadFile(before.Log)
	require.NoError(t, err)
	left, err := strconv.Atoi(string(regexp.MustCompile(`left behind: (\d+)`).FindSubmatch(text)[1]))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(left, 0))
	require.NoError(t, syscall.Kill(before.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(left, 0), syscall.ESRCH) }, patience, time.Millisecond)
	eventually(t, e, func(s engines.Status) bool { return s.State == engines.Ready && s.Starts == 2 })
}

func TestAnEngineThatIsStoppedWhileItStartsIsGone(t *testing.T) {
	t.Parallel()
	e := begin(t, nil, "--stub-start=1h")
	s := eventually(t, e, func(s engines.Status) bool { return s.PID != 0 })
	require.NoError(t, e.Stop(t.Context()))
	require.ErrorIs(t, syscall.Kill(s.PID, 0), syscall.ESRCH)
	require.NoError(t, e.Stop(t.Context()), "twice is as good as once")
}

func TestAServerSeesItsOwnCards(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "python")
	executable.Write(t, program, "#!/bin/sh\necho cards=$CUDA_VISIBLE_DEVICES\nexit 4\n")
	e := made(t, func(c *engines.Config) { c.Python, c.Servers = program, 2 })
	require.ErrorContains(t, e.Start([][]string{nil}), "cards for 1 servers, want 2")
	require.NoError(t, e.Start([][]string{{"GPU-a", "GPU-b"}, {"GPU-c"}}))
	eventually(t, e, func(engines.Status) bool {
		status := e.Status()
		return status[0].State == engines.Paused && status[1].State == engines.Paused
	})
	for i, cards := range []string{"cards=GPU-a,GPU-b", "cards=GPU-c"} {
		assert.Contains(t, e.Status()[i].Why, cards)
	}
}

func asleep(s engines.Status) bool { return s.State == engines.Asleep }

func TestAnEngineSleepsAndWakesWithItsCommandOrWithout(t *testing.T) {
	t.Parallel()
	for name, sleeps := range map[string]bool{"it can sleep": true, "it cannot": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := filepath.Join(t.TempDir(), "memory")
			e := begin(t, func(c *engines.Config) { c.Asleep, c.Sleeps = true, sleeps }, "--stub-memory="+memory)
			s := eventually(t, e, asleep)
			assert.Zero(t, s.Starts, "nothing has memory before it is wanted")
			starts := 0
			for range 3 {
				e.Wake()
				ready(t, e, 1)
				s := e.Status()[0]
				require.NoError(t, canary(t.Context(), s.URL))
				if starts++; sleeps {
					starts = 1
				}
				assert.Equal(t, starts, s.Starts)
				require.NoError(t, e.Sleep(t.Context()))
				require.NoError(t, e.Sleep(t.Context()), "twice is as good as once")
				assert.Equal(t, engines.Asleep, e.Status()[0].State)
				f, err := os.OpenFile(memory, os.O_RDWR, 0)
				require.NoError(t, err)
				require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), "its memory is free")
				require.NoError(t, f.Close())
				if s.PID != 0 {
					assert.Equal(t, sleeps, syscall.Kill(s.PID, 0) == nil)
				}
			}
		})
	}
}

func TestAnEngineThatDiesOnWakeIsStartedAgain(t *testing.T) {
	t.Parallel()
	e := begin(t, func(c *engines.Config) { c.Sleeps = true }, "--stub-dies-on-wake")
	ready(t, e, 1)
	require.NoError(t, e.Sleep(t.Context()))
	e.Wake()
	s := eventually(t, e, func(s engines.Status) bool { return s.State == engines.Ready && s.Starts == 2 })
	assert.Contains(t, s.Why, "exit status 8")
	require.NoError(t, canary(t.Context(), s.URL))
}

func TestAnEngineIsPutToSleepWhileItStartsOrPauses(t *testing.T) {
	t.Parallel()
	starting := begin(t, func(c *engines.Config) { c.Sleeps = true }, "--stub-start=1h")
	s := eventually(t, starting, func(s engines.Status) bool { return s.PID != 0 })
	require.NoError(t, starting.Sleep(t.Context()))
	require.ErrorIs(t, syscall.Kill(s.PID, 0), syscall.ESRCH)
	pausing := begin(t, func(c *engines.Config) { c.PauseMin, c.PauseMax = time.Hour, time.Hour }, "--stub-exits=1")
	eventually(t, pausing, func(s engines.Status) bool { return s.State == engines.Paused })
	require.NoError(t, pausing.Sleep(t.Context()))
	pausing.Wake()
	eventually(t, pausing, func(s engines.Status) bool { return s.Starts == 2 })
}

// One that holds its memory in spite of Sleep is ended.
func TestAnEngineThatDoesNotSleepIsEnded(t *testing.T) {
	t.Parallel()
	e := begin(t, func(c *engines.Config) {
		c.Sleeps, c.SleepTimeout, c.HealthEvery = true, 200*time.Millisecond, time.Hour
	}, "--stub-hang-after=1") // the canary's
	ready(t, e, 1)
	pid := e.Status()[0].PID
	require.NoError(t, e.Sleep(t.Context()))
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}
