package mixed_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var root = filepath.Join("..", "..")

// clone makes a folder that looks like the repository after make build.
func clone(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds and starts the program")
	}
	golden := os.Getenv("REWARDLOOP_GOLDEN")
	if golden == "" {
		golden = filepath.Join(root, "testdata", "golden")
	}
	if _, err := os.Stat(filepath.Join(golden, "ocr", "g00_0.jpg")); err != nil {
		t.Skipf("SKIPPED: the golden data has no ocr pictures: %v", err)
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "testdata"), 0o700))
	for link, to := range map[string]string{"examples": filepath.Join(root, "examples"), filepath.Join("testdata", "golden"): golden} {
		to, err := filepath.Abs(to)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "bin", "rewardloop"), "./cmd/rewardloop")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// command is the block of the README between ```sh and ```.
func command(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```sh\n")
	require.True(t, found, "README.md has no command")
	text, _, _ := strings.Cut(rest, "```")
	return text
}

// row is what the README shows of a result.
type row struct {
	score, answer, brief, small, raw any
}

func TestTextPicturesAndAVideoAreScoredAsTheReadmeSays(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command(t))
	cmd.Dir = clone(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)

	want := map[string]row{
		"sum-0":    {1.0, 1.0, 0.0, nil, nil},
		"sum-1":    {-0.018, 0.0, -0.18, nil, nil},
		"poster-0": {-0.66212, nil, nil, -0.66212, -0.264848},
		"poster-1": {-0.65205, nil, nil, -0.65205, -0.26082},
		"clip-0":   {-0.260235, nil, nil, -0.260235, -0.104094},
	}
	var keys []string
	for line := range strings.Lines(string(out)) {
		var r struct {
			ID      string          `json:"id"`
			Outcome rewards.Outcome `json:"outcome"`
			Score   any             `json:"reward_score"`
			Extra   map[string]any  `json:"reward_extra_info"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, rewards.Scored, r.Outcome, line)
		w, known := want[r.ID]
		require.True(t, known, line)
		delete(want, r.ID)
		near(t, w.score, r.Score, line)
		near(t, w.answer, r.Extra["reward/answer"], line)
		near(t, w.brief, r.Extra["reward/brief"], line)
		near(t, w.small, r.Extra["reward/small"], line)
		near(t, w.raw, r.Extra["reward/small/raw"], line)
		got := slices.Sorted(maps.Keys(r.Extra))
		if keys == nil {
			keys = got
		}
		assert.Equal(t, keys, got, "one key set")
	}
	assert.Empty(t, want, "%s", out)
	assert.Equal(t, 1, strings.Count(stderr.String(), "── run "), "loop.num_examine: %s", &stderr)
}

// near wants a number, or nil where there is none.
func near(t *testing.T, want, got any, line string) {
	t.Helper()
	if want == nil {
		assert.Nil(t, got, line)
		return
	}
	assert.InDelta(t, want, got, 1e-9, line)
}

// python finds an interpreter with what python/rewardloop needs: that of
// REWARDLOOP_PYTHON, of .venv at the root of the repository, or on PATH.
func python(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	interpreter := os.Getenv("REWARDLOOP_PYTHON")
	if interpreter == "" {
		interpreter = filepath.Join(root, ".venv", "bin", "python")
		if _, err := os.Stat(interpreter); err != nil {
			interpreter = "python3"
		}
	}
	if err := exec.CommandContext(t.Context(), interpreter, "-c", "import numpy, websockets").Run(); err != nil {
		t.Skipf("SKIPPED: %s lacks NumPy or websockets (%v): the Python example was not tried; name a Python that has them in REWARDLOOP_PYTHON", interpreter, err)
	}
	return interpreter
}

func TestATrainerInPythonGetsTheWholeStepAsOneBatch(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	cfg, err := config.Load("cfg.yaml", []string{"server.listen=127.0.0.1:0", "loop.num_examine=0"}, nil)
	require.NoError(t, err)
	n, err := node.New(node.Options{Config: cfg})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	defer n.Stop()
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)
	client, err := filepath.Abs(filepath.Join(root, "python"))
	require.NoError(t, err)

	cmd := exec.CommandContext(t.Context(), interpreter, "train.py", "ws://"+addr.String())
	cmd.Env = append(os.Environ(), "PYTHONPATH="+client, "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	const said = "rm_scores (4, 1) float32 valid 4 of 4\n" +
		"rm_scores (4, 17) in columns [16, 5, 0, 0]\n" +
		"key sets 1\n" +
		"sum-0 1.0 {'answer': 1, 'brief': 0, 'small': None}\n"
	rest, found := strings.CutPrefix(string(out), said)
	require.True(t, found, "%s", out)
	assert.Regexp(t, `^sum-1 0\.0 .*\nposter -0\.\d+ .*\nclip -0\.\d+ .*\n$`, rest)
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), said, "README.md shows something else")
}
