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
)

// pretend puts a shell script named tesseract on PATH before the real programs.
func pretend(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tesseract"), []byte("#!/bin/sh\n"+script), 0o700)) //nolint:gosec // it must be executable
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestAProgramThatMisbehavesIsAnErrorOfItsClass(t *testing.T) { //nolint:paralleltest // t.Setenv
	for name, c := range map[string]struct { //nolint:paralleltest // t.Setenv
		script string
		class  rewards.Class
		says   string
	}{
		"hangs":       {"exec sleep 100", rewards.Timeout, "deadline"},
		"crashes":     {"echo oh >&2; kill -SEGV $$", rewards.Crashed, "segmentation fault"},
		"fails":       {"echo no such language >&2; exit 1", rewards.Unavailable, "no such language"},
		"talks":       {"exec yes", rewards.Unavailable, "says too much"},
		"misreads":    {`printf '5\t1\t1\t1\t1\t1\t0\t0\t9\t9\t90\tnonsense\n'`, rewards.Unavailable, "NONSENSE"},
		"no table":    {`printf '5\t1\t1\t1\t1\t1\tx\t0\t9\t9\t90\tnonsense\n'`, rewards.Unavailable, "unexpected row"},
		"says naught": {"cat >/dev/null", rewards.Unavailable, "canary"},
	} {
		t.Run(name, func(t *testing.T) {
			pretend(t, c.script)
			r, err := tesseract.New(tesseract.Config{Slots: 1, Timeout: 2 * time.Second})
			require.NoError(t, err)
			defer r.Close()
			err = r.Warm(t.Context())
			require.Equal(t, c.class, rewards.ClassOf(err), "%v", err)
			require.ErrorContains(t, err, c.says)
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
