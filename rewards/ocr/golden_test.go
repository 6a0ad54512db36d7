package ocr_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// goldenFile is a file of the golden data: the repository's, or that of the
// folder named by REWARDLOOP_GOLDEN.
func goldenFile(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("REWARDLOOP_GOLDEN")
	if dir == "" {
		dir = filepath.Join("..", "..", "testdata", "golden")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: the golden data has no %s: %v", name, err)
	}
	return path
}

type goldenRow struct {
	Fn    string `json:"fn"`
	Input struct {
		Lines       []ocr.Line      `json:"lines"`
		Prompt      string          `json:"prompt"`
		Text        string          `json:"text"`
		GroundTruth json.RawMessage `json:"ground_truth"`
	} `json:"input"`
	Output *float64 `json:"output"`
}

// goldenRows runs f on every row of a function and wants at least one.
func goldenRows(t *testing.T, fn string, f func(line int, row goldenRow)) {
	t.Helper()
	data, err := os.ReadFile(goldenFile(t, "reward_functions.jsonl"))
	require.NoError(t, err)
	n, line := 0, 0
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line++
		var which struct {
			Fn string `json:"fn"`
		}
		require.NoError(t, json.Unmarshal(sc.Bytes(), &which))
		if which.Fn != fn {
			continue // other functions have other inputs
		}
		var row goldenRow
		require.NoError(t, json.Unmarshal(sc.Bytes(), &row), "line %d", line)
		f(line, row)
		n++
	}
	require.NoError(t, sc.Err())
	require.Positive(t, n, "no rows of %s", fn)
	t.Logf("%d rows of %s", n, fn)
}

// checkGolden scores one row through the scorer with a reader that returns the
// row's lines.
func checkGolden(t *testing.T, preset string, line int, row goldenRow, lines []ocr.Line) {
	t.Helper()
	s := newScorer(t, `{"preset":"`+preset+`"}`, fixed(lines))
	sample := picture(t, 1)
	sample.Prompt, sample.GroundTruth = row.Input.Prompt, row.Input.GroundTruth
	got, err := s.Score(t.Context(), sample)
	if row.Output == nil {
		require.ErrorIs(t, err, rewards.BadInput, "line %d", line)
		return
	}
	require.NoError(t, err, "line %d", line)
	require.InDelta(t, *row.Output, got.Value, 1e-12, "line %d: %+v", line, row.Input)
}

func TestGoldenFlowGRPO(t *testing.T) {
	t.Parallel()
	goldenRows(t, "ocr_flow_grpo", func(line int, row goldenRow) {
		checkGolden(t, ocr.FlowGRPO, line, row, row.Input.Lines)
	})
}

func TestGoldenVerlOmni(t *testing.T) {
	t.Parallel()
	goldenRows(t, "ocr_genrm", func(line int, row goldenRow) {
		checkGolden(t, ocr.VerlOmni, line, row, []ocr.Line{{Text: row.Input.Text, Confidence: 1}})
	})
}
