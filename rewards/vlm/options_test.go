package vlm_test

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/vlm"
)

func TestOptionsNameTheirFaults(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		`{"mode": "maybe"}`:        "mode",
		`{"model": ""}`:            "model: is empty",
		`{"device": "gpu"}`:        "device",
		`{"dtype": "f8"}`:          "dtype",
		`{"template": "{promt}?"}`: "unknown placeholder {promt}, want one of {ground_truth}, {prompt}, {response}",
		`{"template": " "}`:        "template: is empty",
		`{"mode": "generate"}`:     "template: mode generate needs a question",
		`{"mode": "candidates"}`:   "candidates: 0",
		`{"frames": 0}`:            "frames",
		`{"frames": 1000}`:         "frames",
		`{"video": "first"}`:       "video",
		`{"show": "maybe"}`:        "show",
		`{"match": "best"}`:        "match",
		`{"min_mass": 1.5}`:        "min_mass",
		`{"mode": "generate", "template": "x", "min_mass": 0.1}`:                               "min_mass",
		`{"mode": "digit", "low": 1, "high": 10}`:                                              "low and high",
		`{"mode": "digit", "low": 5, "high": 5}`:                                               "low and high",
		`{"max_tokens": 0}`:                                                                    "max_tokens",
		`{"candidates": ["a"]}`:                                                                "only for mode: candidates",
		`{"mode": "candidates", "template": "x", "candidates": ["a"]}`:                         "a single one has all of the probability",
		`{"mode": "candidates", "template": "x", "candidates": ["a", "b"], "expected": "c"}`:   `expected: "c" is none`,
		`{"mode": "candidates", "template": "x", "candidates": ["a", "{b}"]}`:                  "candidates[1]: unknown placeholder {b}",
		`{"mode": "candidates", "template": "x", "candidates": ["a", "b"], "expected": "{c}"}`: "expected: unknown placeholder {c}",
		`{"regex": "("}`:                   "regex",
		`{"regex": "[0-9]+"}`:              "no group",
		`{"regex": "(x)", "tag": "score"}`: "only one",
		`{"tag": "a>b"}`:                   "tag",
		`{"min": 5, "max": 1}`:             "min and max",
		`{"scale": 0}`:                     "scale",
		`{"heat": 1}`:                      "heat",
		`{} {}`:                            "more than one JSON value",
	} {
		_, err := vlm.Specs(judges(t, &scripted{}))[0].Build(json.RawMessage(options))
		require.ErrorContains(t, err, want, options)
	}
}

func TestTheScorerIsThereWithoutARuntimeAndSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, j := range []*vlm.Judges{nil, vlm.NewJudges(vlm.Deps{})} {
		_, err := vlm.Specs(j)[0].Build(nil)
		require.ErrorContains(t, err, "this process has no runner for models")
	}
}

func TestEveryOptionIsDocumentedOnceAndTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, o := range vlm.Specs(b.Judges)[0].Options {
		assert.False(t, seen[o.Name], o.Name)
		seen[o.Name] = true
		assert.NotEmpty(t, o.Default, o.Name)
		assert.NotEmpty(t, o.Doc, o.Name)
		_, err := b.build(`{"` + o.Name + `": null}`)
		require.NoError(t, err, "%s is documented and not taken", o.Name)
		row := "| `" + o.Name + "` | "
		require.Contains(t, string(text), row, "README.md has no row for %s", o.Name)
		line, _, _ := strings.Cut(string(text)[strings.Index(string(text), row)+len(row):], "\n")
		if _, err := strconv.ParseFloat(o.Default, 64); err == nil || o.Default == "true" {
			assert.True(t, strings.HasPrefix(line, "`"+o.Default+"` |"), "README.md says of %s: %s", o.Name, line)
		}
	}
	for line := range strings.SplitSeq(string(text), "\n") { // and none that is not there
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` | ")
		if strings.HasPrefix(line, "| `") && ok && rest != "" && !strings.Contains(name, " ") && !strings.Contains(name, ".json") {
			assert.True(t, seen[name], "README.md documents %q", name)
		}
	}
}

func TestSharesHoldWhereProbabilitiesAreTooSmallForAFloat(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 0.5, vlm.Yes(-2000, -2000), 1e-12)
	assert.InDelta(t, 1, vlm.Yes(-2000, -3000), 1e-12)
	assert.InDelta(t, 0, vlm.Yes(-3000, -2000), 1e-12)
	shares, total := vlm.Shares([]float64{-1000, -1000 + math.Log(3)})
	assert.InDeltaSlice(t, []float64{0.25, 0.75}, shares, 1e-9)
	assert.InDelta(t, -1000+math.Log(4), total, 1e-9)
	assert.InDelta(t, math.Log(3), vlm.AddLog(0, math.Log(2)), 1e-12)
	assert.InDelta(t, 7, vlm.AddLog(math.Inf(-1), 7), 1e-12)
}
