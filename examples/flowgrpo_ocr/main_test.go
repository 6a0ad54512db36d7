package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// TestMain makes the test binary its own child process, as the server is.
func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], node.Kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// two copies the list of the golden pictures, cut to its first two groups.
func two(t *testing.T) string {
	t.Helper()
	golden := os.Getenv("REWARDLOOP_GOLDEN")
	if golden == "" {
		golden = filepath.Join("..", "..", "testdata", "golden")
	}
	list, err := os.ReadFile(filepath.Join(golden, "ocr", "samples.jsonl"))
	if err != nil {
		t.Skipf("SKIPPED: the golden data has no ocr pictures: %v", err)
	}
	lines, dir := bytes.SplitAfter(list, []byte("\n"))[:16], t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "samples.jsonl"), bytes.Join(lines, nil), 0o600))
	for _, m := range regexp.MustCompile(`"image": ?"([^"]+)"`).FindAllSubmatch(bytes.Join(lines, nil), -1) {
		data, err := os.ReadFile(filepath.Join(golden, "ocr", string(m[1])))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(m[1])), data, 0o600))
	}
	return dir
}

func serve(t *testing.T) (url string) {
	t.Helper()
	if _, err := tesseract.Available(); err != nil {
		t.Skipf("SKIPPED: no Tesseract: %v", err)
	}
	cfg, err := config.Load("", []string{
		"reward.custom_reward_function.path=builtin://ocr", "+reward.custom_reward_function.reward_kwargs.reader=tesseract", "reward.num_workers=2", "reward.concurrency=2",
		"pool.tesseract.slots=2", "server.listen=127.0.0.1:0",
	}, nil)
	require.NoError(t, err)
	n, err := node.New(node.Options{Config: cfg})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)
	return "ws://" + addr.String()
}

func TestTheExampleGetsTheRewardsOfItsPromptGroups(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	dir, url := two(t), serve(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, url, dir, 20*time.Millisecond))
	assert.Regexp(t, `(?m)^g00 \[([01]\.\d{3} ?){8}\]$`, out.String())
	assert.Regexp(t, `(?m)^g01 \[([01]\.\d{3} ?){8}\]$`, out.String())
	assert.Regexp(t, `(?m)^16 samples, 0 failed; rollout \d+\.\d\d s, last score \d+\.\d\d s later$`, out.String())
	t.Log(out.String())
}

func TestTheExampleSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, run(t.Context(), &bytes.Buffer{}, "ws://127.0.0.1:1", t.TempDir(), 0), os.ErrNotExist)
	require.Error(t, run(t.Context(), &bytes.Buffer{}, "ws://127.0.0.1:1", two(t), 0), "nobody listens there")
}
