package tenlines_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// python finds an interpreter with the websockets library: that of
// REWARDLOOP_PYTHON, of .venv at the root of the repository, or on PATH.
func python(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	interpreter := os.Getenv("REWARDLOOP_PYTHON")
	if interpreter == "" {
		interpreter = filepath.Join("..", "..", ".venv", "bin", "python")
		if _, err := os.Stat(interpreter); err != nil {
			interpreter = "python3"
		}
	}
	if err := exec.CommandContext(t.Context(), interpreter, "-I", "-c", "import websockets.sync.client").Run(); err != nil {
		t.Skipf("SKIPPED: %s has no websockets library (%v): the Python example was not tried; name a Python that has it in REWARDLOOP_PYTHON", interpreter, err)
	}
	return interpreter
}

// The reward is the size as a JPEG, so that the test needs no text reader.
func TestTheSmallestPythonClientGetsItsPicturesScored(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	golden := os.Getenv("REWARDLOOP_GOLDEN")
	if golden == "" {
		golden = filepath.Join("..", "..", "testdata", "golden")
	}
	pictures, err := filepath.Glob(filepath.Join(golden, "ocr", "g00_*.jpg"))
	require.NoError(t, err)
	if len(pictures) == 0 {
		t.Skipf("SKIPPED: the golden data in %s has no ocr pictures", golden)
	}
	cfg, err := config.Load("", []string{
		"reward.custom_reward_function.path=builtin://jpeg_incompressibility", "reward.num_workers=2", "server.listen=127.0.0.1:0",
	}, nil)
	require.NoError(t, err)
	n, err := node.New(node.Options{Config: cfg})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	defer n.Stop()
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)

	broken := filepath.Join(t.TempDir(), "broken.jpg")
	require.NoError(t, os.WriteFile(broken, []byte("no picture"), 0o600))
	args := append([]string{"-I", "client.py", "ws://" + addr.String(), `A sign that says "Open"`, broken}, pictures...)
	cmd := exec.CommandContext(t.Context(), interpreter, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	answers := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
		answers[name] = answer
	}
	require.Len(t, answers, len(pictures)+1, "%s", out)
	assert.Equal(t, "failed None", answers[broken])
	for _, p := range pictures {
		assert.Regexp(t, `^scored \d+\.\d+$`, answers[p], p)
	}
}
