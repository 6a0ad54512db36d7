package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// interpreter is the Python of REWARDLOOP_PYTHON, of .venv at the root of the
// repository, or on PATH.
func interpreter(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	name := os.Getenv("REWARDLOOP_PYTHON")
	if name == "" {
		name = filepath.Join("..", ".venv", "bin", "python")
		if _, err := os.Stat(name); err != nil {
			name = "python3"
		}
	}
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no Python: %v; name one in REWARDLOOP_PYTHON", err)
	}
	return name
}

func TestPythonClientsGetTheirScores(t *testing.T) {
	t.Parallel()
	python := interpreter(t)
	s := newSite(t, siteOptions{})
	pics := jpegs(3)
	pics[2] = append(pics[2], bytes.Repeat([]byte("x"), 100_000)...) // beyond a pickle frame
	args := []string{"-I", filepath.Join("testdata", "clients.py"), s.url}
	var want []any
	var named []any
	for i, p := range pics {
		path := filepath.Join(t.TempDir(), "p.jpg")
		require.NoError(t, os.WriteFile(path, p, 0o600))
		args = append(args, path)
		want = append(want, expected("", p))
		named = append(named, expected(fmt.Sprintf("prompt %d é", i), p))
	}
	out, err := exec.CommandContext(t.Context(), python, args...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		require.NoError(t, err, "%s", failed.Stderr)
	}
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		var got struct {
			Name   string
			Status int
			Answer any
		}
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		answer, _ := got.Answer.(map[string]any)
		kind, _, _ := strings.Cut(got.Name, " p")
		switch kind {
		case "verl_omni":
			assert.Equal(t, map[string]any{"scores": named[:1], "outputs": named[:1]}, answer, got.Name)
		case "deqa", "kept good":
			assert.Equal(t, want, answer["outputs"], got.Name)
		case "unified numpy", "tuple numpy", "object numpy":
			assert.Equal(t, named, answer["scores"], got.Name)
		case "numpy":
			if got.Answer == false {
				t.Log("NUMPY IS MISSING: its arrays were not tried; install numpy into .venv or name a Python that has it in REWARDLOOP_PYTHON")
			} else {
				t.Logf("NumPy %v, %d requests", got.Answer, len(lines)-1)
			}
		case "garbage", "unknown reward":
			assert.Equal(t, 422, got.Status, got.Name)
			assert.NotEmpty(t, answer["error"], got.Name)
		default:
			assert.Equal(t, 400, got.Status, got.Name)
			assert.NotEmpty(t, answer["error"], got.Name)
		}
	}
}
