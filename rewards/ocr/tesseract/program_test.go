//go:build !cgo || !tesseract

package tesseract_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

// pretend puts a shell script named tesseract on PATH before the real programs.
func pretend(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	executable.Write(t, filepath.Join(dir, "tesseract"), "#!/bin/sh\n"+script)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestAProgramThatMisbehavesIsAnErrorOfItsClass(t *testing.T) { //nolint:paralleltest // t.Setenv
	for name, c := range map[string]struct { //nolint:paralleltest // t.Setenv
		script    string
		class     rewards.Class
		says      string
		permanent bool
	}{
		"hangs":       {"exec sleep 100", rewards.Timeout, "deadline", false},
		"crashes":     {"echo oh >&2; kill -SEGV $$", rewards.Crashed, "segmentation fault", false},
		"fails":       {"echo no such language >&2; exit 1", rewards.Unavailable, "no such language", true},
		"talks":       {"exec yes", rewards.Unavailable, "says too much", true},
		"misreads":    {`printf '5\t1\t1\t1\t1\t1\t0\t0\t9\t9\t90\tnonsense\n'`, rewards.Unavailable, "NONSENSE", false},
		"no table":    {`printf '5\t1\t1\t1\t1\t1\tx\t0\t9\t9\t90\tnonsense\n'`, rewards.Unavailable, "unexpected row", true},
		"says naught": {"cat >/dev/null", rewards.Unavailable, "canary", false},
	} {
		t.Run(name, func(t *testing.T) {
			pretend(t, c.script)
			r, err := tesseract.New(tesseract.Config{Slots: 1, Timeout: 2 * time.Second})
			require.NoError(t, err)
			defer r.Close()
			err = r.Warm(t.Context())
			require.Equal(t, c.class, rewards.ClassOf(err), "%v", err)
			require.ErrorContains(t, err, c.says)
			blame, permanent := rewards.BlameOf(err)
			require.Equal(t, rewards.BlameWorker, blame, "it fails the canary")
			require.Equal(t, c.permanent, permanent)
		})
	}
}

// canaryWord makes a script print what the canary shows.
const canaryWord = `cat >/dev/null; printf '5\t1\t1\t1\t1\t1\t0\t0\t9\t9\t90\tQUIETHARBOUR42\n'`

func TestTheBlameForTheProgramIsByTheTable(t *testing.T) { //nolint:paralleltest // t.Setenv
	for event, c := range map[string]struct { //nolint:paralleltest // t.Setenv
		script string // of a picture, after the canary; $n is its number, the canary's is 0
		class  rewards.Class
		blame  rewards.Blame
	}{
		"crashed once":                      {`[ $n = 1 ] && kill -SEGV $$`, "", ""},
		"crashed twice, the canary is read": {`[ $n -lt 3 ] && kill -SEGV $$`, rewards.Crashed, rewards.BlameSample},
		"crashed twice, the canary fails":   {`kill -SEGV $$`, rewards.Crashed, rewards.BlameWorker},
		"SIGKILL that is not ours":          {`kill -KILL $$`, rewards.Crashed, rewards.BlameWorker},
		"timeout while executing":           {`exec sleep 100`, rewards.Timeout, rewards.BlameReward},
	} {
		t.Run(event, func(t *testing.T) {
			count := filepath.Join(t.TempDir(), "n")
			require.NoError(t, os.WriteFile(count, []byte("0"), 0o600))
			pretend(t, "n=$(cat "+count+"); echo $((n+1)) > "+count+"; [ $n = 0 ] || { "+c.script+"; }\n"+canaryWord)
			r, err := tesseract.New(tesseract.Config{Slots: 1, Timeout: 2 * time.Second, SecondLook: -1})
			require.NoError(t, err)
			defer r.Close()
			require.NoError(t, r.Warm(t.Context()))
			_, err = r.ReadText(t.Context(), &rewards.Pixels{Width: 64, Height: 64, Count: 1, RGB: make([]byte, 64*64*3)}, 0)
			blame, permanent := rewards.BlameOf(err)
			require.Equal(t, c.class, rewards.ClassOf(err), "%v", err)
			require.Equal(t, c.blame, blame, "%v", err)
			require.False(t, permanent)
		})
	}
}

func TestAMissingProgramNamesTheRemedies(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := tesseract.New(tesseract.Config{})
	for _, remedy := range []string{"tesseract-ocr", "-tags tesseract", "another text reader"} {
		require.ErrorContains(t, err, remedy)
	}
	_, err = tesseract.Available()
	require.ErrorContains(t, err, "tesseract-ocr")
}
