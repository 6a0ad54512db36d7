package demo_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/demo"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// pictures loads the golden pictures: the repository's, or those of the folder
// named by REWARDLOOP_GOLDEN.
func pictures(t *testing.T) []demo.Picture {
	t.Helper()
	dir := os.Getenv("REWARDLOOP_GOLDEN")
	if dir == "" {
		dir = filepath.Join("..", "..", "testdata", "golden")
	}
	dir = filepath.Join(dir, "ocr")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("SKIPPED: the golden data has no ocr: %v", err)
	}
	p, err := demo.Load(dir)
	require.NoError(t, err)
	return p
}

func needTesseract(t *testing.T) {
	t.Helper()
	if _, err := tesseract.Available(); err != nil {
		t.Skipf("SKIPPED: no Tesseract: %v", err)
	}
}

// Three prompt groups through everything: the node, the websocket, Tesseract, both
// runs, the files and their verification.
func TestGoldenPicturesGoThroughBothRunsAndVerify(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	all := pictures(t)
	needTesseract(t)
	var shown bytes.Buffer
	d, err := demo.Run(t.Context(), demo.Config{
		Reader: "tesseract", Samples: 24, Places: 2, MaxRollout: 5 * time.Second, Progress: demo.NewProgress(&shown, false),
	}, all)
	require.NoError(t, err)
	for i, s := range d.Scores {
		require.Equal(t, rewards.Scored, s.Outcome, "%s: %v", s.ID, s.Errors)
		assert.Equal(t, all[i].ID, s.ID)
		assert.Equal(t, all[i].Target, s.Details["target"], "a score belongs to its sample")
		assert.Equal(t, *s.RewardScore, *d.Record.Samples[i].Batch, "streaming changes when, not what: %s", s.ID) //nolint:testifylint // to the bit
	}
	require.Len(t, d.Record.Groups, 3, "the server told the statistics of every group")
	rep, err := d.Report()
	require.NoError(t, err)
	assert.Less(t, rep.Truth.MeanError, 0.1)
	require.NotNil(t, rep.Streaming)
	// Against its own samples scored after the rollout: two runs need not compare on
	// a machine that is busy with other tests.
	assert.Less(t, rep.Streaming.Exposed, rep.Streaming.BatchExposed)
	assert.Contains(t, shown.String(), "streaming           ██████████  rollout  24/24  scored  24")
	verified, err := demo.Verify(saved(t, d))
	require.NoError(t, err)
	assert.Equal(t, rep.String(), verified.String())
	t.Logf("\n%s%s", shown.String(), rep)
}

func TestADemoThatIsInterruptedEndsAtOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	all := pictures(t)
	needTesseract(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := writerFunc(func(line string) {
		if strings.Contains(line, "streaming") {
			cancel()
		}
	})
	start := time.Now()
	_, err := demo.Run(ctx, demo.Config{Reader: "tesseract", Samples: 24, Places: 2, MaxRollout: 5 * time.Second, Progress: demo.NewProgress(w, false)}, all)
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(start), time.Minute)
}

type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

func TestPicturesThatCannotShowAnythingAreNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ list, says string }{
		"none":         {"", "lists none"},
		"no JSON":      {"{", "line 1"},
		"unknown name": {`{"id":"a","colour":1}`, "colour"},
		"no target":    {`{"id":"a","uid":"g","image":"a.jpg"}`, "id, uid, target and image"},
		"outside":      {`{"id":"a","uid":"g","target":"x","image":"../a.jpg"}`, "below this folder"},
		"no file":      {`{"id":"a","uid":"g","target":"x","image":"a.jpg"}`, "a.jpg"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "samples.jsonl"), []byte(tt.list+"\n"), 0o600))
			_, err := demo.Load(dir)
			require.ErrorContains(t, err, tt.says)
		})
	}
	_, err := demo.Load(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAConfigurationNamesAllItsFaults(t *testing.T) {
	t.Parallel()
	_, err := demo.Run(t.Context(), demo.Config{Samples: -1, GPUs: -1, Places: 1000, Load: -1, MaxRollout: -1}, nil)
	for _, want := range []string{"-1 samples", "-1 GPUs", "1000 places", "load is -1", "time limit of the rollout is -1ns"} {
		require.ErrorContains(t, err, want)
	}
}

func TestTheLineIsRewrittenOnATerminalAndShortEnoughForIt(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := demo.NewProgress(&out, true)
	p.Begin("batch after rollout", 128)
	for range 128 {
		p.Finished()
		p.Result(false)
	}
	p.End()
	frames := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\r")
	require.GreaterOrEqual(t, len(frames), 2)
	last := strings.TrimSuffix(frames[len(frames)-1], "\x1b[K")
	assert.Contains(t, last, "rollout 128/128  scored   0  failed 128")
	assert.LessOrEqual(t, len([]rune(last)), 79)
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), "one line in all")
}
