package python_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// Whose failure each event is, by a real event of each kind.
func TestBlameIsSetWhereAFailureHappens(t *testing.T) {
	t.Parallel()
	module := func(text string) python.Options {
		file := filepath.Join(t.TempDir(), "mine.py")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return python.Options{Path: file}
	}
	truth := python.Options{Path: "testdata/rewards.py", Name: "truth"}
	tests := map[string]struct {
		cfg       python.Config
		opts      python.Options
		sample    *rewards.Sample
		class     rewards.Class
		blame     rewards.Blame
		permanent bool
	}{
		"an exception":                 {opts: truth, sample: asks("raise"), class: rewards.Internal, blame: rewards.BlameReward},
		"sys.exit":                     {opts: truth, sample: asks("exit"), class: rewards.Panicked, blame: rewards.BlameReward},
		"NaN":                          {opts: truth, sample: asks("nan"), class: rewards.InvalidScore, blame: rewards.BlameReward},
		"no score":                     {opts: truth, sample: asks("no_score"), class: rewards.InvalidScore, blame: rewards.BlameReward},
		"its own ConnectionError":      {opts: truth, sample: asks("refused"), class: rewards.Unavailable, blame: rewards.BlameDependency},
		"its own time limit":           {opts: truth, sample: asks("alarm"), class: rewards.Unavailable, blame: rewards.BlameDependency},
		"a crash, twice":               {opts: truth, sample: asks("segv"), class: rewards.Crashed, blame: rewards.BlameReward},
		"a hang":                       {cfg: python.Config{CallTimeout: 300 * time.Millisecond}, opts: truth, sample: asks("hang"), class: rewards.Timeout, blame: rewards.BlameReward},
		"an event loop that is held":   {cfg: python.Config{StallTimeout: 500 * time.Millisecond}, opts: python.Options{Path: "testdata/rewards.py", Name: "judge"}, sample: asks("stuck"), class: rewards.Timeout, blame: rewards.BlameReward},
		"an input that is not there":   {opts: python.Options{Path: "testdata/rewards.py", Name: "first_byte"}, sample: asks("1"), class: rewards.BadInput, blame: rewards.BlameSample},
		"a SIGKILL of somebody else's": {opts: python.Options{Path: "testdata/processes.py", Name: "killed"}, sample: asks("1"), class: rewards.Crashed, blame: rewards.BlameWorker},
		"a module that is not here":    {opts: python.Options{Path: "pkg://nobody_has_this"}, class: rewards.Unavailable, blame: rewards.BlameWorker, permanent: true},
		"an import that is not here":   {opts: python.Options{Path: "testdata/broken.py"}, class: rewards.Unavailable, blame: rewards.BlameWorker, permanent: true},
		"a signature nobody can call":  {opts: python.Options{Path: "testdata/rewards.py", Name: "needs_tokenizer"}, class: rewards.Unavailable, blame: rewards.BlameReward, permanent: true},
		"a function that is not there": {opts: python.Options{Path: "testdata/rewards.py", Name: "absent"}, class: rewards.Unavailable, blame: rewards.BlameReward, permanent: true},
		"a file that is no Python":     {opts: module("def compute_score(:\n"), class: rewards.Unavailable, blame: rewards.BlameReward, permanent: true},
		"a module that raises":         {opts: module("raise OSError('no such device')\n"), class: rewards.Unavailable, blame: rewards.BlameWorker},
		"a constructor that raises":    {opts: python.Options{Path: "testdata/processes.py", Name: "Broken"}, class: rewards.Unavailable, blame: rewards.BlameWorker},
		"a start that hangs":           {cfg: python.Config{StartTimeout: 500 * time.Millisecond}, opts: module("import time\ntime.sleep(600)\n"), class: rewards.Unavailable, blame: rewards.BlameWorker},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scorer(t, tt.cfg, tt.opts)
			if tt.sample == nil {
				tt.sample = asks("1")
				require.Error(t, s.(rewards.Warmer).Warm(t.Context()))
			}
			_, err := score(t, s, tt.sample)
			require.Error(t, err)
			blame, permanent := rewards.BlameOf(err)
			assert.Equal(t, tt.class, rewards.ClassOf(err), "%v", err)
			assert.Equal(t, tt.blame, blame, "%v", err)
			assert.Equal(t, tt.permanent, permanent, "%v", err)
		})
	}
}

func TestAnInterpreterThatIsNotThereIsTheWorkersFault(t *testing.T) {
	t.Parallel()
	s, err := python.New(python.Config{Interpreter: filepath.Join(t.TempDir(), "python3")}, python.Options{Path: "testdata/rewards.py", Name: "length"})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.(rewards.Closer).Close()) }()
	_, err = score(t, s, asks("1"))
	blame, permanent := rewards.BlameOf(err)
	assert.Equal(t, rewards.BlameWorker, blame, "%v", err)
	assert.False(t, permanent)
}

// A component's timeout starts when a process takes the call; until then only the sample's
// deadline counts, and its end is nobody's fault.
func TestWaitingForAProcessIsNobodysFaultAndNotTheComponentsTime(t *testing.T) {
	t.Parallel()
	s := scorer(t, python.Config{}, python.Options{Path: "testdata/processes.py", Name: "threaded"})
	warm(t, s)
	m, err := rewards.NewManager(rewards.ManagerConfig{
		Single: true, Components: []rewards.Component{{Key: "r", Weight: 1, Required: true, Scorer: s, Timeout: 2500 * time.Millisecond}},
	})
	require.NoError(t, err)
	first := make(chan rewards.Result, 1)
	go func() { first <- m.Run(t.Context(), asks("wait1.5")).Result }()
	require.Eventually(t, func() bool { return stats(s).Running == 1 }, 10*time.Second, time.Millisecond)

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Score(short, asks("wait0"))
	blame, _ := rewards.BlameOf(err)
	assert.Equal(t, rewards.BlameNobody, blame, "%v", err)
	assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	require.ErrorContains(t, err, "the call waited for a process")

	second := m.Run(t.Context(), asks("wait1.5")).Result // 1.4 s in the queue and 1.5 s of work
	assert.Equal(t, rewards.Scored, second.Outcome, "%+v", second.Components)
	assert.Equal(t, rewards.Scored, (<-first).Outcome)
	late := m.Run(t.Context(), &rewards.Sample{ID: "late", GroundTruth: json.RawMessage(`"hang"`)}).Result
	assert.Equal(t, rewards.Failed, late.Outcome)
	assert.Equal(t, rewards.Timeout, late.Class())
	assert.Equal(t, rewards.BlameReward, late.Components[0].Blame)
}
