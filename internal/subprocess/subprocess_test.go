package subprocess_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// TestMain makes the test binary its own child process.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "child" && strings.HasPrefix(os.Args[2], "evil-") {
		evil(os.Args[2])
	}
	if len(os.Args) == 2 && os.Args[1] == "parent" {
		parent()
	}
	if len(os.Args) == 3 && os.Args[1] == "keeps" {
		keepsParent(os.Args[2])
	}
	if code, child := subprocess.Main(os.Args[1:], kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

func kinds() []subprocess.Kind {
	return []subprocess.Kind{
		{Name: "hash", New: func(init []byte) (subprocess.Handler, error) {
			if cause, bad := strings.CutPrefix(string(init), "fail:"); bad {
				return nil, errors.New(cause)
			}
			if string(init) == "die" {
				fmt.Fprintln(os.Stderr, "cannot live like this")
				os.Exit(7)
			}
			return &hasher{}, nil
		}},
	}
}

// hasher answers with the hash of its pixels, or misbehaves as Meta says.
type hasher struct{ calls int }

func (h *hasher) Handle(c subprocess.Call) ([]byte, error) {
	h.calls++
	order, arg, _ := strings.Cut(string(c.Meta), ":")
	switch order {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "segv":
		fmt.Fprintln(os.Stderr, "about to fault")
		c.Pixels[0] = 1 // mapped read-only
	case "killonce":
		if f, err := os.OpenFile(arg, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_ = f.Close()
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	case "hang":
		for {
			time.Sleep(time.Hour)
		}
	case "slow":
		d, err := time.ParseDuration(arg)
		if err != nil {
			return nil, err
		}
		time.Sleep(d)
	case "error":
		return nil, errors.New("no such luck")
	case "env":
		return []byte(strings.Join(os.Environ(), " ")), nil
	case "calls":
		return fmt.Append(nil, h.calls), nil
	case "huge":
		return make([]byte, subprocess.MaxAnswer+1), nil
	case "large":
		return bytes.Repeat([]byte{7}, subprocess.MaxAnswer), nil
	case "classed":
		return nil, fmt.Errorf("further out: %w", subprocess.Classed("memory", errors.New("no room")))
	case "fatal":
		return nil, fmt.Errorf("further out: %w", subprocess.Fatal(subprocess.Classed("fault", errors.New("error 700 for good"))))
	case "nan":
		return nil, subprocess.Fatal(subprocess.Classed("numbers", errors.New("not a number")))
	case "fatalonce":
		if f, err := os.OpenFile(arg, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_ = f.Close()
			return nil, subprocess.Fatal(errors.New("spoilt once"))
		}
	case "budget":
		return fmt.Append(nil, time.Until(c.Deadline).Milliseconds()), nil
	case "thread":
		return fmt.Append(nil, syscall.Gettid(), uintptr(unsafe.Pointer(&c.Pixels[0]))%8), nil
	}
	return hash(c.Pixels), nil
}

func hash(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.AppendEncode(nil, h.Sum(nil))
}

// evil is a child that does not keep to the protocol once it has been asked for
// real work.
func evil(how string) {
	conn, err := net.FileConn(os.NewFile(3, "parent"))
	if err != nil {
		os.Exit(3)
	}
	ok := func(seq int) {
		h := fmt.Appendf(nil, `{"op":"ok","seq":%d}`, seq)
		out := binary.LittleEndian.AppendUint32(nil, uint32(len(h)))
		_, _ = conn.Write(append(binary.LittleEndian.AppendUint32(out, 0), h...))
	}
	next := func() {
		var n [8]byte
		if _, err := io.ReadFull(conn, n[:]); err != nil {
			os.Exit(0)
		}
		_, _ = io.CopyN(io.Discard, conn, int64(binary.LittleEndian.Uint32(n[:4]))+int64(binary.LittleEndian.Uint32(n[4:])))
	}
	next()
	ok(1)
	next()
	switch how {
	case "evil-garbage":
		_, _ = conn.Write(bytes.Repeat([]byte("no frame "), 100))
	case "evil-toolong":
		_, _ = conn.Write([]byte{10, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	case "evil-swap":
		ok(1) // the answer to another request
	case "evil-half":
		_, _ = conn.Write([]byte{10, 0, 0, 0, 0, 0, 0, 0, '{'})
		os.Exit(0)
	}
	select {}
}

// newPool starts a pool and stops it when the test ends.
func newPool(t *testing.T, cfg subprocess.Config) *subprocess.Pool {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	if cfg.Kind == "" {
		cfg.Kind = "hash"
	}
	if cfg.Slots == 0 {
		cfg.Slots = 2
	}
	// The race detector keeps an ending process for a second.
	cfg.Env = append(cfg.Env, "GORACE=atexit_sleep_ms=0")
	p, err := subprocess.New(cfg)
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	t.Cleanup(func() { stop(t, p) })
	return p
}

func stop(t *testing.T, p *subprocess.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	assert.NoError(t, p.Stop(ctx))
}

func work(meta string, pixels ...[]byte) subprocess.Request {
	return subprocess.Request{Name: "sample " + meta, Meta: []byte(meta), Pixels: pixels}
}

func TestARequestIsAnsweredFromItsOwnPixels(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{})
	a, b := bytes.Repeat([]byte{1}, 3_000_000), []byte("tail")
	resp, err := p.Do(t.Context(), work("hash", a, b))
	require.NoError(t, err)
	require.Equal(t, string(hash(a, b)), string(resp.Body))
	require.Positive(t, resp.Ran)
}

func TestWhatAnEarlierRequestLeftInSharedMemoryIsNeverRead(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{5_000_000, 10, 0, 1 << 20, 80 << 20, 1, 3 << 20, 0} {
		px := make([]byte, n)
		for i := 0; i < n; i += 97 {
			px[i] = byte(rng.Uint32())
		}
		resp, err := p.Do(t.Context(), work("hash", px))
		require.NoError(t, err)
		require.Equal(t, string(hash(px)), string(resp.Body), "%d bytes", n)
	}
}

func TestARequestThatAlwaysKillsFailsByNameAfterTwoChildren(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{})
	_, err := p.Do(t.Context(), work("segv", []byte{0}))
	require.ErrorIs(t, err, subprocess.ErrCrashed)
	require.ErrorContains(t, err, `"sample segv" was tried 2 times`)
	require.ErrorContains(t, err, "about to fault")
	require.Equal(t, uint64(2), p.Stats().Crashes)
	require.Equal(t, 1, p.Stats().Quarantined)

	_, err = p.Do(t.Context(), work("segv", []byte{0}))
	require.ErrorIs(t, err, subprocess.ErrCrashed)
	require.ErrorContains(t, err, "quarantine")
	require.Equal(t, uint64(2), p.Stats().Crashes, "no third child dies of it")

	resp, err := p.Do(t.Context(), work("hash", []byte{0}))
	require.NoError(t, err, "others go on")
	require.Equal(t, string(hash([]byte{0})), string(resp.Body))
}

func TestAChildKilledFromOutsideTwiceDoesNotPutItsInputInQuarantine(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{})
	for range 2 {
		_, err := p.Do(t.Context(), work("kill"))
		require.ErrorIs(t, err, subprocess.ErrCrashed)
		require.ErrorContains(t, err, "signal: killed")
	}
	require.Zero(t, p.Stats().Quarantined)
	require.Equal(t, uint64(4), p.Stats().Crashes)
}

func TestARequestThatKillsOnceSucceedsOnTheNextChild(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{})
	px := []byte("pixels")
	resp, err := p.Do(t.Context(), work("killonce:"+t.TempDir()+"/flag", px))
	require.NoError(t, err)
	require.Equal(t, string(hash(px)), string(resp.Body))
	require.Equal(t, uint64(1), p.Stats().Crashes)
}

func TestAHangIsKilledAtTheDeadlineAndReplaced(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := p.Do(ctx, work("hang"))
	require.ErrorIs(t, err, subprocess.ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	resp, err := p.Do(t.Context(), work("hash"))
	require.NoError(t, err)
	require.Equal(t, string(hash()), string(resp.Body))
	require.Equal(t, uint64(1), p.Stats().Timeouts)
}

func TestThePoolsOwnDeadlineHoldsWhereTheCallerHasNone(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1, RequestTimeout: 100 * time.Millisecond})
	_, err := p.Do(t.Context(), work("hang"))
	require.ErrorIs(t, err, subprocess.ErrTimeout)
}

func TestAChildThatBreaksTheProtocolIsReplacedAndNamed(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"garbage", "toolong", "swap", "half"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, subprocess.Config{Kind: "evil-" + how, Slots: 1})
			_, err := p.Do(t.Context(), work("hash"))
			require.ErrorIs(t, err, subprocess.ErrCrashed)
			require.Equal(t, uint64(2), p.Stats().Crashes)
		})
	}
}

func TestAnErrorOfTheHandlerIsTheRequestsAlone(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	before := p.Stats().PIDs
	_, err := p.Do(t.Context(), work("error"))
	require.ErrorIs(t, err, subprocess.ErrHandler)
	require.ErrorContains(t, err, "no such luck")
	_, err = p.Do(t.Context(), work("huge"))
	require.ErrorIs(t, err, subprocess.ErrHandler)
	require.ErrorContains(t, err, "over the limit")
	require.Equal(t, before, p.Stats().PIDs)
}

func TestACallerThatLeavesReturnsAtOnceAndItsChildFinishes(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	before := p.Stats().PIDs
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	timer := time.AfterFunc(50*time.Millisecond, cancel)
	defer timer.Stop()
	_, err := p.Do(ctx, work("slow:3s"))
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(began), 2500*time.Millisecond)
	px := []byte("the next one")
	resp, err := p.Do(t.Context(), work("hash", px))
	require.NoError(t, err)
	require.Equal(t, string(hash(px)), string(resp.Body), "not the answer to the request before")
	require.Equal(t, before, p.Stats().PIDs)
}

func TestACallerThatLeavesAHangingChildDoesNotKeepItForever(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1, RequestTimeout: 300 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(20*time.Millisecond, cancel)
	defer timer.Stop()
	_, err := p.Do(ctx, work("hang"))
	require.ErrorIs(t, err, context.Canceled)
	_, err = p.Do(t.Context(), work("hash"))
	require.NoError(t, err)
	require.Equal(t, uint64(1), p.Stats().Timeouts)
}

func TestAWaitForAFreeChildEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	busy := make(chan error, 1)
	go func() {
		_, err := p.Do(context.WithoutCancel(t.Context()), work("slow:700ms"))
		busy <- err
	}()
	require.Eventually(t, func() bool { return p.Stats().Busy == 1 }, 5*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.Do(ctx, work("hash"))
	require.ErrorIs(t, err, subprocess.ErrTimeout)
	require.ErrorContains(t, err, "all 1 children were busy")
	require.NoError(t, <-busy)
	require.Zero(t, p.Stats().Timeouts, "nobody was killed for it")
}

func TestChildrenThatNeverStartAreABoundedError(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	for init, want := range map[string]string{"die": "cannot live like this", "fail:no model": "no model"} {
		t.Run(init, func(t *testing.T) {
			t.Parallel()
			p, err := subprocess.New(subprocess.Config{Kind: "hash", Slots: 2, Init: []byte(init), BackoffMin: 10 * time.Millisecond})
			require.NoError(t, err)
			err = p.Start(t.Context())
			require.ErrorIs(t, err, subprocess.ErrUnavailable)
			require.ErrorContains(t, err, want)
			require.LessOrEqual(t, p.Stats().Restarts, uint64(2*3))
			_, err = p.Do(t.Context(), work("hash"))
			require.ErrorIs(t, err, subprocess.ErrUnavailable)
		})
	}
}

func TestARunningPoolWhoseChildrenStopStartingRefusesInsteadOfWaiting(t *testing.T) {
	t.Parallel()
	flag := t.TempDir() + "/gone"
	canary := &subprocess.Canary{Request: work("hash"), Check: func([]byte) error {
		if _, err := os.Stat(flag); err == nil {
			return errors.New("the model is gone")
		}
		return nil
	}}
	p := newPool(t, subprocess.Config{Slots: 1, Canary: canary, BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond})
	require.NoError(t, os.WriteFile(flag, nil, 0o600))
	_, err := p.Do(t.Context(), work("kill"))
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
	require.ErrorContains(t, err, "the model is gone")
	require.NoError(t, os.Remove(flag))
	require.Eventually(t, func() bool { return p.Stats().Alive == 1 }, 10*time.Second, time.Millisecond)
	_, err = p.Do(t.Context(), work("hash"))
	require.NoError(t, err, "it heals")
}

func TestAWrongCanaryKeepsAChildFromWork(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	p, err := subprocess.New(subprocess.Config{
		Kind: "hash", Slots: 1, BackoffMin: time.Millisecond,
		Canary: &subprocess.Canary{Request: work("hash"), Check: func(b []byte) error { return fmt.Errorf("read %.8s", b) }},
	})
	require.NoError(t, err)
	require.ErrorContains(t, p.Start(t.Context()), "canary: read e3b0c442")
}

func TestAChildIsRecycledAfterItsRequests(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1, Recycle: 3})
	var calls []string
	for range 7 {
		resp, err := p.Do(t.Context(), work("calls"))
		require.NoError(t, err)
		calls = append(calls, string(resp.Body))
	}
	require.Equal(t, []string{"1", "2", "3", "1", "2", "3", "1"}, calls)
	require.Equal(t, uint64(2), p.Stats().Recycled)
	require.Zero(t, p.Stats().Crashes)
}

func TestADeadIdleChildIsReplacedAndCostsNoRequest(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	old := p.Stats().PIDs
	require.NoError(t, syscall.Kill(old[0], syscall.SIGKILL))
	require.Eventually(t, func() bool {
		now := p.Stats().PIDs
		return len(now) == 1 && now[0] != old[0]
	}, 10*time.Second, time.Millisecond)
	_, err := p.Do(t.Context(), work("hash"))
	require.NoError(t, err)
}

func TestAStoppedIdleChildFailsItsPing(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1, PingEvery: 50 * time.Millisecond})
	old := p.Stats().PIDs
	require.NoError(t, syscall.Kill(old[0], syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		now := p.Stats().PIDs
		return len(now) == 1 && now[0] != old[0]
	}, 10*time.Second, time.Millisecond)
	require.Contains(t, p.Stats().LastError, "the check of the idle child process failed")
}

func TestTheEnvironmentIsExactlyTheOneGiven(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1, Env: []string{"OMP_THREAD_LIMIT=1"}})
	resp, err := p.Do(t.Context(), work("env"))
	require.NoError(t, err)
	require.Equal(t, "OMP_THREAD_LIMIT=1 GORACE=atexit_sleep_ms=0", string(resp.Body))
}

func TestStopLetsRunningRequestsEndAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	px := []byte("last")
	answer := make(chan subprocess.Response, 1)
	go func() {
		resp, err := p.Do(context.WithoutCancel(t.Context()), work("slow:300ms", px))
		assert.NoError(t, err)
		answer <- resp
	}()
	require.Eventually(t, func() bool { return p.Stats().Busy == 1 }, 5*time.Second, time.Millisecond)
	stop(t, p)
	require.Equal(t, string(hash(px)), string((<-answer).Body))
	_, err := p.Do(t.Context(), work("hash"))
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
	stop(t, p)
}

func TestStopKillsWhatStillRunsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	pids := p.Stats().PIDs
	failed := make(chan error, 1)
	go func() {
		_, err := p.Do(context.WithoutCancel(t.Context()), work("hang"))
		failed <- err
	}()
	require.Eventually(t, func() bool { return p.Stats().Busy == 1 }, 5*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, p.Stop(ctx), "1 children were killed")
	require.ErrorIs(t, <-failed, subprocess.ErrUnavailable)
	require.ErrorIs(t, syscall.Kill(pids[0], 0), syscall.ESRCH, "no zombie is left")
}

func TestACallerWhoLeavesIsNotKeptByAChildThatDoesNotRead(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	require.NoError(t, syscall.Kill(p.Stats().PIDs[0], syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := p.Do(ctx, subprocess.Request{Name: "large", Meta: make([]byte, 8<<20)})
		failed <- err
	}()
	require.Eventually(t, func() bool { return p.Stats().Busy == 1 }, 10*time.Second, time.Millisecond)
	cancel()
	select {
	case err := <-failed:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(30 * time.Second):
		require.Fail(t, "it waits for the deadline of the request")
	}
	resp, err := p.Do(t.Context(), work("hash"))
	require.NoError(t, err, "the child is replaced")
	require.Equal(t, string(hash()), string(resp.Body))
}

func TestARequestBeyondTheBoundIsRefusedBeforeItCostsAnything(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1, MaxPixels: 1000})
	_, err := p.Do(t.Context(), work("hash", make([]byte, 600), make([]byte, 600)))
	require.ErrorIs(t, err, subprocess.ErrTooLarge)
}

func TestFiveHundredRequestsUnderAStormOfKillsAreEachAnsweredOnceAndNeverSwapped(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 3, BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	// A kill for every fourth answer: by the clock a slow machine would be hit at
	// every request.
	strike := make(chan struct{}, 1)
	var storm sync.WaitGroup
	var kills atomic.Int64
	storm.Go(func() {
		rng := rand.New(rand.NewPCG(3, 4))
		for range strike {
			if pids := p.Stats().PIDs; len(pids) > 0 && syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL) == nil {
				kills.Add(1)
			}
		}
	})
	var callers sync.WaitGroup
	var scored, failed atomic.Int64
	jobs := make(chan int)
	for range 8 {
		callers.Go(func() {
			for i := range jobs {
				px := bytes.Repeat(fmt.Append(nil, i, ","), 1000+i)
				resp, err := p.Do(t.Context(), work("slow:4ms", px))
				if (scored.Load()+failed.Load())%4 == 3 {
					select {
					case strike <- struct{}{}:
					default: // the last one is still under way
					}
				}
				if err != nil {
					if !errors.Is(err, subprocess.ErrCrashed) {
						t.Errorf("request %d: %v", i, err)
					}
					failed.Add(1)
					continue
				}
				assert.Equal(t, string(hash(px)), string(resp.Body), "request %d", i)
				scored.Add(1)
			}
		})
	}
	for i := range 500 {
		jobs <- i
	}
	close(jobs)
	callers.Wait()
	close(strike)
	storm.Wait()
	require.Equal(t, int64(500), scored.Load()+failed.Load())
	require.Positive(t, kills.Load())
	require.Less(t, failed.Load(), int64(100), "a retry saves most")
	t.Logf("%d kills: %d answered, %d failed by name", kills.Load(), scored.Load(), failed.Load())
}

func TestMainLeavesOtherCommandsAlone(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"serve"}, {"child"}, {"child", "a", "b"}} {
		_, child := subprocess.Main(args, kinds()...)
		require.False(t, child)
	}
	code, child := subprocess.Main([]string{"child", "nothing"}, kinds()...)
	require.True(t, child)
	require.Equal(t, 2, code)
}

func TestAConfigurationNamesAllItsFaults(t *testing.T) {
	t.Parallel()
	_, err := subprocess.New(subprocess.Config{Slots: -1, Recycle: -2, Canary: &subprocess.Canary{}})
	for _, want := range []string{"no kind", "-1 slots", "recycle after -2", "without a check"} {
		require.ErrorContains(t, err, want)
	}
}
