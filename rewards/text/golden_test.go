package text_test

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

// eachLine calls f with every line of a file and its number.
func eachLine(t *testing.T, path string, f func(line int, row []byte)) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	line := 0
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line++
		f(line, sc.Bytes())
	}
	require.NoError(t, sc.Err())
}

// golden is a function of the golden file and the scorer that must equal it.
type golden struct {
	fn, scorer, options string
}

type goldenRow struct {
	Fn    string `json:"fn"`
	Input struct {
		Response    string          `json:"solution_str"`
		GroundTruth json.RawMessage `json:"ground_truth"`
		ExtraInfo   json.RawMessage `json:"extra_info"`
		Method      string          `json:"method"`
	} `json:"input"`
	Output json.RawMessage `json:"output"`
}

// want reads an output: a number, or an object with score and extra fields.
func want(t *testing.T, raw json.RawMessage) map[string]any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	if m, ok := v.(map[string]any); ok {
		return m
	}
	return map[string]any{"score": v}
}

// check scores a sample and wants the same doubles and the same extra fields. A
// field that the original has null is absent.
func check(t *testing.T, scorer rewards.Scorer, s *rewards.Sample, want map[string]any, where string, line int) {
	t.Helper()
	got, err := scorer.Score(t.Context(), s)
	require.NoError(t, err, "%s line %d", where, line)
	require.Equal(t, want["score"], got.Value, "%s line %d: %q against %s", where, line, s.Response, s.GroundTruth) //nolint:testifylint // to the bit
	delete(want, "score")
	for name, v := range want {
		if n, isInt := got.Extra[name].(int); isInt {
			got.Extra[name] = float64(n)
		}
		require.Equal(t, v, got.Extra[name], "%s line %d: %s of %q", where, line, name, s.Response)
	}
	for _, field := range scorer.(rewards.ExtraFielder).ExtraFields() {
		delete(got.Extra, field.Name)
	}
	require.Empty(t, got.Extra, "extra fields that were not declared")
}

func goldenRows(t *testing.T, g golden) {
	t.Helper()
	dir := os.Getenv("REWARDLOOP_GOLDEN")
	if dir == "" {
		dir = filepath.Join("..", "..", "testdata", "golden")
	}
	path := filepath.Join(dir, "reward_functions.jsonl")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: the golden data has no reward_functions.jsonl: %v", err)
	}
	n := 0
	eachLine(t, path, func(line int, raw []byte) {
		var which struct{ Fn string }
		require.NoError(t, json.Unmarshal(raw, &which))
		if which.Fn != g.fn {
			return // Other functions have other inputs.
		}
		var row goldenRow
		require.NoError(t, json.Unmarshal(raw, &row), "line %d", line)
		options := g.options
		if row.Input.Method != "" {
			options = `{"method": "` + row.Input.Method + `"}`
		}
		s := sample(row.Input.Response, string(row.Input.GroundTruth), string(row.Input.ExtraInfo))
		check(t, newScorer(t, g.scorer, options), s, want(t, row.Output), g.fn, line)
		n++
	})
	require.Positive(t, n, "no rows of %s", g.fn)
	t.Logf("%d rows of %s", n, g.fn)
}

func TestGoldenTextRewards(t *testing.T) {
	t.Parallel()
	for _, g := range []golden{
		{"gsm8k", "gsm8k", ""},
		{"math_dapo", "math_dapo", ""},
		{"math_dapo_strict_box", "math_dapo", `{"strict_box_verify": true}`},
		{"math_reward", "math_reward", ""},
		{"search_r1_qa_em", "search_r1_qa_em", ""},
		{"search_r1_qa_subem", "search_r1_qa_subem", ""},
		{"choice", "choice", ""},
		{"mmk12_choice", "mmk12", `{"values": "equal_text"}`}, // math_verify stood in for by equality.
	} {
		t.Run(g.fn, func(t *testing.T) {
			t.Parallel()
			goldenRows(t, g)
		})
	}
}

// TestGoldenWorkedExamples holds every published formula to what the published
// code gives (testdata/make_worked.py), in corners that the golden file has not.
func TestGoldenWorkedExamples(t *testing.T) {
	t.Parallel()
	path := os.Getenv("REWARDLOOP_WORKED")
	if path == "" {
		path = filepath.Join("testdata", "worked.jsonl")
	}
	rows := map[string]int{}
	eachLine(t, path, func(line int, raw []byte) {
		var row struct {
			Scorer      string          `json:"scorer"`
			Options     json.RawMessage `json:"options"`
			Response    string          `json:"response"`
			GroundTruth json.RawMessage `json:"ground_truth"`
			ExtraInfo   json.RawMessage `json:"extra_info"`
			Want        json.RawMessage `json:"want"`
		}
		require.NoError(t, json.Unmarshal(raw, &row), "line %d", line)
		s := sample(row.Response, string(row.GroundTruth), string(row.ExtraInfo))
		w := want(t, row.Want)
		if w["score"] == 0 {
			w["score"] = 0.0 // Not -0.
		}
		if row.Scorer == "ngram_repetition" && w["repetition_rate"] == nil {
			delete(w, "repetition_rate")
		}
		check(t, newScorer(t, row.Scorer, string(row.Options)), s, w, "worked.jsonl", line)
		rows[row.Scorer]++
	})
	assert.Len(t, rows, 13, "scorers with a published formula: %v", rows)
}
