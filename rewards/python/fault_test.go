package python_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

func TestADeadProcessFailsItsSampleAndIsReplaced(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{MemoryBytes: 256 << 20}, "truth")
	warm(t, s)
	tests := map[string]struct {
		class rewards.Class
		says  string
	}{
		"os_exit": {rewards.Crashed, "exit status 9"},
		"segv":    {rewards.Crashed, "segmentation fault"},
		"corrupt": {rewards.Crashed, "malformed frame"},
		"memory":  {rewards.Crashed, "the limit is 256 MiB: raise memory in the entry, or pool.python.memory"},
	}
	for word, want := range tests {
		_, err := score(t, s, asks(word))
		require.Error(t, err, word)
		assert.Equal(t, want.class, rewards.ClassOf(err), "%s: %v", word, err)
		require.ErrorContains(t, err, want.says)
		got, err := score(t, s, asks("3"))
		require.NoError(t, err, "after %s", word)
		assert.InDelta(t, 3.0, got.Value, 0)
	}
	assert.Equal(t, uint64(2*len(tests)), stats(s).Crashes, "each once more, alone in a fresh process")
	_, err := score(t, s, asks("os_exit"))
	assert.ErrorContains(t, err, "about to go", "a dead process's last words")
}

func TestAHangEndsAtTheDeadlineAndTheStepGoesOn(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "truth")
	warm(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := s.Score(ctx, asks("hang"))
	assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	assert.Less(t, time.Since(began), 20*time.Second)
	got, err := score(t, s, asks("4"))
	require.NoError(t, err)
	assert.InDelta(t, 4.0, got.Value, 0)
	assert.Equal(t, uint64(1), stats(s).Timeouts)
}

func TestTheCallersOwnDeadlineIsNotTheOnlyOne(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{CallTimeout: 300 * time.Millisecond}, "truth")
	warm(t, s)
	_, err := score(t, s, asks("hang"))
	assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	assert.ErrorContains(t, err, "300ms")
}

func TestTheWholeProcessGroupIsKilled(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{CallTimeout: time.Second}, "grandchild")
	warm(t, s)
	file := filepath.Join(t.TempDir(), "pid")
	_, err := score(t, s, asks(file))
	require.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(text))
	require.NoError(t, err)
	assert.Eventually(t, func() bool { return !running(pid) }, 10*time.Second, 20*time.Millisecond, "the grandchild is gone")
}

// running is false for a zombie too: nobody reaps orphans in a bare container.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	fields := string(stat[bytes.LastIndexByte(stat, ')')+2:])
	return fields[0] != 'Z'
}

func TestACallerWhoLeavesLeavesTheProcessToFinish(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{CallTimeout: 400 * time.Millisecond}, "truth")
	warm(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := s.Score(ctx, asks("hang"))
	assert.Equal(t, rewards.Cancelled, rewards.ClassOf(err), "%v", err)
	got, err := score(t, s, asks("5")) // waits for the place until the hang is killed
	require.NoError(t, err)
	assert.InDelta(t, 5.0, got.Value, 0)
}

func TestAnIdleProcessThatIsKilledCostsNoSample(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "truth")
	warm(t, s)
	require.NoError(t, syscall.Kill(stats(s).PIDs[0], syscall.SIGKILL))
	require.Eventually(t, func() bool { return stats(s).Restarts == 1 }, 10*time.Second, time.Millisecond)
	got, err := score(t, s, asks("6"))
	require.NoError(t, err)
	assert.InDelta(t, 6.0, got.Value, 0)
	assert.Zero(t, stats(s).Crashes)
}

func TestCloseEndsProcessesAndCalls(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{Processes: 2}, "truth")
	warm(t, s)
	errs := make(chan error, 3)
	for range 3 { // the third waits for a place
		go func() {
			_, err := s.Score(t.Context(), asks("hang"))
			errs <- err
		}()
	}
	require.Eventually(t, func() bool { return stats(s).Running == 2 && stats(s).Waiting == 1 }, 10*time.Second, time.Millisecond)
	pids := stats(s).PIDs
	require.Len(t, pids, 2)
	require.NoError(t, s.(rewards.Closer).Close())
	for range 3 {
		require.Error(t, <-errs)
	}
	for _, pid := range pids {
		assert.False(t, running(pid))
	}
	_, err := score(t, s, asks("1"))
	assert.ErrorContains(t, err, "stopping")
}

func TestAsyncCallsRunAtTheSameTimeInOneProcess(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{Concurrency: 16}, "judge")
	warm(t, s)
	got := together(t, s, make([]string, 32), "1")
	for _, g := range got {
		require.NoError(t, g.err)
	}
	most := int64(0)
	for _, g := range got {
		most = max(most, g.score.Extra["most"].(int64))
	}
	assert.Greater(t, most, int64(4), "at the same time")
	assert.LessOrEqual(t, most, int64(16), "and no more than allowed")
	assert.Len(t, stats(s).PIDs, 1)
	assert.Contains(t, got[0].score.Details["printed"], "judging 1")
}

type outcome struct {
	score rewards.Score
	err   error
}

// together scores one sample for each word at once; an empty word means otherwise.
func together(t *testing.T, s rewards.Scorer, words []string, otherwise string) []outcome {
	t.Helper()
	out := make([]outcome, len(words))
	var wg sync.WaitGroup
	for i, w := range words {
		if w == "" {
			w = otherwise
		}
		wg.Go(func() { out[i].score, out[i].err = score(t, s, asks(w)) })
	}
	wg.Wait()
	return out
}

// TestOneBadCallHurtsOnlyItself: the others of its process are tried once more.
func TestOneBadCallHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	tests := map[string]rewards.Class{
		"raise":    rewards.Internal,
		"os_exit":  rewards.Crashed,
		"slow":     rewards.Timeout, // answers to being cancelled
		"stubborn": rewards.Timeout, // does not
		"stuck":    rewards.Timeout, // blocks the event loop of all
	}
	for word, class := range tests {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			s := function(t, python.Config{CallTimeout: 4 * time.Second, CancelGrace: 2 * time.Second, StallTimeout: time.Second}, "judge")
			warm(t, s)
			pid := stats(s).PIDs[0]
			got := together(t, s, []string{"", "", word, "", ""}, "0.5")
			for i, g := range got {
				if i == 2 {
					assert.Equal(t, class, rewards.ClassOf(g.err), "%v", g.err)
					continue
				}
				require.NoError(t, g.err)
				assert.InDelta(t, 0.5, g.score.Value, 0)
			}
			last, err := score(t, s, asks("0.25"))
			require.NoError(t, err)
			assert.InDelta(t, 0.25, last.Value, 0)
			if word == "raise" || word == "slow" {
				assert.Equal(t, []int{pid}, stats(s).PIDs, "no process is lost for this")
			}
		})
	}
}

// TestTheManagerFailsASampleByItsClass runs a process as a worker does: the manager's retry
// meets the crash, the sample fails by name.
func TestTheManagerFailsASampleByItsClass(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "truth")
	m, err := rewards.NewManager(rewards.ManagerConfig{
		Single: true, Components: []rewards.Component{{Key: "acc", Weight: 1, Required: true, Scorer: s, Timeout: 20 * time.Second, Retries: 1}},
	})
	require.NoError(t, err)
	r := m.Run(t.Context(), asks("os_exit")).Result
	assert.Equal(t, rewards.Failed, r.Outcome)
	assert.Equal(t, rewards.Crashed, r.Class())
	r = m.Run(t.Context(), asks("dict")).Result
	assert.Equal(t, rewards.Scored, r.Outcome)
	assert.Equal(t, "42", r.Extra["pred"])
}

func TestCallsThatAreCancelledAtOnceGiveTheirPlacesBack(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{Concurrency: 200}, "judge")
	warm(t, s)
	var wg sync.WaitGroup
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { _, _ = s.Score(ctx, asks("slow")) })
		cancel()
	}
	wg.Wait()
	require.Eventually(t, func() bool { return stats(s).Running == 0 }, 30*time.Second, time.Millisecond, "all places are free")
	for _, g := range together(t, s, make([]string, 200), "0.5") {
		require.NoError(t, g.err)
	}
}
