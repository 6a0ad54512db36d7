package models_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

const (
	patience = 30 * time.Second
	tick     = 5 * time.Millisecond
)

// hubPython is a Python that has huggingface_hub.
func hubPython(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	for _, python := range []string{os.Getenv("REWARDLOOP_HUB_PYTHON"), "../.venv/bin/python", "../.cache/engines/bin/python", "python3"} {
		if python == "" {
			continue
		}
		if abs, err := filepath.Abs(python); err == nil && strings.Contains(python, "/") {
			python = abs
		}
		if exec.CommandContext(t.Context(), python, "-c", "import huggingface_hub").Run() == nil {
			return python
		}
	}
	t.Skip("SKIPPED: no Python has huggingface_hub: name one in REWARDLOOP_HUB_PYTHON")
	return ""
}

// download is hf_hub_download of a file, with the cache of the store and the stub as the hub.
func download(t *testing.T, h *stubHub, s models.Store, file, revision string, vars ...string) (cmd *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	said = &bytes.Buffer{}
	cmd = exec.CommandContext(t.Context(), hubPython(t), "-c",
		"import sys, huggingface_hub as h; print(h.hf_hub_download(sys.argv[1], sys.argv[2], revision=sys.argv[3]))", repository, file, revision)
	cmd.Env = append(os.Environ(), "HF_ENDPOINT="+h.URL, "HF_HOME="+t.TempDir(), "HF_HUB_CACHE="+s.Hub.Dir, "HF_HUB_DISABLE_TELEMETRY=1",
		"HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_PROGRESS_BARS=1", "NO_PROXY=127.0.0.1,localhost", "SSL_CERT_FILE="+h.certificate(t))
	cmd.Env = append(cmd.Env, vars...)
	cmd.Stdout, cmd.Stderr = said, said
	return cmd, said
}

func downloaded(t *testing.T, cmd *exec.Cmd, said *bytes.Buffer) string {
	t.Helper()
	require.NoError(t, cmd.Run(), said.String())
	return lastLine(said)
}

func lastLine(said *bytes.Buffer) string {
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	return lines[len(lines)-1]
}

func TestPythonReadsOfflineWhatAPullHasFilled(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"main", "refs/pr/1", commit} {
		h := newStubHub(t)
		s := h.cachedStore(t)
		ok(t, s.Pull(t.Context(), ofHub(revision), models.Options{}))
		h.Close()
		for _, file := range []string{"onnx/model.bin", "config.json"} {
			cmd, said := download(t, h, s, file, revision, "HF_HUB_OFFLINE=1")
			require.Equal(t, filepath.Join(s.Hub.Dir, "models--owner--name", "snapshots", commit, file), downloaded(t, cmd, said))
		}
	}
}

func TestAPullTakesWhatPythonHasFilledWithoutARequest(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"main", "refs/pr/1", commit} {
		for name, vars := range map[string][]string{"links": nil, "real files": {"HF_HUB_DISABLE_SYMLINKS=1"}} {
			t.Run(name+" "+revision, func(t *testing.T) {
				t.Parallel()
				h := newStubHub(t)
				s := h.cachedStore(t)
				for _, file := range []string{"onnx/model.bin", "config.json"} {
					cmd, said := download(t, h, s, file, revision, vars...)
					downloaded(t, cmd, said)
				}
				h.Close()
				s.Offline = "HF_HUB_OFFLINE=1"
				before := tree(t, s.Hub.Dir)
				var events []models.Event
				ok(t, s.Pull(t.Context(), ofHub(revision), stages(&events)))
				require.Equal(t, 2, count(events, models.Taken))
				require.Equal(t, before, tree(t, s.Hub.Dir))
				require.Equal(t, string(body), read(t, filepath.Join(s.Dir, "m", "model.bin")))
			})
		}
	}
}

func TestAPullWaitsForPythonThatFetchesTheSameFile(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	h.breakOff()
	cmd, said := download(t, h, s, "onnx/model.bin", "main")
	ok(t, cmd.Start())
	<-h.sent
	waited := false
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{Progress: func(e models.Event) {
		if e.Stage == models.Waiting {
			waited = true
			close(h.go_)
		}
	}}))
	require.NoError(t, cmd.Wait(), said.String())
	require.True(t, waited)
	require.Len(t, h.requests("GET other"), 1, "the bytes came once")
	sameFile(t, lastLine(said), filepath.Join(s.Dir, "m", "model.bin"))
}

func TestPythonWaitsForAPullThatFetchesTheSameFile(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	cmd, said := download(t, h, s, "onnx/model.bin", "main") // skips before anything runs
	h.breakOff()
	pulled := make(chan error, 1)
	go func() { pulled <- s.Pull(t.Context(), ofHub("main"), models.Options{}) }() // ends with the pull
	<-h.sent
	before := len(h.requests("HEAD"))
	ok(t, cmd.Start())
	require.Eventually(t, func() bool { return len(h.requests("HEAD")) > before }, patience, tick)
	close(h.go_)
	ok(t, <-pulled)
	require.NoError(t, cmd.Wait(), said.String())
	require.Len(t, h.requests("GET other"), 1, "the bytes came once")
	sameFile(t, lastLine(said), filepath.Join(s.Dir, "m", "model.bin"))
}

func TestWhatAKilledPythonHasLeftIsNotInTheWay(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	cmd, _ := download(t, h, s, "onnx/model.bin", "main")
	h.breakOff()
	ok(t, cmd.Start())
	<-h.sent
	ok(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	h.Close()
	again, said := download(t, h, s, "onnx/model.bin", "main", "HF_HUB_OFFLINE=1")
	sameFile(t, downloaded(t, again, said), filepath.Join(s.Dir, "m", "model.bin"))
}

func TestPythonGoesOnBesideAPullThatWasInterrupted(t *testing.T) {
	t.Parallel()
	h := newStubHub(t)
	s := h.cachedStore(t)
	s.Attempts = 1
	cmd, said := download(t, h, s, "onnx/model.bin", "main")
	h.breakOff()
	ctx, cancel := withCause(t)
	require.ErrorIs(t, s.Pull(ctx, ofHub("main"), models.Options{Progress: func(e models.Event) {
		if e.Stage == models.Downloading {
			cancel(os.ErrDeadlineExceeded)
		}
	}}), os.ErrDeadlineExceeded)
	at := downloaded(t, cmd, said)
	require.Equal(t, string(body), read(t, at))
	h.forget()
	ok(t, s.Pull(t.Context(), ofHub("main"), models.Options{}))
	require.Empty(t, h.requests("GET other"))
	sameFile(t, at, filepath.Join(s.Dir, "m", "model.bin"))
}
