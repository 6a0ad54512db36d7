package judge_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

type goldenRow struct {
	Fn    string `json:"fn"`
	Input struct {
		Text        string          `json:"text"`
		GroundTruth json.RawMessage `json:"ground_truth"`
	} `json:"input"`
	Output json.RawMessage `json:"output"`
}

// golden runs f on every row of a function in the golden data, the repository's or
// that of the folder named by REWARDLOOP_GOLDEN, with a scorer whose judge says the
// row's text.
func golden(t *testing.T, fn, scorer string, f func(line int, row goldenRow, got rewards.Score, err error)) {
	t.Helper()
	dir := os.Getenv("REWARDLOOP_GOLDEN")
	if dir == "" {
		dir = filepath.Join("..", "..", "testdata", "golden")
	}
	data, err := os.ReadFile(filepath.Join(dir, "reward_functions.jsonl"))
	if err != nil {
		t.Skipf("SKIPPED: the golden data has no reward_functions.jsonl: %v", err)
	}
	var text string
	e := &engine{answer: func(int, asked) string { return says(text) }}
	d := deps(t, e)
	n, line := 0, 0
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line++
		if !bytes.Contains(sc.Bytes(), []byte(`"fn": "`+fn+`"`)) {
			continue // other functions have other inputs
		}
		var row goldenRow
		require.NoError(t, json.Unmarshal(sc.Bytes(), &row), "line %d", line)
		n++
		text = row.Input.Text
		s := video(1)
		if row.Input.GroundTruth != nil {
			s.GroundTruth = row.Input.GroundTruth
		}
		s.ExtraInfo = quoteObject("prompt", string(rune('a'+n%26))+string(rune('0'+n/26))) // each row is a question of its own
		got, err := build(t, d, scorer, `{"answer_retries": 0}`).Score(t.Context(), s)
		f(line, row, got, err)
	}
	require.NoError(t, sc.Err())
	require.Positive(t, n, "no rows of %s", fn)
	t.Logf("%d rows of %s", n, fn)
}

func quoteObject(name, value string) json.RawMessage {
	js, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		panic(err)
	}
	return js
}

func TestGoldenGenRMOCR(t *testing.T) {
	t.Parallel()
	golden(t, "ocr_genrm", "genrm_ocr", func(line int, row goldenRow, got rewards.Score, err error) {
		require.NoError(t, err, "line %d", line)
		var want float64
		require.NoError(t, json.Unmarshal(row.Output, &want))
		require.InDelta(t, want, got.Value, 1e-12, "line %d: %+v", line, row.Input)
	})
}

func TestGoldenUnifiedReward(t *testing.T) {
	t.Parallel()
	golden(t, "unified_reward", "unified_reward", func(line int, row goldenRow, got rewards.Score, err error) {
		var want struct {
			Axes       map[string]float64 `json:"axes"`
			Score, Raw float64
		}
		require.NoError(t, json.Unmarshal(row.Output, &want))
		if len(want.Axes) == 0 {
			require.ErrorIs(t, err, rewards.InvalidScore, "line %d: the reference says 0 to what it cannot read", line)
			return
		}
		require.NoError(t, err, "line %d", line)
		assert.InDelta(t, want.Score, got.Value, 1e-12, "line %d: %q", line, row.Input.Text)
		assert.InDelta(t, want.Raw, got.Extra["raw_score"], 1e-12, "line %d", line)
		for name, v := range want.Axes {
			assert.InDelta(t, v, got.Extra[name], 1e-12, "line %d: %s", line, name)
		}
	})
}
