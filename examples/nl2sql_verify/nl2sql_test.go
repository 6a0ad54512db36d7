package nl2sql_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

var root = filepath.Join("..", "..")

func needPython(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: verify tools of the kind command need Linux")
	}
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import sqlite3").Run(); err != nil {
		t.Skipf("SKIPPED: no python3 with sqlite3 on PATH: %v", err)
	}
}

// clone makes a folder that looks like the repository after make build.
func clone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(examples, filepath.Join(dir, "examples")))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "bin", "rewardloop"), "./cmd/rewardloop")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// readme returns the page and the block between ```sh and ```.
func readme(t *testing.T) (page, commands string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "```sh\n")
	require.True(t, found, "README.md has no commands")
	commands, _, _ = strings.Cut(rest, "```")
	return string(text), commands
}

type result struct {
	ID      string                   `json:"id"`
	Outcome rewards.Outcome          `json:"outcome"`
	Score   *float64                 `json:"reward_score"`
	Extra   map[string]any           `json:"reward_extra_info"`
	Errors  []rewards.ComponentError `json:"errors"`
}

func TestQueriesAreRunAndScoredAsTheReadmeSays(t *testing.T) {
	t.Parallel()
	needPython(t)
	page, commands := readme(t)
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = clone(t)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", &stderr)
	require.Equal(t, 1, exit.ExitCode(), "%s", &stderr)

	got := map[string]result{}
	for line := range strings.Lines(string(out)) {
		var r result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		got[r.ID] = r
	}
	require.Len(t, got, 5, "%s", out)
	for id, want := range map[string]struct {
		score float64
		ran   bool
	}{"right": {1, true}, "wrong": {0, true}, "does-not-run": {0, false}, "writes": {0, false}} {
		r := got[id]
		require.Equal(t, rewards.Scored, r.Outcome, "%s: %v", id, r.Errors)
		assert.InDelta(t, want.score, *r.Score, 0, id)
		assert.Equal(t, want.ran, r.Extra["reward/rows/ran"], id)
		reason, _ := r.Extra["reward/rows/reason"].(string)
		assert.Equal(t, want.score == 1, reason == "", "%s: %s", id, reason)
		assert.Contains(t, page, reason, id)
	}
	broken := got["broken"]
	assert.Equal(t, rewards.Failed, broken.Outcome)
	assert.Nil(t, broken.Score, "a failure is no 0")
	assert.Nil(t, broken.Extra["reward/rows"])
	require.NotEmpty(t, broken.Errors)
	assert.Contains(t, broken.Errors[0].Message, `verifier "sql"`)
	assert.Contains(t, broken.Errors[0].Message, "no database shops")
}

// What a response may contain is never the tool's failure.
func TestWhatIsWrongWithAQueryIsAResultOfTheTool(t *testing.T) {
	t.Parallel()
	needPython(t)
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "python3", "make_db.py", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for query, ran := range map[string]bool{
		"":                                    true,
		"SELECT name FROM customers":          true,
		"SELECT 1; SELECT 2":                  false,
		"SELECT 9e999":                        false, // infinity
		"SELECT x'00'":                        false, // bytes
		"SELECT zeroblob(2000000000)":         false,
		"SELECT CAST(x'ff' AS TEXT)":          false, // no UTF-8
		"ATTACH 'other.sqlite' AS o":          false,
		"PRAGMA writable_schema = 1":          false,
		"SELECT load_extension('evil')":       false,
		"SELECT hex(zeroblob(40000))":         false, // too many bytes
		"INSERT INTO orders VALUES (9, 9, 9)": false,
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n": true, // cut at 200 rows
	} {
		in, err := json.Marshal(map[string]any{"response": query, "ground_truth": map[string]any{"db": "shop", "rows": []any{}}})
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "python3", "run_sql.py", dir)
		cmd.Stdin = bytes.NewReader(in)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "%s: %s", query, &stderr)
		var found struct {
			Ran   bool   `json:"ran"`
			Error string `json:"error"`
		}
		require.NoError(t, json.Unmarshal(out, &found), "%s", out)
		assert.Equal(t, ran, found.Ran, "%s: %s", query, out)
		assert.Equal(t, ran, found.Error == "", "%s: %s", query, out)
	}
}
